"""AIPerf as the load of a trial: its command line, its records as samples, and a program that stands for it.

Records are written after those of aiperf 0.13.0, cut to what is read.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_harness import LOAD, Recorded, flags, run, target

from seamark.drivers.harness.aiperf import RECORDS, AiPerf
from seamark.drivers.harness.tool import CALL, PROMPTS, NativeRequest, record
from seamark.model.load_profile import LoadProfile
from seamark.model.sample import Failure
from seamark.model.service import Value

CONSTANT: dict[str, Value] = {"pattern": "constant", "rate_rps": 4.0}
MS = 1_000_000


def row(begun_ns: int, number: int, let_go_ms: float, sent_ms: float, **more: Any) -> dict[str, Any]:
    """Return a record; a good one has a first token after 250 ms, a last one after 500 ms, and ends after 600 ms."""
    good: dict[str, Any] = {
        "request_latency": {"value": 500.0, "unit": "ms"},
        "time_to_first_token": {"value": 250.0, "unit": "ms"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
    }
    stamps = {"request_start_ns": sent_ms, "request_end_ns": sent_ms + 600, "credit_issued_ns": let_go_ms}
    times = {name: begun_ns + round(at_ms * MS) for name, at_ms in stamps.items()}
    metrics = {"error_isl": {"value": 24, "unit": "tokens"}} if "error" in more else good
    return {"metadata": {"session_num": number, "benchmark_phase": "profiling", **times}, "metrics": metrics, **more}


@pytest.mark.covers("D8", "D9")
def test_a_request_of_a_constant_rate_was_due_by_the_rate_though_the_limit_of_concurrency_held_it(tmp_path: Path):
    tool = AiPerf(target(tmp_path, **CONSTANT))
    begun = tool.begun_ns
    refused = {"code": 503, "type": "Service Unavailable", "message": "full"}
    rows = [row(begun, 2, 1750, 1751, error=refused), row(begun, 0, 1003, 1004), row(begun, 1, 1250, 1251)]
    assert tool.requests(rows) == [
        NativeRequest(sent_s=1.751, due_s=1.5, end_s=2.351, failed="error '503'"),
        NativeRequest(sent_s=1.004, due_s=1.0, first_s=1.254, end_s=1.504, tokens=5),
        NativeRequest(sent_s=1.251, due_s=1.25, first_s=1.501, end_s=1.751, tokens=5),
    ]


@pytest.mark.covers("D8")
def test_a_request_of_a_closed_loop_has_no_due_time_of_its_own(tmp_path: Path):
    tool = AiPerf(target(tmp_path, pattern="closed", requests=2))
    assert [request.due_s for request in tool.requests([row(tool.begun_ns, 0, 1003, 1004)])] == [None]


@pytest.mark.covers("D8")
def test_samples_of_a_constant_rate_are_as_many_intervals_apart_and_last_as_long_as_planned(tmp_path: Path):
    settings = CONSTANT | {"rate_rps": 3.0, "duration_s": 1.5}
    tool, found = AiPerf(target(tmp_path, **settings)), Recorded()
    rows = [row(tool.begun_ns, number, 7 + number * 1e3 / 3, 8 + number * 1e3 / 3) for number in range(6)]
    record(tool.requests(rows), found, LoadProfile.of(LOAD | settings), begun_s=0.0)
    assert [sample["due_ns"] for sample in found.rows] == [round(number * 1e6 / 3) * 1000 for number in range(6)]
    assert [sample["sent_ns"] - sample["due_ns"] for sample in found.rows] == [MS] * 6
    assert found.ran_out is False


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        ({"code": 404, "type": "Not Found", "message": "a\nb"}, "error '404'"),
        ({"type": "TimeoutError", "message": "TimeoutError()"}, "TimeoutError: TimeoutError()"),
        ({"type": "ClientPayloadError", "message": "Not\nall"}, "ClientPayloadError: Not all"),
        ({"code": 499, "type": "RequestCancellationError", "message": "Cut"}, "RequestCancellationError: Cut"),
    ],
)
def test_a_failure_is_a_status_of_the_server_or_an_exception_in_one_line(
    error: dict[str, Any], failed: str, tmp_path: Path
):
    tool = AiPerf(target(tmp_path, **CONSTANT))
    assert [request.failed for request in tool.requests([row(0, 0, 1, 1, error=error)])] == [failed]


@pytest.mark.covers("D9")
def test_a_record_may_contain_a_line_separator_and_the_last_may_be_torn(tmp_path: Path):
    tool = AiPerf(target(tmp_path, **CONSTANT))
    assert tool.read(tmp_path) is None
    (tmp_path / RECORDS).write_text('{"error": "a\u2028b"}\n{"error": null}\n{"err', encoding="utf-8")
    assert tool.read(tmp_path) == [{"error": "a\u2028b"}, {"error": None}]


@pytest.mark.covers("D8")
def test_rate_and_concurrency_are_flags_of_aiperf_and_prompts_a_file(tmp_path: Path):
    tool = AiPerf(
        target(tmp_path, **CONSTANT, gen_tokens_shape="uniform", gen_tokens_spread=0.5, served_model="mine")
    )
    given = flags(tool.command(tmp_path, 3))
    assert (given["--request-rate"], given["--arrival-pattern"], given["--concurrency"]) == ("4.0", "constant", "7")
    assert (given["--request-count"], given["--url"]) == ("6", "http://127.0.0.1:8123")
    assert (given["--model"], given["--endpoint-type"], given["--artifact-dir"]) == (
        "mine",
        "completions",
        f"{tmp_path}",
    )
    assert json.loads(given["--extra-inputs"]) == {"ignore_eos": True, "temperature": 0.0}
    rows = [json.loads(line) for line in (tmp_path / PROMPTS).read_text().splitlines()]
    assert [len(row["text"].split()) for row in rows] == [24] * 6
    assert len({row["output_length"] for row in rows}) > 1

    closed = AiPerf(target(tmp_path, pattern="closed", requests=9, endpoint="chat", model="/m"))
    work = tmp_path / "closed"
    work.mkdir()
    argv = closed.command(work, 3)
    assert flags(argv)["--tokenizer"] == str(work / "tokenizer"), "no model is looked for on the network"
    assert "--request-rate" not in argv
    assert (flags(argv)["--request-count"], flags(argv)["--endpoint-type"]) == ("9", "chat")


TOOL = """\
#!{python}
import json, os, sys, time
words = sys.argv[1:]
begin_ns = time.time_ns()
time.sleep(0.1)
with open(os.path.join(words[words.index("--artifact-dir") + 1], "profile_export.jsonl"), "w") as file:
    for said in json.loads({records!r}):
        for name in ("request_start_ns", "request_end_ns", "credit_issued_ns"):
            said["metadata"][name] += begin_ns
        file.write(json.dumps(said) + "\\n")
