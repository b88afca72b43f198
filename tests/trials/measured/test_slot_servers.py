"""Measured runs on reference servers that are started and stopped on slots: switches, deaths, signals, leases."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import eventually
from standing_study import BENCH, StandingStudy, kill, standing_study

from seamark.services.supervisor.node_locks import try_lock

pytestmark = pytest.mark.services
FILES = ("--config", "config/clusters/system_config.yaml", "--requests", "config/clusters/workflow_requests.yaml")
MEASURE = ("simulate", "--execution", "measure", "--servers", "servers.yaml", *FILES)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[StandingStudy]:
    with standing_study(tmp_path / "study") as study:
        servers(study)
        yield study


def servers(study: StandingStudy, site: str = "local", llm: Any = None, image: Any = None) -> None:
    """Write the file of servers; a reply of the reference server takes ttft_ms + (tokens - 1) * gap_ms."""
    models = {
        "llm7b": {"service": "known", "settings": {"ttft_ms": 20, "gap_ms": 20, **(llm or {})}},
        "stable_diffusion": {"service": "known", "settings": {"ttft_ms": 300, **(image or {})}},
    }
    (study.root / "servers.yaml").write_text(yaml.safe_dump({"site": site, "models": models}), encoding="utf-8")


def log(study: StandingStudy) -> dict[str, Any]:
    """Return the execution log, which the checker passes."""
    study.ask("check", "execution_log.json", *FILES, code=0)
    document: dict[str, Any] = json.loads((study.root / "execution_log.json").read_text())
    return document


def begun(study: StandingStudy, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*BENCH, *MEASURE, *words], cwd=study.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal, as a measured run has from before it asks for its lock."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(mask >> (number - 1) & 1)


def pid_of(study: StandingStudy, name: str) -> int:
    """Return the process of a server that answers, 0 until it does."""
    path = study.folder(name) / "endpoint.json"
    return int(json.loads(path.read_text())["server_pid"]) if path.exists() else 0


@pytest.mark.covers("C2", "C7", "C12")
def test_the_sample_runs_on_two_real_servers_with_a_real_switch_and_leaves_none(study: StandingStudy) -> None:
    done = study.bench(*MEASURE, "--gpus", "2", code=0)
    assert study.processes() == []
    document = log(study)
    summary, executions = document["summary"], {each["node_id"]: each for each in document["executions"]}
    assert (summary["simulate"], summary["total_cold_loads"], summary["total_model_switches"]) == (True, 2, 1)
    generate, text, image = (executions[name] for name in ("generate", "text_analysis", "image_generation"))
    assert (generate["gpu_ids"], text["gpu_ids"]) == ([0], [1])
    assert all(each["start_time"] - each["load_time"] < 0.5 for each in (generate, text))  # both start at once
    for each, tokens in ((generate, 100), (text, 50)):
        least_s = 0.02 + (tokens - 1) * 0.02
        assert least_s <= each["execution_time"] < least_s + 1.5
        assert each["load_time"] > 0.05
    assert image["switch_time"] > 0.05
    assert 0.3 <= image["execution_time"] < 1.8
    assert image["ready_time"] == text["end_time"]
    started = {path.name: json.loads((path / "deployment.json").read_text()) for path in study.folder("").iterdir()}
    assert len(started) == 3
    assert all(each["status"] == "ok" for each in started.values())
    switched = started[f"measure-llm7b-gpu{image['gpu_id']}-1"]
    assert switched["ended"]["why"] == "switch"
    assert switched["ended"]["reason"] == "A server of another model took its GPUs."
    assert "requests" in (study.folder(f"measure-stable_diffusion-gpu{image['gpu_id']}-1") / "server.log").read_text()
    assert "Estimate beside measurement:" in done.stdout


def test_a_measured_run_begins_after_the_load_of_this_node_has_ended(
    study: StandingStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(study.root))
    load = try_lock("load.lock")
    assert load is not None
    with begun(study, "--gpus", "2") as run:
        try:
            assert eventually(lambda: catches(run.pid, signal.SIGHUP), 60)
            time.sleep(0.5)
            assert run.poll() is None
            assert not study.folder("").exists(), "a server was started beside the load"
        finally:
            load.close()  # else the run waits for ever
        _, error = run.communicate(timeout=120)
    assert run.returncode == 0, error
    assert len(log(study)["executions"]) == 3
    lock = try_lock("load.lock")
    assert lock is not None, "the lock outlives the run"
    lock.close()


@pytest.mark.covers("C2", "E-SVR06")
def test_kill_9_of_a_server_in_mid_call_fails_its_execution_the_rest_is_done_and_nothing_is_left(
    study: StandingStudy,
) -> None:
    servers(study, llm={"gap_ms": 60})
    asked = [("a", "multimodal_workflow", 50), ("b", "text_generation", 100), ("c", "text_generation", 10)]
    node = {"multimodal_workflow": "text_analysis", "text_generation": "generate"}
    requests = [
        {"request_id": name, "workflow_id": flow, "node_configs": {node[flow]: {"max_length": length}}}
        for name, flow, length in asked
    ]
    (study.root / FILES[3]).write_text(json.dumps({"requests": requests}), encoding="utf-8")
    run = begun(study, "--gpus", "2")
    assert eventually(lambda: pid_of(study, "measure-llm7b-gpu0-1"), 30)
    time.sleep(0.5)  # its call takes 3 s, and that of the other server 6 s
    kill(pid_of(study, "measure-llm7b-gpu0-1"))
    said, errors = run.communicate(timeout=60)
    assert run.returncode == 1, errors
    assert study.processes() == []
    document = log(study)
    outcomes = {(each["request_id"], each["node_id"]): each.get("outcome") for each in document["executions"]}
    assert outcomes == {("a", "text_analysis"): "server_died", ("b", "generate"): None, ("c", "generate"): None}
    summary = document["summary"]
    assert (sum(summary["outcomes"].values()), summary["not_run"], summary["completed_requests"]) == (1, 1, 2)
    again = next(each for each in document["executions"] if each["request_id"] == "c")
    assert (again["gpu_id"], again["load_time"] > 0.05) == (0, True)
    assert "a/text_analysis: server_died: " in errors
    assert "  Nodes never run: 1; requests not completed: 1" in said


@pytest.mark.covers("C2", "E-SVR06")
@pytest.mark.parametrize("when", [pytest.param("starts", marks=pytest.mark.sweep), "serves"])
def test_ctrl_c_ends_all_servers_and_writes_no_log(study: StandingStudy, when: str) -> None:
    servers(study, llm={"ttft_ms": 60_000})
    run = begun(study, "--gpus", "2")
    assert eventually(lambda: (study.folder("measure-llm7b-gpu1-1") / ".keeper").exists(), 30)
    if when == "serves":
        assert eventually(lambda: pid_of(study, "measure-llm7b-gpu0-1") and pid_of(study, "measure-llm7b-gpu1-1"), 30)
    began_s = time.monotonic()
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, time.monotonic() - began_s < 20) == (130, True), errors
    assert "all servers that were started have ended, no log was written" in errors
    assert study.processes() == []
    assert not (study.root / "execution_log.json").exists()


@pytest.mark.covers("C2", "E-SVR06")
def test_after_kill_9_of_the_run_itself_its_servers_end_with_their_lease(study: StandingStudy) -> None:
    study.site("short", lease_s=1.5)
    servers(study, site="short", llm={"ttft_ms": 60_000})
    run = begun(study, "--gpus", "1")
    assert eventually(lambda: pid_of(study, "measure-llm7b-gpu0-1"), 30)
    time.sleep(2)  # longer than the lease, which is renewed
    assert Path(f"/proc/{pid_of(study, 'measure-llm7b-gpu0-1')}").exists()
    run.kill()
    run.communicate()
    assert eventually(lambda: study.processes() == [], 20)


@pytest.mark.sweep
@pytest.mark.covers("C2")
def test_a_server_that_hangs_fails_its_call_and_is_ended(study: StandingStudy) -> None:
    servers(study, llm={"silent_every": 2, "gap_ms": 0})
    study.bench(*MEASURE, "--gpus", "1", "--call-limit", "1s", code=1)
    document = log(study)
    assert [each.get("outcome") for each in document["executions"]] == [None, "timeout"]
    assert study.processes() == []


@pytest.mark.sweep
@pytest.mark.covers("C2")
def test_a_server_that_never_starts_fails_its_nodes_and_no_others(study: StandingStudy) -> None:
    servers(study, llm={"gap_ms": 0}, image={"truth": "/no/such/folder/truth"})
    done = study.bench(*MEASURE, "--gpus", "1", code=1)
    document = log(study)
    assert [each.get("outcome") for each in document["executions"]] == [None, None, "server_never_healthy"]
    assert "No such file or directory" in done.stderr
    assert study.processes() == []
