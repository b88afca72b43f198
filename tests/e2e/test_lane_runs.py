"""Runs with lanes: deployments side by side on devices, killed lanes, and runs without lanes as they were."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import until
from study_folder import StudyFolder

from seamark.planning.study import Study

pytestmark = pytest.mark.e2e
LANES = ("--cpus", "0,1", "--per-device", "2", "--parallel", "4")
two_cpus = pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPU 0 and CPU 1")
PRINT_DEVICE = """
import json, os, time
time.sleep(0.5)
names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SEAMARK_DEVICE")
print(json.dumps({{"cpus": sorted(os.sched_getaffinity(0)), **{{name: os.environ.get(name) for name in names}}}}))
"""


@pytest.fixture
def study(study: StudyFolder, tmp_path: Path) -> StudyFolder:
    """A study whose locks and devices are its own."""
    (tmp_path / "locks").mkdir()
    return StudyFolder(root=study.root, environment=os.environ | {"SEAMARK_RUNTIME_DIR": str(tmp_path / "locks")})


def submit(study: StudyFolder, *options: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return study.bench("submit", "-c", "config/scenarios/try.yaml", *options, **more)


def write_commands(study: StudyFolder, deployments: int, script: str, **more: Any) -> None:
    """Write a scenario of a program, with deployments that differ in their memory."""
    command = {"argv": [sys.executable, "-c", script]}
    workload = {"service": "command", "command": command, **more}
    document = {
        "scenario": "try",
        "repetitions": 1,
        "resources": {"mem_gb": list(range(1, deployments + 1))},
        "workload": workload,
    }
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def lanes_of(study: StudyFolder) -> list[psutil.Process]:
    return study.processes(lambda process: process.name() == "rules_api:lane")


def devices_of(study: StudyFolder) -> dict[str, dict[str, Any]]:
    """Return the device of each trial by its folder."""
    return {path.name: study.json(f"{path.name}/load.json")["device"] for path in study.trials()}


@two_cpus
@pytest.mark.covers("B1", "B2", "B3", "B7", "D2")
def test_deployments_run_side_by_side_and_results_are_those_of_other_runs(study: StudyFolder) -> None:
    study.write(repetitions=1, workload={"concurrency": [1, 2], "delay_ms": [1, 2, 3]})
    done = study.measure(*LANES, code=0)
    assert "6 of 6 trials to measure on local, 3 deployments, up to 4 at a time." in done.stdout
    assert set(study.measurements().values()) == {1}
    used = devices_of(study)
    assert {each["id"] for each in used.values()} == {"0", "1"}
    by_deployment = Counter((name.split("--")[0], each["id"], each["slot"]) for name, each in used.items())
    assert set(by_deployment.values()) == {2}, "all trials of a deployment run on one device"
    records = [json.loads(path.read_text()) for path in study.results.glob("deployments/*/deployment.json")]
    assert [record["trials"] for record in records] == [{"n": 2, "ok": 2}] * 3
    for name, each in used.items():
        codes = {reason["code"] for reason in study.json(f"{name}/metrics.json")["reasons"]}
        assert ("device_shared" in codes) == each["shared"]
    assert any(each["shared"] for each in used.values())
    assert not (study.results / ".lanes").exists()
    beside = {name: study.json(f"{name}/meta.json").get("ran_beside", []) for name in used}
    assert all(name.split("--")[0] not in others for name, others in beside.items())
    assert any(beside.values()), "no deployment ran beside another one"
    assert {other for others in beside.values() for other in others} <= {name.split("--")[0] for name in used}
    again = study.measure(code=0)
    assert "only derived files are updated" in again.stdout
    assert set(study.measurements().values()) == {1}


@pytest.mark.covers("D1", "D2", "D5")
def test_a_factor_of_the_load_is_unrolled_where_each_treatment_has_a_fresh_server(study: StudyFolder) -> None:
    workload = {"concurrency": [1, 2], "delay_ms": [1, 2], "fresh_server": True}
    study.write(repetitions=1, workload=workload, order={"unroll": ["concurrency"]})
    done = study.measure(code=0)
    assert "4 of 4 trials to measure on local, 4 deployments." in done.stdout
    assert "runs one deployment at a time" in done.stderr
    began = {path.name: study.json(f"{path.name}/load.json")["epoch_unix_ns"] for path in study.trials()}
    levels = {
        trial.id: trial.settings["concurrency"]
        for trial in Study.at(study.root, scenario="config/scenarios/try.yaml").plan.trials
    }
    assert {name.split("--")[0] for name in began} == {path.name for path in study.results.glob("deployments/*")}
    assert [levels[name] for name in sorted(began, key=lambda name: began[name])] in ([1, 1, 2, 2], [2, 2, 1, 1])
    study.write(repetitions=1, workload=workload, order="sequential")
    plan = Study.at(study.root, scenario="config/scenarios/try.yaml").plan
    assert {trial.id for trial in plan.trials} == {*began}, "an order is no part of a trial's identity"


@pytest.mark.sweep
@two_cpus
@pytest.mark.covers("B8")
@pytest.mark.parametrize(
    ("kind", "devices", "ids"),
    [
        pytest.param("cpu", "0,1", {"0", "1"}, marks=pytest.mark.sweep),
        ("gpu", "auto", {"5", "6"}),
    ],
)
def test_a_program_in_a_lane_sees_exactly_one_device(
    kind: str, devices: str, ids: set[str], study: StudyFolder
) -> None:
    write_commands(study, 4, PRINT_DEVICE, limit_s=60)
    environment = dict(study.environment or {}) | {"CUDA_VISIBLE_DEVICES": "5,6"}
    done = submit(study, f"--{kind}s", devices, "--parallel", "2", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    used = devices_of(study)
    assert {each["id"] for each in used.values()} == ids
    for name, device in used.items():
        sees = json.loads((study.results / name / "files" / "stdout").read_text())
        assert device["kind"] == kind
        assert sees["CUDA_VISIBLE_DEVICES"] == (device["id"] if kind == "gpu" else "5,6")
        assert json.loads(sees["SEAMARK_DEVICE"])["id"] == device["id"]
        if kind == "cpu":
            assert (sees["cpus"], sees["OMP_NUM_THREADS"]) == ([int(device["id"])], "1")


@pytest.mark.sweep
@two_cpus
def test_a_failed_trial_of_a_lane_is_a_result(study: StudyFolder) -> None:
    write_commands(study, 3, "raise SystemExit('broken')", limit_s=60)
    for _ in range(2):
        done = submit(study, "--cpus", "0,1", "--parallel", "2")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "3 of 3 trials failed:" in done.stdout
    assert [study.json(f"{path.name}/load.json")["category"] for path in study.trials()] == ["program_failed"] * 3
    assert study.json(f"{study.trials()[0].name}/load.json")["device"]["kind"] == "cpu"
    assert [len((path / "log.jsonl").read_text().splitlines()) for path in study.trials()] == [1] * 3


@pytest.mark.sweep
@two_cpus
@pytest.mark.covers("B2", "B7")
def test_a_lane_that_is_killed_is_started_again_and_its_unit_alone_runs_again(study: StudyFolder) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 1.5, "delay_ms": [1, 2, 3, 4, 5, 6]})
    run = study.start("--cpus", "0,1", "--parallel", "2")
    until(lambda: len(lanes_of(study)) == 2 and list(study.results.glob("*--*/.parts/*")))
    measured = {path: path.stat().st_mtime_ns for path in study.results.glob("*--*/samples.json")}
    lanes_of(study)[0].kill()
    assert run.wait(120) == 0
    assert set(study.measurements().values()) == {1}
    assert len(study.measurements()) == 6
    assert all(path.stat().st_mtime_ns == at_ns for path, at_ns in measured.items())
    served = Counter(path.name for path in study.results.glob("deployments/*"))
    assert set(served.values()) == {1}
    assert study.processes() == []


@pytest.mark.sweep
@two_cpus
@pytest.mark.covers("B2", "B12")
def test_a_deployment_that_two_lanes_died_of_fails_and_ends_no_third_lane(study: StudyFolder) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 0.5, "delay_ms": [1, 2, 3, 4]})
    lethal = Study.at(study.root, scenario="config/scenarios/try.yaml").plan.deployments[1].id
    run = study.start("--cpus", "0,1", "--parallel", "2")

    def loading() -> list[psutil.Process]:  # its server is up: the lane that comes next finds it
        lanes = lanes_of(study) if list(study.results.glob(f"{lethal}--*/.parts/*")) else []
        return [lane for lane in lanes if holds(lane)]

    def holds(lane: psutil.Process) -> bool:
        try:
            return any(lethal in " ".join(each.cmdline()) for each in lane.children())
        except psutil.NoSuchProcess:  # a child ended meanwhile
            return False

    for _ in range(2):
        until(lambda: bool(loading()))
        loading()[0].kill()
        until(lambda: not loading())
    assert run.wait(120) == 1
    outcomes = {path.name: study.json(f"{path.name}/load.json") for path in study.trials()}
    assert Counter(load["category"] for load in outcomes.values()) == {None: 3, "lane_died": 1}
    [failed] = [load for name, load in outcomes.items() if name.startswith(f"{lethal}--")]
    assert "two lanes were killed" in failed["reason"]
    assert study.processes() == []


@pytest.mark.sweep
@two_cpus
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_with_lanes_that_is_ended_leaves_nothing_and_goes_on(study: StudyFolder, number: int) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 1.5, "delay_ms": [1, 2, 3, 4]})
    run = study.start("--cpus", "0,1", "--parallel", "2")
    until(lambda: list(study.results.glob("*--*/samples.json")))
    if number == signal.SIGKILL:
        [snakemake] = study.processes(
            lambda process: any(Path(word).name == "snakemake" for word in process.cmdline())
        )
        snakemake.kill()
    else:
        run.send_signal(number)
    assert run.wait(60) == (3 if number == signal.SIGKILL else 130)
    until(lambda: not lanes_of(study))
    kept = {path: path.stat().st_mtime_ns for path in study.results.glob("*--*/samples.json")}
    study.measure("--cpus", "0,1", "--parallel", "2", code=0)
    assert set(study.measurements().values()) == {1}
    assert len(study.measurements()) == 4
    assert all(path.stat().st_mtime_ns == at_ns for path, at_ns in kept.items())


@pytest.mark.sweep
@two_cpus
def test_a_run_that_is_killed_while_a_lane_tears_down_begins_no_unit_more(study: StudyFolder) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 1.5, "delay_ms": [1, 2, 3, 4]})
    run = study.start("--cpus", "0", "--parallel", "2")
    until(lambda: study.processes(lambda process: process.name() == "rules_api:teardown"[:15]))
    begun = set(study.results.glob("deployments/*/*/endpoint.json")) | set(study.trials())
    [snakemake] = study.processes(lambda process: any(Path(word).name == "snakemake" for word in process.cmdline()))
    snakemake.kill()
    assert run.wait(60) == 3
    until(lambda: not lanes_of(study))
    assert set(study.results.glob("deployments/*/*/endpoint.json")) | set(study.trials()) == begun
    done = submit(study, "--cpus", "0", "--parallel", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(study.measurements().values()) == {1}
    assert len(study.measurements()) == 4


@pytest.mark.sweep
@two_cpus
def test_a_server_that_killed_lanes_left_on_a_device_ends_before_the_next_run_takes_it(
    study: StudyFolder, tmp_path: Path
) -> None:
    study.write(repetitions=1, workload={"concurrency": 1, "duration_s": 60, "delay_ms": [1, 2]})
    options = ("--cpus", "0,1", "--parallel", "2")
    run = study.start(*options)
    until(lambda: len(list(study.results.glob("*--*/.parts/*"))) == 2)
    for wanted in ("seamark.cli.main", "snakemake"):
        for process in study.processes(lambda process, name=wanted: name in process.cmdline()):  # type: ignore[misc]
            process.kill()
    for lane in lanes_of(study):
        lane.kill()
    run.wait(10)
    ends = [path / ".keeper" / "end.json" for path in study.results.glob("deployments/*")]
    assert not any(path.exists() for path in ends), "the servers have a lease"
    other = StudyFolder.new(tmp_path / "other", environment=study.environment)
    other.write(repetitions=1, workload={"concurrency": 1, "delay_ms": [1, 2]})
    done = submit(other, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [json.loads(path.read_text())["why"] for path in ends] == ["evicted"] * 2


@pytest.mark.sweep
def test_a_run_of_one_deployment_at_a_time_has_no_lane(study: StudyFolder) -> None:
    listed = submit(study, "--dry-run")
    assert listed.returncode == 0
    assert "rule load" in listed.stdout + listed.stderr
    assert "rule lane" not in listed.stdout + listed.stderr
    assert submit(study).returncode == 0
    for path in study.trials():
        assert "device" not in study.json(f"{path.name}/load.json")
    assert not list(study.results.glob("logs/lane*"))
