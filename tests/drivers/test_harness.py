"""Other tools as the load of a trial: command lines, results as samples, ends of the tool, and what it cannot send.

Native files are written after those of `vllm bench serve --save-detailed` (vLLM 0.32.0) and guidellm 0.8.1 (report
schema 2), cut to what is read.
"""

import importlib
import itertools
import json
import math
import sys
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_environment import environment
from shipped import ROOT as REPOSITORY
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.drivers.harness.guidellm import PROMPTS, GuideLlm
from seamark.drivers.harness.tool import CALL, NATIVE, NativeRequest, failure_of, record, started_s
from seamark.drivers.harness.vllm_bench import VllmBench
from seamark.drivers.openai.prompts import WORDS
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.driver import Target
from seamark.model.harness import HARNESSES, ROOT, harness_of
from seamark.model.load_profile import LoadProfile
from seamark.model.sample import MISSING_NS, Failure
from seamark.model.scenario import Scenario
from seamark.model.service import Value
from seamark.planning.plan import plan
from seamark.services.ephemeral_server import ephemeral_server
from seamark.trials.measure import MeasuredLoad, measure

LOAD: dict[str, Value] = {
    "endpoint": "completions",
    "prompt_len": 24,
    "gen_tokens": 5,
    "pattern": "poisson",
    "rate_rps": 20.0,
    "concurrency": 7,
    "duration_s": 1.0,
    "warmup_s": 0.5,
    "timeout_s": 10.0,
}
VLLM: dict[str, Any] = {
    "request_rate": 20.0,
    "start_times": [100.5, 100.25, 101.0, 101.5],
    "queue_times": [0.125, 0.0, -1e-9, 0.0],
    "ttfts": [0.25, 0.5, 0.0, 0.25],
    "itls": [[0.125, 0.125], [], [], [0.5]],
    "latencies": [0.5, 0.5, 0.0, 0.0],
    "output_lens": [3, 1, 0, 0],
    "errors": ["", "", "Service Unavailable", "Traceback: aiohttp.ClientPayloadError: not all"],
}


def guidellm_row(sent_s: float | None, due_s: float, **more: Any) -> dict[str, Any]:
    """Return a request of guidellm's report; a good one has a first token after 0.25 s and ends after 0.5 s."""
    timings = {"targeted_start": due_s, "request_start": sent_s, "resolve_start": sent_s, "resolve_end": 9.0}
    ends = {"first_token_iteration": None, "request_end": None}
    if sent_s is not None and "error" not in more:
        ends = {"first_token_iteration": sent_s + 0.25, "request_end": sent_s + 0.5}
    return {"info": {"timings": timings | ends, "error": more.pop("error", None)}, **more}


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 2, "guidellm_version": "0.8.1"},
    "benchmarks": [
        {
            "requests": {
                "successful": [guidellm_row(8.25, 8.0, output_tokens=5)],
                "errored": [guidellm_row(8.5, 8.5, error="ReadTimeout('')", output_tokens=None)],
                "incomplete": [guidellm_row(None, 8.75), guidellm_row(8.75, 8.75, output_tokens=2)],
            }
        }
    ],
}


def target(folder: Path, **settings: Value) -> Target:
    return Target(settings={**LOAD, ROOT: "/env", **settings}, data=folder, ports={"main": 8123})


def flags(argv: list[str]) -> dict[str, str]:
    """Return the options of a command line with their values."""
    return {word: value for word, value in pairwise(argv) if word.startswith("--")}


