"""Results of another folder or machine, brought here by a real rsync, over a fake ssh where there is a host."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exported import Exporting
from pairs import Pair

from seamark.errors import SiteError, UserError
from seamark.housekeeping.import_results import Merged, fetch, forget, merge
from seamark.planning.study import Study
from seamark.storage.paths import ScenarioFolder, TrialFolder

pytestmark = pytest.mark.services
SSH = """#!/bin/sh
echo "$@" >> {log}
while [ "$1" != far ]; do shift; done
shift
exec sh -c "$*"
"""


def study_of(folder: Exporting) -> Study:
    return Study.at(folder.root, scenario="config/scenarios/try.yaml", site="here")


def bring(pair: Pair, prefer: str | None = None) -> Merged:
    """Fetch and merge, without deriving anything."""
    study = study_of(pair.here)
    copy = fetch(pair.source, "try", study.results)
    merged = merge(study.plan, ScenarioFolder(root=copy / "try"), study.folder("try"), pair.source, prefer)
    forget(copy)
    return merged


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def measure_else(folder: Path) -> None:
    """Make a finished trial another measurement of the same: its last request never was."""
    trial = TrialFolder(root=folder)
    table = pq.read_table(trial.samples)
    pq.write_table(table.slice(0, table.num_rows - 1), trial.samples)
    for path in (trial.record, trial.load):
        record = json.loads(path.read_text()) | {"samples_bytes": trial.samples.stat().st_size}
        path.write_text(json.dumps(record))


def fail(folder: Path) -> None:
    """Make a trial a failed one."""
    trial = TrialFolder(root=folder)
    record = json.loads(trial.load.read_text()) | {"status": "failed", "category": "server_died", "reason": "killed"}
    trial.load.write_text(json.dumps(record))
    trial.record.unlink()


@pytest.mark.sweep
@pytest.mark.covers("E-FR01", "E-NFR03")
def test_results_come_over_ssh_and_the_report_is_made_here_and_nothing_is_left_to_measure(
    pair: Pair, tmp_path: Path
) -> None:
    ssh, log = tmp_path / "ssh", tmp_path / "ssh.log"
    ssh.write_text(SSH.format(log=log))
    ssh.chmod(0o755)
    done = pair.here.bench("collect", "--from", f"me@far:{pair.source}", RSYNC_RSH=str(ssh), code=0)
    assert "4 trials imported, 0 existed here" in done.stdout
    assert log.read_text().startswith("-l me far rsync --server --sender")
    assert (pair.here.root / "reports/try/index.html").exists()
    theirs, ours = (json.loads((each.results / "summary.json").read_text()) for each in (pair.there, pair.here))
    assert ours["treatments"] == theirs["treatments"]
    assert not (pair.here.root / "results/.incoming").exists()
    for trial in pair.trials():
        log_lines = (pair.here.results / trial / "log.jsonl").read_text().splitlines()
        assert [json.loads(line)["event"] for line in log_lines] == ["load ended", "collected"]
        telemetry = pq.read_table(pair.here.results / trial / "telemetry.parquet")
        assert telemetry.equals(pq.read_table(pair.there.results / trial / "telemetry.parquet"))

    before = {path: path.stat().st_mtime_ns for path in pair.here.results.glob("*--*/*")}
    submitted = pair.here.bench("submit", site="local")
    assert "all 4 trials are there" in submitted.stdout, submitted.stdout + submitted.stderr
    again = pair.here.bench("collect", "--from", pair.source)
    assert "0 trials imported, 4 existed here" in again.stdout, again.stderr
    assert {path: path.stat().st_mtime_ns for path in pair.here.results.glob("*--*/*")} == before


@pytest.mark.sweep
def test_what_has_not_wholly_come_does_not_count_and_comes_when_it_is_whole(pair: Pair) -> None:
    torn, uncommitted, unread, *whole = pair.trials()
    samples = pair.there.results / torn / "samples.parquet"
    content = samples.read_bytes()
    samples.write_bytes(content[:-100])
    (pair.there.results / uncommitted / "samples.json").rename(pair.there.root / "kept.json")
    (pair.there.results / uncommitted / "load.json").rename(pair.there.root / "load.json")
    damaged = pair.there.results / unread / "samples.parquet"
    good = damaged.read_bytes()
    damaged.write_bytes(b"\0" * len(good))
    first = bring(pair)
    assert sorted(first.taken) == whole
    assert sorted(first.unfinished) == [torn, uncommitted, unread]
    assert sorted(path.parent.name for path in pair.here.results.glob("*--*/samples.json")) == whole
    samples.write_bytes(content)
    damaged.write_bytes(good)
    for name, to in (("kept.json", "samples.json"), ("load.json", "load.json")):
        (pair.there.root / name).rename(pair.there.results / uncommitted / to)
    assert sorted(bring(pair).taken) == [torn, uncommitted, unread]


def test_a_trial_whose_load_json_was_lost_comes_with_one(pair: Pair) -> None:
    name = pair.trials()[0]
    (pair.there.results / name / "load.json").unlink()
    assert name in bring(pair).taken
    assert json.loads((pair.here.results / name / "load.json").read_text())["status"] == "ok"


def test_a_trial_measured_in_both_places_is_refused_with_both_named_and_nothing_changes(pair: Pair) -> None:
    first, second, *_ = pair.trials()
    bring(pair)
    shutil.rmtree(pair.here.results / second)
    measure_else(pair.there.results / first)
    before = files_of(pair.here.results)
    done = pair.here.bench("collect", "--from", pair.source, code=2)
    for place in (str(pair.here.results / first), str(pair.there.results / first), "--prefer here"):
        assert place in done.stderr
    assert files_of(pair.here.results) == before


@pytest.mark.parametrize("prefer", ["here", "there"])
def test_which_of_two_measurements_counts_can_be_said_and_ours_is_never_lost(pair: Pair, prefer: str) -> None:
    first, second, *_ = pair.trials()
    bring(pair)
    shutil.rmtree(pair.here.results / second)
    measure_else(pair.there.results / first)
    ours = (pair.here.results / first / "samples.parquet").read_bytes()
    theirs = (pair.there.results / first / "samples.parquet").read_bytes()
    merged = bring(pair, prefer)
    assert set(merged.taken) == ({second} if prefer == "here" else {first, second})
    assert (pair.here.results / first / "samples.parquet").read_bytes() == (ours if prefer == "here" else theirs)
    if prefer == "there":
        assert (pair.here.results / first / "attempts/1/samples.parquet").read_bytes() == ours


def move_to(folder: Path, machine: str) -> None:
    """Make a finished trial one that was measured on another machine."""
    for name in ("samples.json", "load.json", "meta.json"):
        document = json.loads((folder / name).read_text())
        document["server_identity"] |= {"machine": machine, "digest": f"of {machine}"}
        (folder / name).write_text(json.dumps(document))


@pytest.mark.covers("E-NFR03", "E-NFR05")
def test_trials_of_another_machine_come_with_its_name_are_marked_and_never_taken_for_ones_of_this(pair: Pair) -> None:
    others = pair.trials()[1:]
    bring(pair)
    for name in others:
        shutil.rmtree(pair.here.results / name)
        move_to(pair.there.results / name, "far")
    done = pair.here.bench("collect", "--from", pair.source, COLUMNS="200", code=0)
    assert "3 trials measured on site 'local' (venv, on far)" in done.stdout
    assert "These trials were measured on several servers" in done.stdout
    summary = json.loads((pair.here.results / "summary.json").read_text())
    assert [(server["name"], server["trials"]) for server in summary["servers"]] in (
        [("A", 1), ("B", 3)],
        [("A", 3), ("B", 1)],
    )
    before = files_of(pair.here.results)
    refused = pair.here.bench("submit", site="local", code=2)
    assert "3 trials were measured on site 'local' (venv, on far); this run asks for" in refused.stderr
    assert files_of(pair.here.results) == before


def test_a_trial_that_two_machines_measured_is_refused_with_both_of_them_named(pair: Pair) -> None:
    name = pair.trials()[0]
    bring(pair)
    measure_else(pair.there.results / name)
    move_to(pair.there.results / name, "far")
    with pytest.raises(UserError, match=r"measured twice, in .* \(.*venv, on (?!far).*\) and in .* \(.*venv, on far"):
        bring(pair)


@pytest.mark.parametrize("how", [fail, lambda folder: None])
def test_our_measurement_of_another_configuration_gives_way_only_when_that_is_asked_for(
    pair: Pair, how: Callable[[Path], object]
) -> None:
    name = pair.trials()[0]
    bring(pair)
    for path in ("samples.json", "load.json"):
        file = pair.here.results / name / path
        file.write_text(json.dumps(json.loads(file.read_text()) | {"config_hash": "0" * 64}))
    ours = (pair.here.results / name / "samples.parquet").read_bytes()
    how(pair.there.results / name)
    if how is fail:
        assert name not in bring(pair, "there").taken
        return
    before = files_of(pair.here.results)
    with pytest.raises(UserError, match="measured twice"):
        bring(pair)
    assert name not in bring(pair, "here").taken
    assert files_of(pair.here.results) == before
    assert name in bring(pair, "there").taken
    assert (pair.here.results / name / "attempts/1/samples.parquet").read_bytes() == ours


@pytest.mark.parametrize("how", [fail, lambda folder: (folder / "samples.parquet").write_bytes(b"")])
def test_a_finished_trial_stays_whatever_comes_in_its_name(pair: Pair, how: Callable[[Path], object]) -> None:
    name = pair.trials()[0]
    bring(pair)
    before = files_of(pair.here.results / name)
    how(pair.there.results / name)
    assert name not in bring(pair, "there").taken
    assert files_of(pair.here.results / name) == before


def test_a_failed_trial_comes_as_such_and_gives_way_to_one_that_was_measured(pair: Pair) -> None:
    name = pair.trials()[0]
    saved = shutil.copytree(pair.there.results / name, pair.there.root / "saved")
    fail(pair.there.results / name)
    assert name in bring(pair).taken
    assert json.loads((pair.here.results / name / "load.json").read_text())["category"] == "server_died"
    assert bring(pair).taken == ()
    shutil.rmtree(pair.there.results / name)
    saved.rename(pair.there.results / name)
    assert bring(pair).taken == (name,)
    assert json.loads((pair.here.results / name / "load.json").read_text())["status"] == "ok"
    kept = json.loads((pair.here.results / name / "attempts/1/load.json").read_text())
    assert kept["category"] == "server_died"


def test_what_was_measured_as_something_else_stays_there(pair: Pair) -> None:
    name = pair.trials()[0]
    for path in ("samples.json", "load.json"):
        file = pair.there.results / name / path
        file.write_text(json.dumps(json.loads(file.read_text()) | {"config_hash": "0" * 64}))
    assert name in bring(pair).unfinished


@pytest.mark.sweep
def test_calibrations_of_nodes_that_are_not_known_here_come_along(pair: Pair) -> None:
    for folder, content in (("there", "theirs"), ("here", "ours")):
        calibrations = pair.here.root.parent / folder / "results/.calibration"
        calibrations.mkdir(parents=True, exist_ok=True)
        (calibrations / "shared.json").write_text(f'{{"of": "{content}"}}')
    (pair.there.root / "results/.calibration/far.json").write_text('{"of": "theirs"}')
    assert pair.here.bench("collect", "--from", pair.source).returncode == 0
    known = pair.here.root / "results/.calibration"
    assert [json.loads((known / f"{name}.json").read_text())["of"] for name in ("far", "shared")] == [
        "theirs",
        "ours",
    ]


@pytest.mark.sweep
def test_without_rsync_the_remedy_is_said_and_the_code_is_3(pair: Pair, tmp_path: Path) -> None:
    done = pair.here.bench("collect", "--from", pair.source, PATH=str(tmp_path / "nothing"), code=3)
    assert done.stderr.startswith("bench collect --from: rsync is not on PATH. Install it here")


@pytest.mark.parametrize(
    ("source", "says"),
    [("nowhere", "nowhere/try: no such folder. --from names"), ("results", "these are the results of this study")],
)
def test_a_wrong_folder_is_said_in_one_line(pair: Pair, source: str, says: str) -> None:
    bring(pair)
    done = pair.here.bench("collect", "--from", source)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert says in done.stderr


def test_a_preference_without_anything_to_bring_is_a_mistake(pair: Pair) -> None:
    done = pair.here.bench("collect", "--prefer", "here")
    assert (done.returncode, "needs --from" in done.stderr) == (2, True)


def test_a_scenario_that_is_not_there_on_the_other_machine_is_said(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(log=tmp_path / "log"))
    ssh.chmod(0o755)
    monkeypatch.setenv("RSYNC_RSH", str(ssh))
    for source in (f"far:{pair.source}/deeper", f"far:{pair.there.root}"):
        with pytest.raises(UserError, match="no such folder"):
            fetch(source, "try", pair.here.root / "results")


def test_a_connection_that_breaks_changes_nothing_here_and_is_said(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho far: connection refused >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("RSYNC_RSH", str(ssh))
    with pytest.raises(SiteError, match="connection refused"):
        fetch("far:somewhere", "try", pair.here.root / "results")
    assert not pair.here.results.exists()


def test_results_of_others_bring_no_pipes(pair: Pair) -> None:
    name = pair.trials()[0]
    load = pair.there.results / name / "load.json"
    load.unlink()
    os.mkfifo(load)
    study = study_of(pair.here)
    copy = fetch(pair.source, "try", study.results)
    assert not (copy / "try" / name / "load.json").exists()
    assert (copy / "try" / name / "samples.parquet").is_file()
