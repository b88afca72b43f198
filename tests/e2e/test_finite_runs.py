"""Runs of a finite load on the reference server: killed after half, the rest alone is sent, and it is one trial."""

import json
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from processes import until
from study_folder import StudyFolder

from seamark.load.workers.work_list import items_in
from seamark.testservers.truth import read_truth

pytestmark = pytest.mark.e2e

ITEMS = 500
RECIPE = """\
extends: known.yaml
name: items
load: finite
limit_s: 120
typical_load_s: 8
settings:
  items: {type: int, role: workload, default: 500, minimum: 1, help: Number of prompts.}
"""


def a_study(study: StudyFolder, **workload: object) -> None:
    (study.root / "config/services/items.yaml").write_text(RECIPE)
    (study.root / "config/scenarios/try.yaml").write_text(
        json.dumps(
            {
                "scenario": "try",
                "repetitions": 1,
                "workload": {"service": "items", "ttft_ms": 20, "gen_tokens": 4, "concurrency": 2, **workload},
            }
        )
    )


def kill_all(study: StudyFolder) -> None:
    """kill -9 of the whole run, as when a node goes down."""
    processes = study.processes()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def sleeping(study: StudyFolder) -> list[psutil.Process]:
    """Return the live processes that a command of the study has started."""
    return study.processes(lambda process: process.name() == "sleep")


def done(study: StudyFolder) -> int:
    segments = list(study.results.glob("*/.sessions/*/worker-*.samples"))
    return sum(int(items_in(path).sum()) for path in segments if path.stat().st_size > 100)


