"""Simulated workflows as trials of a scenario: figures of `bench simulate`, resumption, changed and damaged files."""

import csv
import json
import random
import shutil
import subprocess
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from study_folder import StudyFolder

from seamark.storage.codec import encode
from seamark_simulate.trials.execution_file import log_of_file, read_executions

pytestmark = pytest.mark.e2e

SYSTEM = "config/clusters/system_config.yaml"
REQUESTS = "asked.json"
SECOND_NS = 1_000_000_000


def a_scenario(study: StudyFolder, repetitions: int = 1, **workload: object) -> None:
    """Write a scenario of forty requests of both sample workflows, without times of their own."""
    rng, at_s, entries = random.Random(1), 0.0, []
    for number in range(40):
        at_s += rng.expovariate(1 / 12)
        at = datetime(2024, 1, 1) + timedelta(seconds=at_s)
        workflow = ("text_generation", "multimodal_workflow")[number % 2]
        entries.append({"request_id": f"r{number}", "timestamp": at.isoformat(), "workflow_id": workflow})
    (study.root / REQUESTS).write_text(json.dumps({"requests": entries}))
    asked = {} if "generated_requests" in workload else {"requests_file": REQUESTS}
    document = {
        "scenario": "try",
        "repetitions": repetitions,
        "workload": {"service": "cluster", "system_file": SYSTEM, **asked, **workload},
    }
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def simulated_by_hand(study: StudyFolder, config: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """Return the execution log of `bench simulate` with the settings of a trial."""
    words = ["simulate", "--gpus", str(config["cluster_gpus"]), "--policy", config["policy"]]
    words += ["--arrivals", config["arrivals"], "--cold-load", config["cold_load"], "--log", "by_hand.json"]
    words += [] if seed is None else ["--draw", "--seed", str(seed)]
    study.ask(*words, "--config", SYSTEM, "--requests", REQUESTS, code=0)
    document: dict[str, Any] = json.loads((study.root / "by_hand.json").read_text())
    return document


@pytest.mark.covers("C2", "C11", "C12", "C14", "E-FR10")
def test_figures_are_those_of_the_command_on_the_same_files_and_nothing_is_simulated_twice(
    study: StudyFolder,
) -> None:
    a_scenario(study, arrivals=["all-at-zero", "timestamps"], policy=["baseline", "heft"], cluster_gpus=2, draw=True)
    done = study.submit(code=0)
    assert "makespan s" in done.stdout
    assert len(study.trials()) == 4
    seeds = set()
    for trial in study.trials():
        metrics = study.json(f"{trial.name}/metrics.json")
        assert (metrics["origin"], metrics["verdict"]) == ("simulated", "VALID"), metrics["reasons"]
        _, facts, ran = read_executions(trial / "executions.parquet")
        seeds.add(facts.seed)
        log = encode(log_of_file(trial / "executions.parquet"))
        assert log == simulated_by_hand(study, metrics["config"], facts.seed)
        schedule, summary = metrics["schedule"], log["summary"]
        assert schedule["makespan_s"] == float(f"{summary['makespan']:.9g}") == metrics["quality"]["makespan_s"]
        assert schedule["switch_s"] == float(f"{summary['total_switch_time']:.9g}")
        counts = [schedule[name] for name in ("requests", "executions", "switches", "cold_loads")]
        names = ("total_requests", "total_nodes_executed", "total_model_switches", "total_cold_loads")
        assert counts == [summary[name] for name in names]
        assert metrics["latency_ms"]["mean"] == pytest.approx(1e3 * schedule["completion"]["mean_s"], rel=1e-8)
        samples = pq.read_table(trial / "samples.parquet")
        assert samples["due_ns"].to_pylist() == [round(at_s * SECOND_NS) for at_s in ran.arrival_s]
        assert samples["last_ns"].to_pylist() == [round(at_s * SECOND_NS) for at_s in ran.completed_s()]
        inputs = ["--config", SYSTEM, "--requests", REQUESTS]
        checked = study.ask("check", str(trial / "executions.parquet"), *inputs)
        assert (checked.returncode, checked.stdout) == (0, "PASS: 60 executions without conflicts\n")
    assert len(seeds) == 1, "all trials of a block see the same times"
    report = (study.root / "reports/try/report.md").read_text()
    assert "**Simulated, not measured**: cluster" in report
    assert "makespan s" in report
    assert "| origin |" in report
    assert "| simulated |" in report
    figures = {path.stem for path in (study.root / "reports/try/figures").glob("*.svg")}
    drawn = {"cluster-gantt", "cluster-use-and-queue", "cluster-gpu-time", "cluster-policies-makespan-s"}
    assert drawn <= figures
    assert "**cluster: time of the GPUs and waits**" in report
    assert "policies by makespan_s" in report
    with (study.results / "summary.csv").open() as file:
        assert {row["origin"] for row in csv.DictReader(file)} == {"simulated"}
    study.measure(code=0)
    assert set(study.measurements().values()) == {1}


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_the_same_seed_gives_the_same_bytes_and_policies_of_a_block_see_the_same_requests(study: StudyFolder) -> None:
    a_scenario(
        study,
        repetitions=2,
        generated_requests=30,
        arrivals="timestamps",
        arrivals_rps=0.08,
        draw=True,
        cluster_gpus=2,
        policy=["fifo", "easy"],
        keep_events=True,
    )
    assert study.measure().returncode == 0
    names = ("samples.parquet", "executions.parquet", "events.parquet")
    kept = {(trial.name, name): (trial / name).read_bytes() for trial in study.trials() for name in names}
    drawn = {}
    for trial in study.trials():
        table, _, _ = read_executions(trial / "executions.parquet")
        rows = table.sort_by([("request", "ascending"), ("node", "ascending")])
        drawn[trial.name] = [(row["workflow"], row["arrival_s"], row["duration_s"]) for row in rows.to_pylist()]
    by_block: dict[str, list[object]] = {}
    for name, times in drawn.items():
        by_block.setdefault(name.rpartition("--")[2], []).append(times)
    assert all(times[0] == times[1] for times in by_block.values())
    assert by_block["r1"][0] != by_block["r2"][0]
    shutil.rmtree(study.results)
    assert study.measure().returncode == 0
    assert {(trial.name, name): (trial / name).read_bytes() for trial in study.trials() for name in names} == kept
    compared = study.ask("compare", "try")
    assert "makespan_s" in compared.stdout, compared.stderr


@pytest.mark.sweep
@pytest.mark.covers("C4", "E-NFR04")
def test_a_changed_file_of_requests_is_noticed_before_anything_is_simulated_again(study: StudyFolder) -> None:
    a_scenario(study, cluster_gpus=[1, 2])
    assert study.measure().returncode == 0
    text = (study.root / REQUESTS).read_text()
    (study.root / REQUESTS).write_text(text.replace("multimodal_workflow", "text_generation", 1))
    refused = study.measure(code=2)
    assert "2 trials were measured with another configuration" in refused.stderr
    assert "what a file of its settings holds" in refused.stderr
    assert set(study.measurements().values()) == {1}
    study.bench("submit", "--measure-anew", "-c", "config/scenarios/try.yaml", code=0)
    assert set(study.measurements().values()) == {2}


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_a_run_that_is_killed_goes_on_and_repeats_nothing(study: StudyFolder) -> None:
    a_scenario(study, cluster_gpus=[1, 2, 3, 4, 5, 6, 7, 8])
    run = study.start()
    until_s = time.monotonic() + 120
    while not list(study.results.glob("*/load.json")):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    for process in study.processes():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process.kill()
    run.wait(60)
    before = {path: path.read_bytes() for path in study.results.glob("*/samples.json")}
    assert len(before) < 8
    # a kill between a trial's line in its log and samples.json leaves the line of one that is not finished
    logged, finished = study.measurements(), {path.parent.name for path in before}
    assert {logged[trial] for trial in finished} <= {1}
    study.measure(code=0)
    assert study.json("summary.json")["ok"] == 8
    assert {path: path.read_bytes() for path in before} == before
    more = {trial: count - logged.get(trial, 0) for trial, count in study.measurements().items()}
    assert more == {trial.name: int(trial.name not in finished) for trial in study.trials()}
    assert not list(study.root.glob(".seamark/scratch/*/*"))
    assert not list(study.results.glob("*/.parts"))


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_damaged_executions_are_simulated_again_or_named_with_the_remedy(study: StudyFolder) -> None:
    a_scenario(study, cluster_gpus=[1, 2, 3])
    assert study.measure().returncode == 0
    cut, lost, flipped = study.trials()
    right = {trial.name: (trial / "executions.parquet").read_bytes() for trial in study.trials()}
    (cut / "executions.parquet").write_bytes(right[cut.name][:100])
    (lost / "executions.parquet").unlink()
    wrong = bytearray(right[flipped.name])
    wrong[200:260] = bytes(60)
    (flipped / "executions.parquet").write_bytes(wrong)
    (flipped / "metrics.json").unlink()
    named = study.ask("check", str(flipped / "executions.parquet"), code=2)
    assert "executions.parquet: executions.parquet is damaged:" in named.stderr
    assert "bench retry TRIAL" in named.stderr
    assert study.measure().returncode == 1
    assert {
        trial.name: count for trial, count in zip(study.trials(), study.measurements().values(), strict=True)
    } == {
        cut.name: 2,
        lost.name: 2,
        flipped.name: 1,
    }
    metrics = study.json(f"{flipped.name}/metrics.json")
    assert metrics["status"] == "failed"
    assert "executions.parquet is damaged" in metrics["reason"]
    assert study.bench("retry", flipped.name, "-c", "config/scenarios/try.yaml").returncode == 0
    assert {trial.name: (trial / "executions.parquet").read_bytes() for trial in study.trials()} == right
    (cut / "executions.parquet").write_bytes(right[cut.name][:100])
    (lost / "executions.parquet").unlink()
    study.bench("report", "-c", "config/scenarios/try.yaml", code=0)
    text = (study.root / "reports/try/report.md").read_text()
    assert "Left out: executions.parquet of 2 trials is missing or damaged." in text
    assert "cluster-gantt.svg" in text
    exported = study.bench("export", "perfetto", cut.name, "-c", "config/scenarios/try.yaml", "-o", "t.json", code=2)
    assert "executions.parquet is damaged" in exported.stderr
    assert "bench retry" in exported.stderr
    exported = study.bench(
        "export", "perfetto", flipped.name, "-c", "config/scenarios/try.yaml", "-o", "t.json", code=0
    )
    assert "60 executions. Open it" in exported.stdout


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_a_full_disk_is_said_and_the_trials_complete_when_there_is_space(study: StudyFolder, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("making a small file system needs root")
    try:
        site = study.root / "config" / "sites" / "local.yaml"
        site.write_text(site.read_text() + f"\npaths:\n  results: {small}\n")
        full = {"arrivals": "timestamps", "arrivals_rps": 1.0, "draw": True, "policy": ["fifo", "baseline"]}
        a_scenario(study, generated_requests=20_000, cluster_gpus=8, **full)
        done = study.measure()
        assert done.returncode != 0
        assert "o space left" in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
        study.bench("retry", "-c", "config/scenarios/try.yaml")
        assert study.measure().returncode == 0
        results = small / "try"
        assert json.loads((results / "summary.json").read_text())["ok"] == 2
        for path in results.glob("*/executions.parquet"):
            read_executions(path)
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_workloads_of_other_tools_and_generated_workflows_are_trials(study: StudyFolder) -> None:
    """The instance is one of WfCommons 1.6, of its recipe of Srasearch with 40 tasks."""
    shutil.copy(Path(__file__).parents[1] / "simulation" / "srasearch_of_wfcommons.json", study.root / "tasks.json")
    cluster = {"service": "cluster", "cluster_gpus": 4}
    shapes = {"system_file": SYSTEM, "generated_requests": 20, "generated_workflow": ["chain", "loop"]}
    arrive = {"arrivals": "timestamps", "arrivals_rps": 0.1, "arrivals_burstiness": 0.5, "generated_nodes": 3}
    workloads = [cluster | {"requests_file": "tasks.json", "policy": ["baseline", "heft"]}, cluster | shapes | arrive]
    document = {"scenario": "try", "repetitions": 1, "workloads": workloads}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    study.measure(code=0)
    assert study.json("summary.json")["ok"] == 4
    requests = []
    for trial in study.trials():
        metrics = study.json(f"{trial.name}/metrics.json")
        requests.append(metrics["schedule"]["requests"])
        if metrics["config"]["requests_file"] is not None:
            checked = study.ask("check", str(trial / "executions.parquet"), "--requests", "tasks.json")
            assert (checked.returncode, checked.stdout) == (0, "PASS: 38 executions without conflicts\n")
    assert sorted(requests) == [1, 1, 20, 20]


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_a_simulation_beyond_its_time_limit_is_a_failed_trial(study: StudyFolder) -> None:
    a_scenario(study, generated_requests=100_000, cluster_gpus=2, policy="greedy", limit_s=0.2)
    assert study.measure().returncode == 1
    [trial] = study.trials()
    load = study.json(f"{trial.name}/load.json")
    assert (load["status"], load["category"]) == ("failed", "timeout")
    assert not (trial / "executions.parquet").exists()


def test_a_file_of_another_program_is_no_file_of_executions(tmp_path: Path) -> None:
    path = tmp_path / "executions.parquet"
    path.write_text("PAR1")
    with pytest.raises(ValueError, match=r"executions\.parquet is damaged"):
        read_executions(path)
    with pytest.raises(ValueError, match=r"none\.parquet is missing"):
        read_executions(tmp_path / "none.parquet")


FAILING_MACHINE = """\
gpu_kinds:
  old: {memory_gb: 20, speed: 0.5}
  new: {memory_gb: 40}
hosts:
  - {name: a, kind: old, gpus: 1, network_gb_per_s: 10}
  - {name: b, kind: new, gpus: 1, network_gb_per_s: 10, disk_gb_per_s: 1}
several_models: true
failures: {mtbf_s: 60, repair_s: 20, attempts: 1}
changes:
  - {at_s: 50, remove: [0]}
  - {at_s: 80, add: [0]}
"""


@pytest.mark.sweep
@pytest.mark.covers("C11", "C12", "C13", "C14")
def test_a_machine_file_with_failures_is_a_trial_whose_lost_work_is_counted(study: StudyFolder) -> None:
    (study.root / "machine.yaml").write_text(FAILING_MACHINE)
    a_scenario(study, repetitions=2, arrivals="timestamps", policy=["baseline", "heft"], machine="machine.yaml")
    study.submit(code=0)
    assert len(study.trials()) == 4
    figures = set()
    for trial in study.trials():
        metrics = study.json(f"{trial.name}/metrics.json")
        outcomes = metrics["schedule"]["outcomes"]
        assert outcomes["executions"]["gpu_failed"] > 0
        assert 0 < outcomes["incomplete_requests"] == metrics["counts"]["failed"] < 40
        _, facts, ran = read_executions(trial / "executions.parquet")
        assert (facts.machine.gpus, len(ran.incomplete)) == (2, outcomes["incomplete_requests"])
        figures.add((metrics["config"]["policy"], facts.seed, metrics["schedule"]["makespan_s"]))
        if not trial.name.endswith("r1"):
            continue
        study.ask("check", str(trial / "executions.parquet"), "--config", SYSTEM, "--requests", REQUESTS, code=0)
        study.bench(
            *("simulate", "--machine", "machine.yaml", "--policy", metrics["config"]["policy"], "--log", "log.json"),
            *("--arrivals", "timestamps", "--seed", str(facts.seed), "--config", SYSTEM, "--requests", REQUESTS),
            code=0,
        )
        log = json.loads((study.root / "log.json").read_text())
        assert log == encode(log_of_file(trial / "executions.parquet"))
    assert len(figures) == 4
    assert len({seed for _, seed, _ in figures}) == 2
