"""Measured runs on a server of the standalone API, Seamark's own test server: C2's server is not run here."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from in_process import run, said_by
from standing_study import BENCH

from seamark.load.fetch import fetch
from seamark.services.ephemeral_server import ephemeral_server

ROOT = Path(__file__).resolve().parents[3]
CLUSTERS = ROOT / "config" / "clusters"
FILES = ("--config", f"{CLUSTERS}/system_config.yaml", "--requests", f"{CLUSTERS}/workflow_requests.yaml")
MEASURE = ("simulate", "--execution", "measure", *FILES)
pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a server: `server("--call-ms", 50)` returns its URL; its requests are in `journal`."""
    with ExitStack() as held:
        module = "seamark.testservers.standalone"
        journal = tmp_path / "journal"

        def start(*arguments: object) -> str:
            port = held.enter_context(ephemeral_server(module, "--gpus", 4, "--journal", journal, *arguments))
            return f"http://127.0.0.1:{port}"

        yield start


def journal() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("journal").read_text().splitlines()]


def log(name: str = "execution_log.json") -> dict[str, Any]:
    """Return an execution log, which the checker passes."""
    assert run(["check", name, "--quiet", *FILES]) == (0, "PASS: 3 executions without conflicts\n")
    document: dict[str, Any] = json.loads(Path(name).read_text())
    return document


@pytest.mark.covers("C1", "C2", "C9", "C10", "C12")
def test_the_baseline_downloads_loads_serves_and_calls_in_order_and_measures_what_the_server_took(server):
    times = ("--load-ms", 200, "--switch-ms", 300, "--serve-ms", 50, "--call-ms", 150, "--estimate-s", 0.125)
    url = server(*times)
    words = ["baseline", "--gpus", "1", "--simulate", "true", "--mode", "offline", "--model-server", url, *FILES]
    said = said_by(words)
    assert "Mode: offline, Simulate: true" in said.splitlines()[1]
    assert said.startswith(Path("baseline_scheduler.log").read_text())  # then warnings of a busy machine
    order = [(each["endpoint"], each["request"].get("model")) for each in journal()]
    assert order[:2] == [("download", "llm7b"), ("download", "stable_diffusion")]
    assert [endpoint for endpoint, _ in order[2:5]] == ["estimate"] * 3
    assert [endpoint for endpoint, _ in order[5:]] == ["load", "serve", "call", "call", "load", "serve", "call"]
    document = log("baseline_execution_log.json")
    summary, executions = document["summary"], document["executions"]
    assert (summary["simulate"], summary["total_model_switches"], summary["completed_requests"]) == (True, 1, 2)
    assert {(each["estimated_time"], each["time_source"]) for each in executions} == {(0.125, "model_server")}
    calls = [each for each in journal() if each["endpoint"] == "call"]
    for execution, call in zip(executions, calls, strict=True):
        took_s = (call["ended_ns"] - call["begun_ns"]) / 1e9
        assert took_s <= execution["execution_time"] < took_s + 0.5
    assert 0.25 <= executions[0]["load_time"] < 0.75
    assert [each["load_time"] for each in executions[1:]] == [0.0, 0.0]
    assert 0.35 <= executions[2]["switch_time"] < 0.85
    assert 1.05 <= summary["makespan"] < 2.5


@pytest.mark.covers("C2")
def test_two_gpus_work_side_by_side_and_the_estimate_stands_beside_the_measurement(server):
    url = server("--load-ms", 100, "--call-ms", 300)
    said = said_by([*MEASURE, "--gpus", "2", "--model-server", url])
    document = log()
    first, second = document["executions"][:2]
    assert first["gpu_ids"] != second["gpu_ids"]
    assert first["start_time"] < second["end_time"]
    assert second["start_time"] < first["end_time"]
    assert {each["time_source"] for each in document["executions"]} == {"node_execution_times"}
    rows = [line.split() for line in said.splitlines()[said.splitlines().index("Estimate beside measurement:") :]]
    [image] = [row for row in rows if row[:2] == ["req_C", "image_generation"]]
    assert image[3] == "15.80"
    assert float(image[4]) == pytest.approx(document["executions"][2]["execution_time"], abs=0.006)
    [makespan] = [row for row in rows if row[:1] == ["makespan"]]
    assert makespan[1] == "54.38"


@pytest.mark.covers("C2")
def test_an_error_reply_fails_its_execution_alone_and_says_why(server):
    said = said_by([*MEASURE, "--gpus", "1", "--model-server", server("--error-every", 2)], code=1)
    document = json.loads(Path("execution_log.json").read_text())
    assert [each.get("outcome") for each in document["executions"]] == [None, "call_failed"]
    assert document["summary"]["not_run"] == 1
    assert run(["check", "execution_log.json", "--quiet", *FILES])[0] == 0
    assert "req_C/text_analysis: call_failed: POST /standalone/call/llm7b-1: status 503: fault requested" in said