@dataclass
class Recorded:
    """A recorder that keeps the samples."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    began_ns: int = 0
    ran_out: bool = False

    def sample(self, index: int, **row: Any) -> None:
        self.rows.append({"index": index, **row})


@pytest.mark.covers("D8", "D9")
def test_results_of_vllm_bench_are_requests_with_the_wait_for_a_connection_before_them(tmp_path: Path):
    assert VllmBench(target(tmp_path)).requests(VLLM) == [
        NativeRequest(sent_s=100.5, due_s=100.375, first_s=100.75, end_s=101.0, tokens=3),
        NativeRequest(sent_s=100.25, due_s=100.25, first_s=100.75, end_s=100.75, tokens=1),
        NativeRequest(sent_s=101.0, due_s=101.0, end_s=101.0, failed="Service Unavailable"),
        NativeRequest(sent_s=101.5, due_s=101.5, first_s=101.75, end_s=102.25, failed=VLLM["errors"][3]),
    ]
    old = {name: column for name, column in VLLM.items() if name != "queue_times"}
    assert [request.due_s for request in VllmBench(target(tmp_path)).requests(old)] == VLLM["start_times"]


@pytest.mark.covers("D8", "D9")
def test_results_of_guidellm_are_requests_without_those_that_were_never_sent(tmp_path: Path):
    assert GuideLlm(target(tmp_path)).requests(GUIDELLM) == [
        NativeRequest(sent_s=8.25, due_s=8.0, first_s=8.5, end_s=8.75, tokens=5),
        NativeRequest(sent_s=8.5, due_s=8.5, end_s=9.0, failed="ReadTimeout('')"),
        NativeRequest(sent_s=8.75, due_s=8.75, first_s=9.0, end_s=9.25, failed="cancelled"),
    ]


@pytest.mark.parametrize(
    ("said", "failure", "status"),
    [
        ("Service Unavailable", Failure.SERVER_ERROR, 503),
        ("Not Found", Failure.CLIENT_ERROR, 404),
        ("HTTPStatusError(\"Server error '500 Internal Server Error' for url\")", Failure.SERVER_ERROR, 500),
        ("ConnectError('All connection attempts failed')", Failure.CONNECT, 0),
        ("Traceback\naiohttp.client_exceptions.ClientConnectorError: Cannot connect", Failure.CONNECT, 0),
        ("Traceback\naiohttp.client_exceptions.ServerDisconnectedError", Failure.RESET, 0),
        ("ReadTimeout('')", Failure.TIMEOUT, 0),
        ("cancelled", Failure.CANCELLED, 0),
        ("Never received a valid chunk to calculate TTFT.", Failure.EMPTY_REPLY, 0),
        ("", Failure.DRIVER, 0),
    ],
)
def test_what_a_tool_says_of_a_failure_has_a_category(said: str, failure: Failure, status: int):
    assert failure_of(said) == (failure, status)


@pytest.mark.covers("D8")
def test_a_wait_for_a_core_between_both_clocks_does_not_move_the_start_of_a_load():
    waits_s = itertools.chain([0.03, 0.0], itertools.repeat(0.05))
    clock_s = itertools.count(1_000.0)
    read_s: list[float] = []

    def now_s() -> float:
        read_s.append(next(clock_s))
        return read_s[-1]

    assert started_s(now_s, lambda: round((read_s[-1] - 990.0 + next(waits_s)) * 1e9)) == 990.0


def test_samples_begin_with_the_first_request_that_was_due_and_time_out_as_in_loads_of_ours():
    requests = [
        NativeRequest(sent_s=52.5, due_s=52.0, first_s=52.75, end_s=53.0, tokens=4),
        NativeRequest(sent_s=51.0, due_s=51.0 + 1e-7, first_s=54.5, end_s=55.0, tokens=9),
        NativeRequest(sent_s=53.0, due_s=53.0, end_s=53.0, failed="Bad Gateway"),
    ]
    found = Recorded()
    load = LoadProfile.of(LOAD | {"timeout_s": 3.0})
    record(requests, found, load, begun_s=48.0)
    good = {"failure": Failure.NONE, "status": 200}
    late = {"failure": Failure.TIMEOUT, "status": 200}
    bad = {"failure": Failure.SERVER_ERROR, "status": 502}
    second = 10**9
    assert found.rows == [
        {"index": 0, "due_ns": 0, "sent_ns": 0, "first_ns": None, "last_ns": 3 * second, "units": 9, **late},
        {
            "index": 1,
            "due_ns": second,
            "sent_ns": round(1.5 * second),
            "first_ns": round(1.75 * second),
            "last_ns": 2 * second,
            "units": 4,
            **good,
        },
        {"index": 2, "due_ns": 2 * second, "sent_ns": 2 * second, "first_ns": None, "last_ns": 2 * second, "units": 0}
        | bad,
    ]
    assert (found.began_ns, found.ran_out) == (3 * second, True)
    closed = Recorded()
    record(requests, closed, LoadProfile.of(LOAD | {"pattern": "closed", "rate_rps": None}), begun_s=48.0)
    assert [row["due_ns"] == row["sent_ns"] for row in closed.rows] == [True] * 3


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("pattern", "count", "ran_out"), [("constant", 30, False), ("constant", 29, True), ("poisson", 30, True)]
)
def test_a_constant_rate_lasts_as_long_as_planned_and_due_times_are_whole_microseconds(
    pattern: str, count: int, ran_out: bool
):
    first_s = 1_796_046_085.3
    requests = [NativeRequest(sent_s=first_s + number / 20.0, end_s=first_s + 9.0) for number in range(count)]
    found = Recorded()
    record(requests, found, LoadProfile.of(LOAD | {"pattern": pattern}), begun_s=first_s)
    assert [row["due_ns"] for row in found.rows] == [number * 50_000_000 for number in range(count)]
    assert found.ran_out == ran_out


@pytest.mark.covers("D8")
def test_pattern_rate_concurrency_and_lengths_are_flags_of_vllm_bench(tmp_path: Path):
    given = flags(VllmBench(target(tmp_path, prefix_len=8)).command(tmp_path, 3))
    assert given["--base-url"] + given["--endpoint"] == "http://127.0.0.1:8123/v1/completions"
    assert (given["--request-rate"], float(given["--burstiness"])) == ("20.0", 1.0)
    assert (given["--num-prompts"], given["--max-concurrency"], given["--seed"]) == ("30", "7", "3")
    lengths = ("--random-prefix-len", "--random-input-len", "--random-output-len")
    assert [given[name] for name in lengths] == ["8", "16", "5"]
    words = json.loads((Path(given["--tokenizer"]) / "tokenizer.json").read_text())["model"]["vocab"]
    assert set(WORDS) < set(words)

    constant = flags(VllmBench(target(tmp_path, pattern="constant", model="/m")).command(tmp_path, 3))
    assert float(constant["--burstiness"]) == math.inf
    assert constant["--tokenizer"] == constant["--model"] == "/m"
    gamma: dict[str, Value] = {"pattern": "gamma", "burstiness": 0.5, "model": "tiny", "endpoint": "chat"}
    bursty = flags(VllmBench(target(tmp_path, **gamma)).command(tmp_path, 3))
    assert (float(bursty["--burstiness"]), bursty["--backend"]) == (0.5, "openai-chat")
    assert bursty["--tokenizer"] == str(tmp_path / "tiny")
    closed = flags(VllmBench(target(tmp_path, pattern="closed", requests=9, model="/m")).command(tmp_path, 3))
    assert (closed["--request-rate"], closed["--num-prompts"], "--burstiness" in closed) == ("inf", "9", False)


@pytest.mark.covers("D8")
def test_pattern_rate_and_concurrency_are_options_of_guidellm_and_prompts_a_file(tmp_path: Path):
    spread: dict[str, Value] = {"gen_tokens_shape": "uniform", "gen_tokens_spread": 0.5}
    tool = GuideLlm(target(tmp_path, model="/m", served_model="mine", **spread))
    given = {name: json.loads(value) for name, value in flags(tool.command(tmp_path, 3)).items() if value[:1] == "{"}
    assert given["--profile"] == {"kind": "poisson", "rate": [20.0], "max_concurrency": 7}
    assert given["--constraint"] == {"kind": "max_requests", "count": 30}
    assert given["--backend"]["target"] == "http://127.0.0.1:8123"
    assert given["--backend"]["model"] == "mine"
    assert given["--output"]["path"] == str(tmp_path / NATIVE)
    rows = [json.loads(line) for line in (tmp_path / PROMPTS).read_text().splitlines()]
    assert [len(row["prompt"].split()) for row in rows] == [24] * 30
    assert len({row["output_tokens_count"] for row in rows}) > 3

    closed = GuideLlm(target(tmp_path, pattern="closed", requests=4, model="/m", concurrency=2)).command(tmp_path, 3)
    assert json.loads(flags(closed)["--profile"]) == {"kind": "concurrent", "streams": [2]}
    assert json.loads(flags(closed)["--constraint"])["count"] == 4


def test_an_open_loop_ends_with_its_length_or_its_requests(tmp_path: Path):
    more: list[dict[str, Value]] = [{"requests": 8}, {"requests": 500}, {"requests": 500, "until_last_reply": True}]
    assert [VllmBench(target(tmp_path, **settings)).count for settings in more] == [8, 30, 500]


TOOL = """\
#!{python}
import json, os, sys, time
words = sys.argv[1:]
said = json.loads({native!r})
begin_s = time.perf_counter()
said["start_times"] = [begin_s + at for at in said["start_times"]]
said["begin_s"] = begin_s
said["has_key"] = "OPENAI_API_KEY" in os.environ
path = os.path.join(words[words.index("--result-dir") + 1], words[words.index("--result-filename") + 1])
time.sleep(0.3)
json.dump(said, open(path, "w"))
print("a", "last line", sep="\\n", file=sys.stderr)
sys.exit(3)
"""


def run(folder: Path, program: str, **settings: Value) -> MeasuredLoad:
    """Run a load of a program that stands for `vllm`."""
    path = folder / "env" / "bin" / "vllm"
    path.parent.mkdir(parents=True)
    path.write_text(program)
    path.chmod(0o755)
    job = LoadJob(
        driver=HARNESSES["vllm_bench"].driver,
        workers="threads",
        settings={**LOAD, ROOT: str(folder / "env"), "limit_s": 20.0, "model": "/m", **settings},
        seed=1,
        data=folder,
        ports={"main": 8123},
        kind="program",
    )
    return measure(job, folder / "parts")


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.covers("D8", "D9")
def test_a_tool_is_judged_by_its_requests_and_the_load_starts_when_it_starts_to_send(tmp_path: Path):
    native = VLLM | {"start_times": [at - 100.25 for at in VLLM["start_times"]]}
    done = run(tmp_path, TOOL.format(python=sys.executable, native=json.dumps(native)))
    assert done.failure is None, "the exit code of the tool is no failure"
    samples = done.samples()
    assert samples["failure"].tolist() == [Failure.NONE, Failure.NONE, Failure.SERVER_ERROR, Failure.RESET]
    assert samples["units"].tolist() == [1, 3, 0, 0]
    assert (samples["due_ns"] / 1e9).round(6).tolist() == [0.0, 0.125, 0.75, 1.25]
    assert samples["first_ns"][2] == MISSING_NS
    files = tmp_path / "parts" / "files"
    said = json.loads((files / NATIVE).read_text())
    assert done.outcome.epoch_ns / 1e9 == pytest.approx(said["begin_s"], abs=1e-3)
    assert said["has_key"] is False
    assert json.loads((files / CALL).read_text())["code"] == 3
    assert (files / "stderr").read_text() == "a\nlast line\n"
    assert not list(tmp_path.glob("vllm_bench-*")), "the tool's own folder is gone"


@pytest.mark.services
@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("program", "category", "said"),
    [
        ("#!/bin/sh\necho one >&2\necho no such model >&2\nexit 2\n", "program_failed", "no such model"),
        ("#!/no/such/interpreter\n", "program_failed", "cannot be started"),
        (f"#!/bin/sh\necho '{{\"a\": 1}}' > {NATIVE}\n", "wrong_record", "start_times"),
    ],
    ids=["dies", "missing", "form"],
)
def test_a_tool_without_a_request_is_a_recorded_failure(tmp_path: Path, program: str, category: str, said: str):
    failure = run(tmp_path, program).failure
    assert failure is not None
    assert failure.category == category
    assert said in failure.reason


@pytest.mark.services
@pytest.mark.serial
@pytest.mark.sweep
@pytest.mark.covers("D8", "D9")
def test_vllm_bench_finds_the_times_and_the_rate_of_a_known_server_that_we_find(tmp_path: Path):
    settings = LOAD | {"pattern": "constant", "rate_rps": 5.0, "duration_s": 4.0, "prompt_form": "text"}
    tool = {ROOT: str(environment("vllm")), "limit_s": 300.0}
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms=300") as port:
        job = LoadJob(
            driver="seamark.drivers.openai:OpenAi",
            workers="wire",
            settings=settings,
            seed=1,
            data=tmp_path,
            ports={"main": port},
        )
        theirs = replace(job, driver=HARNESSES["vllm_bench"].driver, kind="program", settings=settings | tool)
        done = [measure(job, tmp_path / "ours"), measure(replace(theirs, workers="threads"), tmp_path / "theirs")]
    figures = []
    for load in done:
        assert load.failure is None
        samples = load.samples()
        assert set(samples["failure"]) == {Failure.NONE}
        gaps_s = np.diff(np.sort(samples["due_ns"])) / 1e9
        figures.append((np.median(samples["last_ns"] - samples["sent_ns"]) / 1e9, 1 / gaps_s.mean()))
    assert figures[1] == pytest.approx(figures[0], rel=0.05)


SCENARIO = """\
scenario: tried
workload:
  service: known
  harness: [seamark, TOOL]
  rate_rps: 5
  pattern: PATTERN
