"""A run stops trying a service whose loads or servers end in the same way three times; nothing is lost by that."""

import json
import os
from pathlib import Path

import pytest
from study_folder import StudyFolder

from seamark.storage.paths import ScenarioFolder
from seamark.trials.repeated_failures import Counted, note_death, note_life, run_of, why_not_tried

S3 = Counted(service="s3")


def die(
    folder: Path,
    *names: str,
    run: str | None = "run",
    said: str = "client_died: no",
    kind: str = "trial",
    of: Counted = S3,
) -> None:
    for name in names:
        note_death(ScenarioFolder(root=folder), of, run, kind=kind, name=name, said=said, tail=["line", "last 5"])


def why(folder: Path, run: str | None = "run", of: Counted = S3) -> str | None:
    return why_not_tried(ScenarioFolder(root=folder), of, run)


def test_three_deaths_of_one_cause_in_a_row_end_it_and_two_do_not(tmp_path: Path) -> None:
    die(tmp_path, "a", "b")
    assert why(tmp_path) is None
    die(tmp_path, "b")
    assert why(tmp_path) is None, "the same trial twice"
    die(tmp_path, "c")
    assert "3 trials of the service 's3' failed in the same way" in (why(tmp_path) or "")
    assert "client_died: no." in (why(tmp_path) or "")
    assert why(tmp_path, of=Counted(service="postgres")) is None


def test_numbers_and_paths_do_not_tell_one_cause_from_another_but_words_do(tmp_path: Path) -> None:
    die(tmp_path, "a", said="exit 1 of process 17, see /a/b")
    die(tmp_path, "b", said="exit 1 of process 18, see /a/c")
    die(tmp_path, "c", said="killed")
    assert why(tmp_path) is None
    die(tmp_path, "d", "e", said="killed")
    assert why(tmp_path)


def test_a_load_that_sent_requests_another_run_and_another_kind_begin_the_count_anew(tmp_path: Path) -> None:
    die(tmp_path, "a", "b")
    note_life(ScenarioFolder(root=tmp_path), S3)
    die(tmp_path, "c")
    assert why(tmp_path) is None
    die(tmp_path, "d", "e")
    assert why(tmp_path, run="the next") is None
    die(tmp_path, "f", run="the next")
    assert why(tmp_path, run="the next") is None
    die(tmp_path, "x", run="the next", kind="deployment")
    assert why(tmp_path, run="the next") is None
    die(tmp_path, "y", run="the next", kind="deployment")
    assert why(tmp_path, run="the next"), "a second start that ends like the first is enough"
    assert why_not_tried(ScenarioFolder(root=tmp_path), S3, "the next", but="y") is None


def test_models_are_counted_apart_and_deployments_of_one_model_together(tmp_path: Path) -> None:
    models = [Counted(service="attention", model=f"/models/{name}") for name in "abcd"]
    for of in models[:3]:
        die(tmp_path, "bf16", kind="deployment", said=f"model_not_found: --model {of.model}: no such folder", of=of)
    assert not any(why(tmp_path, of=of) for of in models)
    die(
        tmp_path,
        "fp16",
        "fp32",
        kind="deployment",
        said="model_not_found: --model /models/a: no such folder",
        of=models[0],
    )
    assert "3 deployments of the service 'attention' with the model /models/a failed in the same way" in (
        why(tmp_path, of=models[0]) or ""
    )
    note_life(ScenarioFolder(root=tmp_path), models[3])
    assert [bool(why(tmp_path, of=of)) for of in models] == [True, False, False, False]


def test_without_a_run_nothing_is_counted(tmp_path: Path) -> None:
    die(tmp_path, "a", "b", "c", run=None)
    assert why(tmp_path, run=None) is None
    assert run_of({}) is None
    assert run_of({"SEAMARK_TURN": "x", "SLURM_JOB_ID": "5"}) == "x"


@pytest.mark.covers("E-NFR04")
def test_a_damaged_count_is_no_count(tmp_path: Path) -> None:
    die(tmp_path, "a", "b", "c")
    ScenarioFolder(root=tmp_path).deaths("s3").write_text("[]")
    assert why(tmp_path) is None
    die(tmp_path, "d")
    assert why(tmp_path) is None


DRIVER = """\
import json
import os

from seamark.drivers.null import Null


def Broken(target):
    if "BREAK_THE_LOAD" in os.environ:
        raise RuntimeError("this driver cannot load")
    return Null(target)
"""


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-NFR04")
def test_loads_that_die_alike_three_times_end_the_tries_and_the_next_run_goes_on(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "study")
    (study.root / "drivers").mkdir()
    (study.root / "drivers" / "broken_driver.py").write_text(DRIVER)
    recipe = study.root / "config" / "services" / "null.yaml"
    recipe.write_text(recipe.read_text().replace("seamark.drivers.null:Null", "broken_driver:Broken"))
    study.write(repetitions=3)
    environment = os.environ | {"PYTHONPATH": str(study.root / "drivers")}
    study = StudyFolder(root=study.root, environment=environment | {"BREAK_THE_LOAD": "1"})
    done = study.submit(code=1)
    ends = {path.parent.name: json.loads(path.read_text())["category"] for path in study.results.glob("*/load.json")}
    assert sorted(ends.values()) == ["client_died"] * 3 + ["not_tried"] * 3
    assert "3 trials not tried: 3 trials of the service 'null' failed in the same way" in done.stdout
    assert study.json("summary.json")["ok"] == 0
    well = StudyFolder(root=study.root, environment=environment)
    assert "try: 3 of 6 trials to measure" in well.submit().stdout
    for trial in (name for name, category in ends.items() if category == "not_tried"):
        assert study.json(f"{trial}/load.json")["status"] == "ok", "the next run tries what was not tried"
    assert well.bench("retry", "-c", "config/scenarios/try.yaml").returncode == 0
    assert study.json("summary.json")["ok"] == 6