with open("profile_export_aiperf.json", "w") as file:
    json.dump({{"begin_ns": begin_ns, "kept": os.environ["AIPERF_DATASET_MMAP_BASE_PATH"] == os.getcwd()}}, file)
sys.exit(1)
"""


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.covers("D8", "D9")
def test_aiperf_is_judged_by_its_records_and_its_files_are_kept(tmp_path: Path):
    error = {"type": "ServerDisconnectedError", "message": "ServerDisconnectedError()"}
    rows = [row(0, 0, 0, 1), row(0, 1, 500, 500, error=error), row(0, 2, 502, 503)]
    program = TOOL.format(python=sys.executable, records=json.dumps(rows))
    done = run(tmp_path, program, tool="aiperf", **CONSTANT)
    assert done.failure is None, "the exit code of the tool is no failure"
    samples = done.samples()
    assert samples["failure"].tolist() == [Failure.NONE, Failure.RESET, Failure.NONE]
    assert samples["units"].tolist() == [5, 0, 5]
    assert (samples["due_ns"] // 1000).tolist() == [0, 250_000, 500_000]
    assert ((samples["last_ns"] - samples["sent_ns"]) // MS).tolist() == [500, 600, 500]
    files = tmp_path / "parts" / "files"
    said = json.loads((files / "profile_export_aiperf.json").read_text())
    assert said["kept"]
    assert len((files / RECORDS).read_text().splitlines()) == 3
    assert json.loads((files / CALL).read_text())["code"] == 1
    assert not list(tmp_path.glob("aiperf-*")), "the tool's own folder is gone"