@pytest.mark.sweep
def test_a_load_that_was_killed_after_half_sends_the_rest_alone(study: StudyFolder, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    a_study(study, truth=str(truth), keep_replies=True)
    plan = study.ask("plan", "-c", "config/scenarios/try.yaml")
    assert "32 s of load" in plan.stdout, plan.stdout + plan.stderr
    run = study.start()
    before = until(lambda: (count := done(study)) > ITEMS / 2 and count)
    kill_all(study)
    run.wait(10)
    [folder] = study.results.glob("items-*")
    assert not (folder / "load.json").exists()
    study.measure(code=0)
    samples = pq.read_table(folder / "samples.parquet")
    assert sorted(samples["index"].to_pylist()) == list(range(ITEMS))
    replies = pq.read_table(folder / "replies.parquet")
    assert sorted(replies["index"].to_pylist()) == list(range(ITEMS)), "an answer for each item, from both sessions"
    assert all(b"[DONE]" in reply for reply in replies["reply"].to_pylist())
    load, metrics = study.json(f"{folder.name}/load.json"), study.json(f"{folder.name}/metrics.json")
    first, second = load["sessions"]
    assert first["items"] >= before
    assert first["items"] + second["items"] == ITEMS == load["items"]
    assert second["offset_s"] == first["length_s"]
    assert load["duration_s"] == pytest.approx(first["length_s"] + second["length_s"])
    assert metrics["counts"]["ok"] == ITEMS == load["replies"]
    assert "resumed" in [reason["code"] for reason in metrics["reasons"]]
    assert metrics["throughput"]["value"] == pytest.approx(4 * ITEMS / load["duration_s"], rel=0.01)
    assert study.measurements() == {folder.name: 1}
    assert not (folder / ".sessions").exists()
    seen = read_truth(truth)
    read_unix_ns = seen.read_ns[seen.tokens == 4] + (time.time_ns() - time.monotonic_ns())  # not those of the check
    of_load = read_unix_ns > second["epoch_unix_ns"] - 1_000_000
    assert of_load.sum() == second["items"], "the second server saw its first requests, and the rest"
    assert not of_load.all()
    times_s = pq.read_table(folder / "telemetry.parquet")["at_s"].to_pylist()
    assert max(times_s) <= load["duration_s"] + 0.01
    written = (folder / "samples.parquet").stat().st_mtime_ns
    assert study.measure().returncode == 0
    assert (folder / "samples.parquet").stat().st_mtime_ns == written
    assert f"{load['duration_s'] * 1.25:.0f} s of load" in study.ask("plan", "-c", "config/scenarios/try.yaml").stdout


@pytest.mark.sweep
def test_items_that_are_left_at_the_time_limit_fail_the_trial_as_timeout(study: StudyFolder) -> None:
    a_study(study, limit_s=1.0)
    assert study.measure().returncode == 1
    [folder] = study.results.glob("items-*")
    load = study.json(f"{folder.name}/load.json")
    assert (load["status"], load["category"]) == ("failed", "timeout")
    assert "of 500 items were not done by the time limit. Raise limit_s" in load["reason"]
    assert not (folder / ".sessions").exists()


@pytest.mark.sweep
def test_a_command_whose_worker_is_killed_leaves_no_process(study: StudyFolder) -> None:
    script = "echo kept; setsid sleep 600 & sleep 600"
    workload = {"service": "command", "limit_s": 300, "command": {"argv": ["sh", "-c", script]}}
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    run = study.start()

    until(lambda: len(sleeping(study)) == 2)
    shell = next(parent for process in sleeping(study) if (parent := process.parent()) and parent.name() == "sh")
    worker = shell.parent()
    assert worker is not None
    worker.kill()
    assert run.wait(60) == 1
    [folder] = study.results.glob("command-*")
    assert study.json(f"{folder.name}/load.json")["category"] == "client_died"
    assert sleeping(study) == []


def test_a_command_is_measured_once_and_keeps_its_output(study: StudyFolder) -> None:
    command = {"argv": ["sh", "-c", "echo rate $RATE; echo a > a.txt"], "keep": ["*.txt"]}
    command["environment"] = {"RATE": [2.5, 3.5]}
    command["figures"] = {"rate": {"regex": "rate ([0-9.]+)"}}
    workload = {"service": "command", "command": command, "slos": ["run_time_s <= 30", "rate <= 3"]}
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    study.measure(code=0)
    for folder in study.trials():
        metrics = study.json(f"{folder.name}/metrics.json")
        rate = metrics["quality"]["rate"]
        assert {slo["metric"]: slo["met"] for slo in metrics["slos"]} == {"run_time_s": True, "rate": rate < 3}
        suspect = {each["code"] for each in metrics["reasons"] if each["severity"] == "suspect"} - {"busy_elsewhere"}
        assert suspect == (set() if rate < 3 else {"quality_floor"}), metrics["reasons"]
        assert study.json(f"{folder.name}/load.json")["others_before"] is not None, (
            "it may be too short for telemetry"
        )
        assert rate == metrics["config"]["command.environment.RATE"]
        assert metrics["quality"]["run_time_s"] == pytest.approx(metrics["latency_ms"]["mean"] / 1e3)
        assert (folder / "files" / "a.txt").read_text() == "a\n"
        assert (folder / "files" / "stdout").read_text() == f"rate {rate}\n"
    factors = [row["factors"] for row in study.json("summary.json")["treatments"]]
    assert sorted(each["command.environment.RATE"] for each in factors) == [2.5, 3.5]
    assert study.measure().returncode == 0
    assert set(study.measurements().values()) == {1}


@pytest.mark.sweep
def test_ctrl_c_leaves_no_process_of_a_command(study: StudyFolder) -> None:
    script = "setsid sleep 600 & sleep 600; echo done"
    workload = {"service": "command", "limit_s": 300, "command": {"argv": ["sh", "-c", script]}}
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    run = study.start()

    until(lambda: len(sleeping(study)) == 2)
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130
    assert sleeping(study) == []


@pytest.mark.sweep
def test_commands_with_signs_that_figures_read_as_formulas_are_reported(study: StudyFolder) -> None:
    commands = [
        {"name": "one", "argv": ["sh", "-c", 'echo "$HOME" "$PATH" $$ > /dev/null; echo v 4']},
        {"name": "two $x$ %s", "argv": ["sh", "-c", "echo v 4"]},
    ]
    workload = {"service": "command", "command": commands}
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    done = study.submit(code=0)
    assert "argv" not in done.stdout, "names stand for commands"
    assert "run time s" in done.stdout
    assert "two $x$ %s" in (study.root / "reports/try/index.html").read_text()
