"""The acceptance numbers of the workflow simulation, on the shipped files and through the commands."""

import json
from pathlib import Path

import pytest
import yaml
from in_process import run, said_by

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ROOT / "config" / "clusters" / "system_config.yaml"
REQUESTS = ROOT / "config" / "clusters" / "workflow_requests.yaml"
FILES = ("--config", str(SYSTEM), "--requests", str(REQUESTS))
LOG = "baseline_execution_log.json"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def baseline(*words, files=FILES):
    """Run bench baseline; return what it prints and the execution log."""
    said = said_by(["baseline", *words, *files])
    return said, json.loads(Path(LOG).read_text(encoding="utf-8"))


def requests_file(*requests):
    """Write requests of id, workflow, second and times; return the options that name the files."""
    entries = [
        {
            "request_id": name,
            "timestamp": f"2024-01-01T10:00:{second:02d}",
            "workflow_id": workflow,
            "node_execution_times": times,
        }
        for name, workflow, second, times in requests
    ]
    Path("asked.json").write_text(json.dumps({"requests": entries}), encoding="utf-8")
    return (*FILES[:3], "asked.json")


def large_system():
    """Write the shipped system with a workflow of one llm30b node."""
    document = yaml.safe_load(SYSTEM.read_text(encoding="utf-8"))
    document["workflows"]["large"] = {"nodes": [{"id": "think", "model": "llm30b"}]}
    Path("system.json").write_text(json.dumps(document), encoding="utf-8")
    return "system.json"


@pytest.mark.covers("C1", "C4b", "C7", "C11", "C14")
@pytest.mark.parametrize(
    ("cold", "gpus", "mode", "makespan_s", "switches"),
    [
        ("charged", 1, "offline", 62.875, 1),
        ("charged", 1, "online", 84.375, 1),
        ("charged", 2, "offline", 54.375, 1),
        ("charged", 2, "online", 87.0, 0),
        ("free", 1, "offline", 32.875, 1),
        ("free", 1, "online", 84.375, 1),
        ("free", 2, "offline", 24.375, 1),
        ("free", 2, "online", 81.0, 0),
    ],
)
def test_the_sample_has_the_makespans_of_the_table(cold, gpus, mode, makespan_s, switches):
    _, log = baseline("--gpus", str(gpus), "--simulate", "false", "--mode", mode, "--cold-load", cold)
    assert (log["summary"]["makespan"], log["summary"]["total_model_switches"]) == (makespan_s, switches)
    assert run(["check", "--quiet", *FILES]) == (0, "PASS: 3 executions without conflicts\n")


@pytest.mark.covers("C9", "C10", "C12")
def test_one_request_gives_the_sample_lines_verbatim():
    files = requests_file(("req_B", "text_generation", 0, {"generate": 8.5}))
    said, log = baseline("--gpus", "4", "--cold-load", "free", files=files)
    assert said.splitlines() == [
        "2024-01-01 10:00:00 - Starting baseline scheduler with 1 requests",
        "2024-01-01 10:00:00 - Mode: offline, Simulate: false",
        "2024-01-01 10:00:00 - Available GPUs: [0, 1, 2, 3]",
        "2024-01-01 10:00:00 - Starting discrete event simulation...",
        "[0.00s] Processing request req_B (workflow: text_generation)",
        "[0.00s] Scheduled node generate of request req_B on GPU(s) [0] (start: 0.00s, end: 8.50s)",
        "[8.50s] Completed node generate of request req_B on GPU(s) [0]",
        "[8.50s] Request req_B completed",
        "Simulation completed at time 8.50s",
        "",
        "=" * 60,
        "EXECUTION METRICS",
        "=" * 60,
        "Total execution time (makespan): 8.50 seconds",
        "",
        "Request completion times:",
        "  Average: 8.50s",
        "  Median: 8.50s",
        "  P99: 8.50s",
        "  Min: 8.50s",
        "  Max: 8.50s",
        "",
        "GPU utilization:",
        "  GPU 0: 1 executions, 8.50s busy time (100.0% utilization)",
        "  GPU 1: 0 executions, 0.00s busy time (0.0% utilization)",
        "  GPU 2: 0 executions, 0.00s busy time (0.0% utilization)",
        "  GPU 3: 0 executions, 0.00s busy time (0.0% utilization)",
        "",
        "Model execution counts:",
        "  llm7b: 1 executions",
        "",
        "Detailed execution log written to baseline_execution_log.json",
    ]
    assert Path("baseline_scheduler.log").read_text(encoding="utf-8") == said
    [execution] = log["executions"]
    assert execution["execution_time"] == 8.5
    summary = ("total_requests", "total_nodes_executed", "mode", "simulate", "gpus", "makespan")
    assert [log["summary"][key] for key in summary] == [1, 1, "offline", False, [0, 1, 2, 3], 8.5]