"""
SITE = read_site(REPOSITORY / "config" / "sites" / "local.yaml")


def read(folder: Path, tool: str, pattern: str = "poisson", more: str = "") -> Scenario:
    file = folder / "tried.yaml"
    file.write_text(SCENARIO.replace("TOOL", tool).replace("PATTERN", pattern) + more)
    return read_scenario(file, SERVICES, SITE)


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("tool", "pattern", "more", "line", "path", "code"),
    [
        ("vllm_bench", "bursts", "", 6, "workload.pattern", "not_a_choice"),
        ("guidellm", "gamma", "  burstiness: 2\n", 7, "workload.burstiness", "not_a_choice"),
        ("guidellm", "poisson", "  include: [{pattern: closed}]\n", 4, "workload.harness", "missing"),
        ("guidellm", "poisson", "  base_path: /api\n", 7, "workload.base_path", "not_a_choice"),
        ("guideLLM", "poisson", "", 4, "workload.harness[1]", "not_a_choice"),
        ("vllm_bench", "poisson", "  mix: {a: {weight: 1}}\n", 7, "workload.mix", "not_a_choice"),
        ("vllm_bench", "poisson", "  prompt_len_shape: uniform\n", 7, "workload.prompt_len_shape", "not_a_choice"),
        ("vllm_bench", "poisson", "  caches: [keep, warm]\n", 7, "workload.caches[1]", "not_a_choice"),
        ("vllm_bench", "poisson", "  warmup_s: auto\n", 7, "workload.warmup_s", "invalid"),
        ("vllm_bench", "poisson", "  shards: 2\n", 7, "workload.shards", "not_a_choice"),
    ],
    ids=str,
)
def test_what_a_tool_cannot_send_is_refused_with_its_line(
    tool: str, pattern: str, more: str, line: int, path: str, code: str, tmp_path: Path
):
    with pytest.raises(UserError) as caught:
        read(tmp_path, tool, pattern, more)
    assert (line, path, code) in [(mistake.line, mistake.path, mistake.code) for mistake in caught.value.mistakes]


def test_a_party_has_a_load_of_seamark(tmp_path: Path):
    file = tmp_path / "co.yaml"
    parties = "    a: {service: known, harness: guidellm, requests: 5}\n    b: {service: 'null'}\n"
    file.write_text(f"scenario: co\nworkload:\n  parties:\n{parties}")
    with pytest.raises(UserError) as caught:
        read_scenario(file, SERVICES, SITE)
    assert [mistake.line for mistake in caught.value.mistakes] == [4]


@pytest.mark.covers("D8")
def test_a_tool_is_a_factor(tmp_path: Path):
    trials = plan(read(tmp_path, "vllm_bench"), SERVICES, SITE).trials
    assert {trial.settings["harness"] for trial in trials} == {"seamark", "vllm_bench"}
    tools = [harness_of(trial.settings) for trial in trials]
    assert {tool and tool.environment for tool in tools} == {None, "vllm"}


def test_every_tool_has_a_lock_and_a_driver_of_its_name():
    allowed: set[object] = set()
    for service in ("known", "fileio"):
        setting = SERVICES[service].setting("harness")
        assert setting is not None
        allowed |= {*setting.allowed}
    assert allowed == {"seamark", *HARNESSES}
    for name, tool in HARNESSES.items():
        assert tool.environment is None or (REPOSITORY / "envs" / f"{tool.environment}.lock").is_file()
        module, _, driver = tool.driver.partition(":")
        assert getattr(importlib.import_module(module), driver).name == name
