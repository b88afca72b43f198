"""Runs that start servers anew for every block: real servers, a killed run, lanes, and what the pages say of it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from processes import until
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e


def a_study(study: StudyFolder, repetitions: int = 2, **workload: Any) -> None:
    load = {"service": "known", "ttft_ms": [1, 2], "duration_s": 0.5, "warmup_s": 0, "concurrency": 1, **workload}
    document = {"scenario": "try", "repetitions": repetitions, "restarts": "each", "workload": load}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def records(study: StudyFolder) -> dict[str, dict[str, Any]]:
    """Return each deployment.json by its folder."""
    folders = sorted((study.results / "deployments").iterdir())
    return {each.name: json.loads((each / "deployment.json").read_text()) for each in folders}


@pytest.mark.sweep
def test_each_block_has_servers_of_its_own_and_a_second_submit_starts_none(study: StudyFolder) -> None:
    a_study(study)
    study.submit(code=0)
    found = records(study)
    assert len(found) == 4
    assert {name.rpartition(".")[2] for name in found} == {"r1", "r2"}
    assert {(each["trials"]["n"], each["trials"]["ok"]) for each in found.values()} == {(1, 1)}
    started = {name: each["started_at"] for name, each in found.items()}
    first, second = ([at for name, at in started.items() if name.endswith(mark)] for mark in (".r1", ".r2"))
    assert max(first) < min(second), "a block is started after the one before it"
    for trial in study.trials():
        load, block = study.json(f"{trial.name}/load.json"), trial.name.rpartition("--")[2]
        server = trial.name.partition("--")[0] + f".{block}"
        assert load["status"] == "ok"
        assert study.json(f"{trial.name}/trial.json")["trials"][0]["deployment"] == server
        telemetry = study.json(f"{trial.name}/metrics.json")["resource"]
        assert telemetry, "its own server's telemetry was found"
    summary = study.json("summary.json")
    assert summary["factors_without_p"] == []
    servers = {trial.name.partition("--")[0] for trial in study.trials()}
    assert {row["deployment"] for row in summary["treatments"]} == servers
    page = (study.root / "reports/try/index.html").read_text()
    assert "in each of which 2 servers are started anew" in page
    assert "Medians of 4 starts" in page
    measured = study.measurements()
    study.measure(code=0)
    assert study.measurements() == measured
    assert {name: each["started_at"] for name, each in records(study).items()} == started


@pytest.mark.sweep
def test_a_killed_run_goes_on_with_the_starts_that_are_left(study: StudyFolder) -> None:
    a_study(study, duration_s=1)
    run = study.start()
    until(lambda: len(list(study.results.glob("*/load.json"))) >= 2, within_s=120)
    run.kill()
    run.wait()
    until(lambda: not study.processes(), within_s=60)
    before = {path.parent.name: path.read_bytes() for path in study.results.glob("*/samples.json")}
    assert before
    study.measure(code=0)
    assert len(study.trials()) == 4
    assert {name: (study.results / name / "samples.json").read_bytes() for name in before} == before


@pytest.mark.sweep
@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPU 0 and CPU 1")
def test_starts_of_one_deployment_are_units_of_lanes_on_several_devices(study: StudyFolder, tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    study = StudyFolder(root=study.root, environment=os.environ | {"SEAMARK_RUNTIME_DIR": str(tmp_path / "locks")})
    a_study(study, repetitions=4, ttft_ms=1)
    study.bench("submit", "-c", "config/scenarios/try.yaml", "--cpus", "0,1", "--parallel", "2", code=0)
    devices = {path.name: study.json(f"{path.name}/load.json")["device"]["id"] for path in study.trials()}
    assert len(devices) == 4
    assert len(set(devices.values())) == 2, "replicas of one server on two devices"
    assert {name.rpartition(".")[2] for name in records(study)} == {"r1", "r2", "r3", "r4"}