@pytest.mark.covers("C1")
def test_files_in_the_working_folder_are_the_inputs_where_none_are_named():
    words = ("--gpus", "4", "--simulate", "false", "--mode", "offline")
    named = baseline(*words)
    for path in (SYSTEM, REQUESTS):
        Path(path.name).write_bytes(path.read_bytes())
    assert baseline(*words, files=()) == named
    Path(REQUESTS.name).unlink()
    code, said = run(["baseline", *words])
    assert (code, len(said.splitlines())) == (2, 1), said


@pytest.mark.covers("C7", "C9", "C11", "C12")
def test_switches_and_completion_times_on_one_gpu():
    said, log = baseline("--gpus", "1")
    change = "Scheduling model switch on GPU(s) [0] from llm7b to stable_diffusion (switch time: 3.38s)"
    assert change in said.splitlines()
    assert [each["switch_time"] for each in log["executions"]] == [0.0, 0.0, 3.375]
    assert [each["load_time"] for each in log["executions"]] == [30.0, 0.0, 0.0]
    assert [each["waiting_time"] for each in log["executions"]] == [0.0, 38.5, 0.0]
    assert "  Average: 50.69s" in said
    assert "  P99: 62.63s" in said


@pytest.mark.covers("C2", "C6", "C11")
def test_a_model_of_four_gpus_waits_for_all_of_them_and_uses_them_all():
    files = requests_file(
        ("r1", "text_generation", 0, {"generate": 8.5}),
        ("r2", "large", 1, {"think": 20}),
        ("r3", "text_generation", 2, {"generate": 8.5}),
    )
    said, log = baseline("--gpus", "4", "--mode", "online", files=("--config", large_system(), *files[2:]))
    [large] = [each for each in log["executions"] if each["request_id"] == "r2"]
    assert (large["gpu_ids"], large["start_time"], large["end_time"]) == ([0, 1, 2, 3], 47.125, 67.125)
    assert large["switch_time"] == 6.625
    for gpu in (2, 3):
        assert f"  GPU {gpu}: 1 executions, 26.62s busy time (39.7% utilization)" in said


@pytest.mark.covers("C1", "C6")
def test_a_model_that_no_window_holds_is_refused_before_anything_is_written():
    files = requests_file(("r1", "large", 0, {}))
    said = said_by(["baseline", "--gpus", "2", "--config", large_system(), *files[2:]], code=2)
    assert said.startswith("--gpus 2: the model 'llm30b' needs 4 consecutive GPUs")
    assert not Path(LOG).exists()


@pytest.mark.covers("C5", "C9")
def test_six_equal_arrivals_are_served_in_the_order_of_the_file():
    files = requests_file(*((f"r{i}", "text_generation", 0, {"generate": 1}) for i in range(1, 7)))
    for mode in ("offline", "online"):
        said, _ = baseline("--gpus", "2", "--mode", mode, files=files)
        order = [line.split()[3] for line in said.splitlines() if "Processing request" in line]
        assert order == [f"r{i}" for i in range(1, 7)]


@pytest.mark.covers("C12", "C14")
def test_equal_inputs_give_equal_bytes():
    texts = []
    for _ in range(2):
        baseline("--gpus", "2", "--mode", "online")
        texts.append([Path(name).read_bytes() for name in (LOG, "baseline_scheduler.log")])
    assert texts[0] == texts[1]


@pytest.mark.covers("C1", "C3", "C4")
def test_json_and_yaml_of_the_same_content_give_the_same_log():
    _, expected = baseline("--gpus", "2")
    for source, target in ((SYSTEM, "system.yaml"), (REQUESTS, "requests.yml")):  # JSON, whatever the name
        document = yaml.safe_load(source.read_text(encoding="utf-8"))
        Path(target).write_text(json.dumps(document, indent="\t"), encoding="utf-8")
    _, log = baseline("--gpus", "2", files=("--config", "system.yaml", "--requests", "requests.yml"))
    assert log == expected
