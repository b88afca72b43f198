"""`artifacts.dataset` and `dataset`: a data set is part of a trial's identity, and a wrong one measures nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import in_process
import numpy as np
import pytest
import yaml
from shipped import ROOT, SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.plan import plan

SAMPLE = "config/scenarios/llm_vllm_baseline.yaml"


def planned(folder: Path, workload: dict[str, Any], **more: Any) -> Plan:
    path = folder / "try.yaml"
    path.write_text(yaml.safe_dump({"scenario": "try", "workload": workload, **more}, sort_keys=False))
    return plan(read_scenario(path, SERVICES), SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml"))


def lines(folder: Path, workload: dict[str, Any], **more: Any) -> list[tuple[str, str | None]]:
    """Return code and path of each mistake."""
    with pytest.raises(UserError) as refused:
        planned(folder, workload, **more)
    return [(mistake.code, mistake.path) for mistake in refused.value.mistakes]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('"a"\n')
    (tmp_path / "v").mkdir()
    np.save(tmp_path / "v" / "base.npy", np.zeros((120, 4), np.float32))
    np.save(tmp_path / "v" / "query.npy", np.zeros((7, 4), np.float32))
    return tmp_path


@pytest.mark.covers("E-FR02", "E-CFG")
def test_the_content_of_a_data_set_is_part_of_identity_and_not_the_name_of_trials(here):
    load = {"service": "known"}
    artifact = planned(here, load, artifacts={"dataset": "p.jsonl"})
    written = planned(here, load | {"dataset": "p.jsonl"})
    assert artifact.trials == written.trials
    assert artifact.trials[0].settings["dataset"] == "p.jsonl"
    (here / "p.jsonl").write_text('"b"\n')
    other = planned(here, load | {"dataset": "p.jsonl"})
    assert other.trials[0].id == written.trials[0].id
    assert other.trials[0].config_hash != written.trials[0].config_hash
    assert other.deployments == planned(here, load).deployments  # no other server


@pytest.mark.covers("E-FR26")
def test_data_sets_are_levels_of_a_factor_and_vectors_decide_their_sizes(here):
    seeded = planned(here, {"service": "faiss", "dataset": "seeded:vectors:rows=200"})
    assert [seeded.deployments[0].settings[name] for name in ("vectors", "dimensions", "queries")] == [200, 64, 500]
    files = planned(here, {"service": "faiss", "dataset": "v"})
    assert [files.deployments[0].settings[name] for name in ("vectors", "dimensions", "queries")] == [120, 4, 7]
    (here / "q.jsonl").write_text('"b"\n')
    assert planned(here, {"service": "known", "dataset": ["p.jsonl", "q.jsonl"]}).factors["workload"] == {
        "dataset": ("p.jsonl", "q.jsonl")
    }


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("workload", "more", "mistakes"),
    [
        ({"service": "known", "dataset": "none.jsonl"}, {}, [("no_such_file", "workload.dataset")]),
        ({"service": "known", "dataset": "v"}, {}, [("wrong_form", "workload.dataset")]),
        ({"service": "faiss", "dataset": "p.jsonl"}, {}, [("wrong_form", "workload.dataset")]),
        ({"service": "faiss", "dataset": "v", "dimensions": 64}, {}, [("conflict", "workload.dimensions")]),
        (
            {"service": "faiss", "dataset": ["v", "seeded:vectors"]},
            {},
            [("conflict", "workload.dataset[1]")],
        ),
        ({"service": "known", "dataset": ["p.jsonl", "try.txt"]}, {}, [("no_such_file", "workload.dataset[1]")]),
        ({"service": "null"}, {"artifacts": {"dataset": "p.jsonl"}}, [("conflict", "artifacts.dataset")]),
        ({"service": "known"}, {"artifacts": {"dataset": "none.jsonl"}}, [("no_such_file", "artifacts.dataset")]),
        ({"service": "known"}, {"artifacts": {"dataset": " "}}, [("no_value", "artifacts.dataset")]),
    ],
)
def test_a_wrong_data_set_is_one_line(workload, more, mistakes, here):
    assert lines(here, workload, **more) == mistakes


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study with the sample scenario, and $WORK in which its data set can lie."""
    monkeypatch.setenv("WORK", str(tmp_path))
    root = tmp_path / "study"
    assert in_process.bench("init", str(root), cwd=tmp_path).returncode == 0
    (tmp_path / "data").mkdir()
    return root


@pytest.mark.slow
@pytest.mark.covers("E-EX", "E-CFG")
def test_the_sample_plans_to_54_trials_with_its_data_set_wherever_that_lies(study, tmp_path):
    without = in_process.bench("plan", "-c", SAMPLE, "--site", "meluxina", "--json", cwd=study)
    (tmp_path / "data" / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    within = in_process.bench("plan", "-c", SAMPLE, "--site", "meluxina", "--json", cwd=study)
    plans = [json.loads(done.stdout)["plan"]["trials"] for done in (without, within)]
    assert [len(trials) for trials in plans] == [54, 54]
    assert [trial["id"] for trial in plans[0]] == [trial["id"] for trial in plans[1]]
    assert {trial["settings"]["dataset"] for trial in plans[0]} == {"$WORK/data/prompts.jsonl"}


@pytest.mark.slow
@pytest.mark.covers("E-VAL", "E-INT01")
@pytest.mark.parametrize("words", [("submit",), ("submit", "-n"), ("start",), ("retry",), ("export", "slurm")])
def test_what_would_measure_names_the_wrong_lines_of_a_data_set_and_writes_nothing(words, study, tmp_path):
    (tmp_path / "data" / "prompts.jsonl").write_text('{"prompt": "a"}\n{"prom": "b"}\n{"prompt": "c')
    before = sorted(tmp_path.rglob("*"))
    done = in_process.bench(*words, "-c", SAMPLE, "--site", "meluxina", cwd=study)
    assert done.returncode == 2, done.stdout + done.stderr
    said = done.stderr.splitlines()
    assert [line.split(": ")[0] for line in said] == [f"{tmp_path}/data/prompts.jsonl:{number}" for number in (2, 3)]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_snakemake_alone_refuses_a_data_set_that_is_not_there(study, tmp_path):
    words = ["-m", "snakemake", "-n", "--config", f"scenario={SAMPLE}", "site=meluxina"]
    done = subprocess.run([sys.executable, *words], cwd=study, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "$WORK/data/prompts.jsonl: no such data set" in done.stdout + done.stderr