@pytest.mark.covers("C2")
def test_a_model_that_cannot_be_downloaded_or_loaded_fails_its_nodes_and_no_others(server):
    for endpoint, category in (("download", "setup_failed"), ("load", "call_failed"), ("serve", "call_failed")):
        said = said_by([*MEASURE, "--gpus", "2", "--model-server", server("--refuse", endpoint)], code=1)
        document = json.loads(Path("execution_log.json").read_text())
        failures = Counter(each["outcome"] for each in document["executions"])
        assert failures == {category: 2}, endpoint
        assert f"POST /standalone/{endpoint}: status 500" in said


@pytest.mark.covers("C2")
def test_a_call_that_hangs_ends_with_the_limit_of_calls_and_the_others_are_done(server):
    began_s = time.monotonic()
    url = server("--silent-every", 2)
    code, said = run([*MEASURE, "--gpus", "1", "--call-limit", "0.5s", "--model-server", url])
    assert (code, time.monotonic() - began_s < 10) == (1, True), said
    document = json.loads(Path("execution_log.json").read_text())
    assert [each.get("outcome") for each in document["executions"]] == [None, "timeout"]
    assert 0.5 <= document["executions"][1]["execution_time"] < 1.5


@pytest.mark.covers("C2")
@pytest.mark.parametrize("endpoint", ["load", "call"])
def test_a_server_that_hangs_ends_with_the_limit_of_the_run(server, endpoint):
    url = server("--silent", endpoint)
    began_s = time.monotonic()
    code, said = run([*MEASURE, "--gpus", "2", "--limit", "1s", "--model-server", url])
    assert (code, time.monotonic() - began_s < 10) == (1, True), said
    document = json.loads(Path("execution_log.json").read_text())
    assert [each["outcome"] for each in document["executions"]] == ["timeout", "timeout"]
    assert "limit of 1 s" in said


@pytest.mark.covers("C2")
def test_without_a_server_or_with_another_one_there_is_one_line_and_nothing_is_written(server):
    with ephemeral_server("seamark.testservers.standalone") as port:
        pass
    code, said = run([*MEASURE, "--gpus", "1", "--model-server", f"http://127.0.0.1:{port}"])
    assert (code, said.count("\n")) == (2, 1)
    assert "no answer (POST /standalone/download: Connection refused)" in said
    with ephemeral_server("seamark.testservers.reference") as port:
        code, said = run([*MEASURE, "--gpus", "1", "--model-server", f"http://127.0.0.1:{port}"])
    assert (code, said.count("\n")) == (2, 1)
    assert "has not the standalone API" in said
    assert list(Path().iterdir()) == []


@pytest.mark.covers("C2")
@pytest.mark.parametrize("words", [("simulate", "--execution", "measure"), ("baseline", "--simulate", "true")])
def test_a_log_that_cannot_be_written_costs_no_figure_of_what_was_measured(server, words):
    command = [*BENCH, *words, "--gpus", "1", "--model-server", server(), *FILES]
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "-", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert "File too large" in done.stderr
    assert "Total execution time (makespan): " in done.stdout
    assert "log written to" not in done.stdout
    assert [path.name for path in Path().iterdir()] == ["journal"]


@pytest.mark.covers("C2")
def test_inputs_that_are_no_json_fail_their_node_and_end_in_no_traceback(server):
    requests = "requests: [{request_id: a, workflow_id: text_generation, input_data: {prompt: .nan}}]\n"
    Path("requests.yaml").write_text(requests, encoding="utf-8")
    words = ["simulate", "--execution", "measure", *FILES[:2], "--requests", "requests.yaml", "--gpus", "1"]
    code, said = run([*words, "--model-server", server()])
    assert (code, "a/generate: call_failed: POST /standalone/call/llm7b-1: the inputs are no JSON" in said) == (
        1,
        True,
    )


@pytest.mark.covers("C2")
def test_the_test_server_refuses_what_a_real_one_could_not_do(server):
    port = int(server().rpartition(":")[2])

    def post(path: str, document: object) -> tuple[int, str]:
        reply = fetch("127.0.0.1", port, path, limit_s=5, method="POST", body=json.dumps(document).encode())
        return reply.status, reply.body.decode()

    assert post("/standalone/load", {"model": "m", "gpus": [0]})[0] == 409  # not downloaded
    assert post("/standalone/download", {"model": "m"})[0] == 200
    assert post("/standalone/load", {"model": "m", "gpus": [4]})[0] == 400  # no such GPU
    assert post("/standalone/call/m-1", {})[0] == 404
    assert json.loads(post("/standalone/load", {"model": "m", "gpus": [0, 1]})[1]) == {"id": "m-1"}
    assert post("/standalone/call/m-1", {})[0] == 409  # not served
    assert post("/standalone/serve", {"id": "m-1"})[0] == 200
    assert post("/standalone/call/m-1", {"input": {}})[0] == 200
    assert post("/standalone/load", {"model": "m", "gpus": [1]})[0] == 200
    assert post("/standalone/call/m-1", {})[0] == 404  # another took one of its GPUs
    assert post("/standalone/unload", {})[0] == 404
    assert post("/standalone/serve", [])[0] == 400
