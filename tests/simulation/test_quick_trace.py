"""bench simulate --trace: the schedule of the command, as Perfetto reads it."""

import gzip
import json
from pathlib import Path

import pytest
from in_process import said_by

CLUSTERS = Path(__file__).resolve().parents[2] / "config" / "clusters"
FILES = ["--config", str(CLUSTERS / "system_config.yaml"), "--requests", str(CLUSTERS / "workflow_requests.yaml")]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.covers("C2", "C12")
def test_slices_of_a_trace_last_as_long_as_the_log_says_and_are_on_its_gpus():
    said = said_by(["simulate", "--gpus", "2", *FILES, "--trace", "trace.json.gz"])
    assert "Trace: trace.json.gz." in said
    log = json.loads(Path("execution_log.json").read_text())["executions"]
    events = json.loads(gzip.decompress(Path("trace.json.gz").read_bytes()))["traceEvents"]
    tracks = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    slices = {
        (tracks[each["tid"]], each["cat"], each["args"]["request"], each["args"]["node"]): each["dur"] / 1e6
        for each in events
        if each["ph"] == "X"
    }
    wanted = {}
    for each in log:
        about = (each["request_id"], each["node_id"])
        wanted[(f"GPU {each['gpu_id']}", "execution", *about)] = each["end_time"] - each["start_time"]
        for kind in ("load", "switch"):
            if each[f"{kind}_time"]:
                wanted[(f"GPU {each['gpu_id']}", kind, *about)] = each[f"{kind}_time"]
    assert slices == pytest.approx(wanted)
    assert any(kind == "switch" for _, kind, *_ in slices)


@pytest.mark.covers("C2")
def test_each_of_several_policies_has_a_trace_of_its_own():
    said = said_by(["simulate", "--gpus", "1", "--policy", "baseline,heft", *FILES, "--trace", "trace.json"])
    assert "traces: trace-POLICY.json" in said
    assert sorted(path.name for path in Path().glob("trace*")) == ["trace-baseline.json", "trace-heft.json"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (".", "--trace .: a folder. Name a file in it, as trace.json.gz."),
        ("missing/t.json", "--trace missing/t.json: no file can be written in missing"),
        ("execution_log.json", "--trace execution_log.json: is the file of --log. Name another"),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_before_anything_is_simulated(given, words):
    said = said_by(["simulate", "--gpus", "1", *FILES, "--trace", given], code=2)
    assert words in said
    assert not list(Path().iterdir())
