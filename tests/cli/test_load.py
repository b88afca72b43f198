"""bench load: a quick look at one address, with the figures of a trial."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import in_process
import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
from answering import Reply, answering

from seamark.analysis.metrics.schema import metrics_schema
from seamark.services.ephemeral_server import ephemeral_server
from seamark.testservers.truth import read_truth

BENCH = [sys.executable, "-m", "seamark.cli.main", "load"]


@pytest.fixture
def echo() -> Iterator[SimpleNamespace]:
    """A server that answers with what it was sent, 404 below /none; keeps what came."""
    seen: list[tuple[str, str, str | None, bytes]] = []

    def reply(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        seen.append((request.command, request.path, request.headers.get("X-Try"), body))
        return 404 if request.path.startswith("/none") else 200, body, {}

    with answering(reply) as port:
        yield SimpleNamespace(server_port=port, seen=seen)


def bench_load(folder: Path, *words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*BENCH, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def good_replies(samples: Path) -> int:
    """Count them over the whole load: the measured window may begin after the first ones."""
    return int((pq.read_table(samples)["failure"].to_numpy() == 0).sum())


@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-SCHEMA")
def test_a_load_of_an_address_gives_the_document_of_a_trial_and_its_samples(echo, tmp_path):
    port = echo.server_port
    words = ("--requests", 200, "--concurrency", 4, "--duration", 20, "--output", "samples.parquet", "--json")
    done = bench_load(tmp_path, f"http://127.0.0.1:{port}/a?b=1", *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, metrics_schema())
    assert document["counts"]["ok"] == document["counts"]["requests"] == 200
    assert pq.read_metadata(tmp_path / "samples.parquet").num_rows == 200
    assert {request[:2] for request in echo.seen} == {("GET", "/a?b=1")}


@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_body_headers_and_an_open_loop_arrive_as_they_were_asked_for(echo, tmp_path):
    (tmp_path / "body.json").write_text('{"a": 1}')
    words = ["--body", "body.json", "--header", "X-Try: yes", "--pattern", "constant", "--rate", 40]
    words += ["--concurrency", 8, "--duration", 2, "--slo", "latency_max=5"]
    done = bench_load(tmp_path, f"http://127.0.0.1:{echo.server_port}/echo", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of constant load" in done.stdout
    assert "objective latency_max_s <= 5" in done.stdout
    assert ", met" in done.stdout
    assert len(echo.seen) == 80
    assert set(echo.seen) == {("POST", "/echo", "yes", b'{"a": 1}')}


@pytest.mark.services
def test_a_load_in_which_nothing_is_due_is_one_line(echo, tmp_path):
    words = ("--pattern", "poisson", "--rate", 0.0001, "--duration", 1)
    done = bench_load(tmp_path, f"http://127.0.0.1:{echo.server_port}/", *words)
    assert (done.returncode, echo.seen) == (2, [])
    assert "no request was sent: the load ended before its first one was due" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.services
@pytest.mark.covers("E-SEC")
def test_fields_headers_and_the_query_of_an_openai_address_arrive_as_they_were_asked_for(echo, tmp_path):
    address = f"http://me:too@127.0.0.1:{echo.server_port}/v1/chat/completions/?api-version=1"
    fields = '{"max_tokens": null, "max_completion_tokens": "{max_tokens}"}'
    words = ("--model", "m", "--no-stream", "--output-tokens", 7, "--requests", 2, "--extra-body", fields)
    done = bench_load(tmp_path, address, *words, "--header", "X-Try: file:key", "--json")
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True)
    (tmp_path / "key").write_text("Secret-of-a-file\n")
    done = bench_load(tmp_path, address, *words, "--header", "X-Try: file:key", "--json")
    assert {request[:3] for request in echo.seen} == {
        ("POST", "/v1/chat/completions?api-version=1", "Secret-of-a-file")
    }
    body = json.loads(echo.seen[0][3])
    assert (body["max_completion_tokens"], "max_tokens" in body) == (7, False)
    headers = json.loads(json.loads(done.stdout)["config"]["headers"])
    assert headers == {"X-Try": "file:key", "Authorization": "***"}
    assert "Secret-of-a-file" not in done.stdout + done.stderr


@pytest.mark.services
def test_replies_that_are_all_errors_end_with_1_and_are_named(echo, tmp_path):
    done = bench_load(tmp_path, f"http://127.0.0.1:{echo.server_port}/none", "--requests", 20)
    assert done.returncode == 1
    assert re.search(r"client_error \d+ \(HTTP 404\)", done.stdout)
    assert "INVALID" in done.stdout
    assert "by hand: 'HTTP/1.1 404 Not Found'" in done.stderr


@pytest.mark.sweep
@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_https_is_spoken_and_a_certificate_nobody_vouches_for_is_refused(echo, tls_front, tmp_path):
    front = tls_front(echo.server_port)
    address = f"https://127.0.0.1:{front.port}/"
    for words, environment in (
        ((), {"SSL_CERT_FILE": str(front.certificate)}),
        (("--cacert", front.certificate), {}),
        (("--insecure",), {}),
    ):
        done = bench_load(tmp_path, address, "--requests", 50, "--output", "good.parquet", *words, **environment)
        assert done.returncode == 0, done.stderr
        assert good_replies(tmp_path / "good.parquet") == 50
    refused = bench_load(tmp_path, address, "--requests", 50)
    assert refused.returncode == 2
    assert "its certificate fails verification (self-signed certificate)" in refused.stderr
    assert "--cacert FILE" in refused.stderr
    another = bench_load(tmp_path, f"https://localhost:{front.port}/", "--cacert", front.certificate)
    assert another.returncode == 2
    assert "not valid for 'localhost'" in another.stderr
    plain = bench_load(tmp_path, f"http://127.0.0.1:{front.port}/", "--requests", 5)
    assert plain.returncode == 1
    assert f"speaks TLS. Use https://127.0.0.1:{front.port}/" in plain.stderr
    none = bench_load(tmp_path, f"https://127.0.0.1:{echo.server_port}/")
    assert none.returncode == 2
    assert "no TLS handshake" in none.stderr


@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-CLI03")
def test_the_openai_api_is_asked_over_https_with_its_key(tls_front, tmp_path):
    with ephemeral_server("seamark.testservers.reference") as port:
        front = tls_front(port)
        address = f"https://127.0.0.1:{front.port}/v1/completions"
        words = ["--requests", 20, "--prompt-tokens", 8, "--output-tokens", 5, "--cacert", front.certificate]
        words += ["--output", "good.parquet"]
        done = bench_load(tmp_path, address, *words, "--json", "--set", "api_key_env=A_KEY", A_KEY="secret")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert good_replies(tmp_path / "good.parquet") == 20
        assert document["throughput"]["unit"] == "tokens_per_s"
        assert document["quality"]["prompt_tokens_ratio"] == 1, "asked over TLS as well"
        assert "secret" not in done.stdout
        assert front.heard(b"GET /v1/models", b"Authorization: Bearer secret")
        refused = bench_load(tmp_path, address, "--model", "known")
        assert refused.returncode == 2
        assert "certificate fails verification" in refused.stderr


def say_once(words: bytes, then: Callable[[socket.socket], object] = lambda connection: None) -> Callable:
    def talk(connection: socket.socket) -> None:
        if words:
            connection.sendall(words)
        then(connection)

    return talk


EVENTS = b"".join(
    b"%x\r\ndata: %b\n\n\r\n" % (len(event) + 8, event)
    for event in (b'{"choices": [{"index": 0, "text": "a"}]}', b'{"error": {"message": "the engine stopped"}}')
)
STOPPED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + EVENTS + b"0\r\n\r\n"
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"


@pytest.mark.services
@pytest.mark.parametrize(
    ("talk", "path", "code", "said"),
    [
        (say_once(b"SSH-2.0-x\r\n"), "/", 1, "'SSH-2.0-x', which is no HTTP/1.1"),
        (say_once(b"", lambda connection: connection.recv(1000)), "/", 1, "closed without a byte"),
        (say_once(b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n"), "/", 1, "Redirects are not followed"),
        (say_once(b"SSH-2.0-x\r\n"), "/v1/completions", 2, "the server names no model (SSH-2.0-x"),
        (say_once(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "/v1/completions", 2, "It wants a key"),
        (say_once(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), "/v1/completions", 2, "no list of models"),
        (say_once(STOPPED), "/v1/completions?v=1", 1, """and '{"error": {"message": "the engine stopped"}}'."""),
        (say_once(PACKED), "/v1/completions/?v=1", 1, "'HTTP/1.1 200 OK' with Content-Encoding: gzip."),
    ],
)
def test_what_is_no_good_server_is_told_in_words_without_a_traceback(tmp_path, talk, path, code, said):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(2)
                        talk(connection)
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(65536)

        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
        words = ["--model", "m"] if "?" in path else []
        done = bench_load(tmp_path, address, "--requests", 3, "--duration", 5, "--timeout", 3, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.serial
@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-CLI03")
def test_an_openai_address_is_asked_for_tokens_and_its_times_are_those_of_the_server(tmp_path):
    words = ["--concurrency", 8, "--duration", 3, "--prompt-tokens", 16, "--output-tokens", 11, "--json"]
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 40, "--gap-ms", 4) as port:
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/completions", *words)
        whole = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/chat/completions", "--no-stream", *words)
    assert done.returncode == whole.returncode == 0, done.stderr + whole.stderr
    document = json.loads(done.stdout)
    assert document["quality"]["prompt_tokens_ratio"] == 1
    assert document["throughput"]["unit"] == "tokens_per_s"
    assert document["throughput"]["value"] == pytest.approx(11 * document["requests_per_s"], rel=0.1)
    assert 40 <= document["ttft_ms"]["p50"] < 60
    assert document["inter_chunk_ms"]["mean"] == pytest.approx(4, rel=0.1)
    assert document["tpot_ms"]["mean"] == pytest.approx(4, rel=0.1)
    assert json.loads(whole.stdout)["ttft_ms"] is None


@pytest.mark.serial
@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_classes_and_turns_are_shown_one_by_one(tmp_path):
    mix = "{chat: {weight: 3, prompt_len: 8, gen_tokens: 2}, search: {prompt_len: 40, gen_tokens: 6}}"
    words = ("--mix", mix, "--turns", 2, "--requests", 80, "--concurrency", 4)
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 10, "--gap-ms", 5) as port:
        said = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/completions", *words)
        whole = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/completions", *words, "--json")
    assert said.returncode == 0, said.stderr
    assert "whole sessions/s of 2 turns" in said.stdout
    lines = {line.split()[0]: line.split() for line in said.stdout.splitlines() if "/turn-" in line}
    assert set(lines) == {"chat/turn-1", "chat/turn-2", "search/turn-1", "search/turn-2"}
    by_kind = json.loads(whole.stdout)["by_kind"]
    assert sum(kind["requests"] for kind in by_kind.values()) == 80
    assert by_kind["chat/turn-1"]["units"] == 2 * by_kind["chat/turn-1"]["ok"]
    assert 15 <= by_kind["chat/turn-2"]["latency_ms"]["p50"] < 25
    assert by_kind["chat/turn-1"]["requests"] == by_kind["chat/turn-2"]["requests"]


PULSES = """
from dataclasses import dataclass
import numpy as np
from seamark.model.service import Setting
from seamark.patterns.patterns import Pattern
from seamark.patterns.table import PatternKind

@dataclass(frozen=True, kw_only=True)
class Pulses(Pattern):
    every_s: float

    def blocks(self, rng):
        for first in range(0, 1_000_000, 4):
            yield np.repeat(first // 4, 4) * self.every_s

    def expected(self, at_s):
        return 4 * (int(at_s / self.every_s) + 1)

every = Setting(name="every_s", type="float", role="workload", minimum=0.01, default=0.25, help="time between pulses")
make = lambda settings, over_s: Pulses(every_s=settings["every_s"])
pulses = PatternKind(make=make, reads=("concurrency",), rate="changing", settings=(every,))
"""


@pytest.mark.sweep
@pytest.mark.covers("E-CLI02")
def test_a_pattern_in_a_file_of_the_working_folder_is_loaded_with_its_settings(tmp_path, echo):
    (tmp_path / "my_patterns.py").write_text(PULSES)
    words = ["--pattern", "my_patterns:pulses", "--duration", 2, "--json"]
    address = f"http://127.0.0.1:{echo.server_port}/"
    for more, requests in (((), 32), (("--set", "every_s=0.5"), 16)):
        document = json.loads(bench_load(tmp_path, address, *words, *more).stdout)
        assert document["counts"]["requests"] == document["counts"]["ok"] == requests
    assert document["config"]["every_s"] == 0.5
    wrong = bench_load(tmp_path, address, *words, "--set", "every_s=0")
    assert "--set every_s=0: 0 is too small: at least 0.01." in wrong.stderr


@pytest.mark.slow
@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ftp://x"], "not an address"),
        (["localhost:80"], "Did you mean 'http://localhost:80'?"),
        (["http://127.0.0.1:80/", "--insecure"], "no certificate"),
        (["https://h/", "--cacert", "missing.pem"], "missing.pem contains no readable certificate"),
        (["https://h/", "--cacert", "a", "--insecure"], "Use one of them"),
        (["http://nowhere.invalid/"], "no host has the name 'nowhere.invalid'"),
        (["http://127.0.0.1:1/"], "nothing listens there"),
        (["http://127.0.0.1:99999/"], "not an address"),
        (["http://h/", "--rate", "5"], "a closed loop has none"),
        (["http://h/", "--pattern", "poisson"], "--rate"),
        (["http://h/", "--duration", "-1"], "--duration -1.0: -1 is too small: at least 0.1 s."),
        (["http://h/", "--header", "no colon"], "NAME:VALUE"),
        (["http://h/", "--body", "missing.json"], "no such file"),
        (["http://h/", "--slo", "latncy_p99=1"], "latency_p99_s"),
        (["http://h/", "--slo", "latency_p99"], "not an objective"),
        (["http://h/", "--pattern", "gamma", "--rate", "5"], "needs burstiness"),
        (["http://h/", "--pattern", "poison"], "Did you mean 'poisson'?"),
        (["http://h/", "--pattern", "no_patterns:none"], "there is no module 'no_patterns'"),
        (["http://h/", "--set", "burstiness"], "NAME=VALUE"),
        (
            ["http://h/v1/completions", "--model", "m", "--mix", "chat: !!timestamp abc"],
            "a tag of YAML that does not fit its value",
        ),
        (["http://h/v1/completions", "--output-tokens", "0"], "greater than 0"),
        (["http://127.0.0.1:1/v1/completions"], "nothing listens there"),
        (["http://h/", "--turns", "0"], "--turns 0: 0 is too small: at least 1"),
        (["http://h/", "--pattern", "poisson", "--rate", "1", "--think-time", "1"], "Add --turns 2 or more"),
        (["http://h/", "--pattern", "trace", "--set", "trace=bad.jsonl"], "--set trace: bad.jsonl:2: is not JSON"),
        (["http://h/", "--pattern", "trace", "--set", "trace=none.jsonl"], "none.jsonl cannot be read (No such file"),
        (["http://h/", "--mix", "{a: {}}"], "--mix: only the OpenAI API has it"),
        (["http://h/v1/completions", "--method", "PUT", "--output-tokens", "9"], "--output-tokens: only the OpenAI"),
        (["http://h/v1/"], "Load http://h/v1/chat/completions or http://h/v1/completions"),
        (
            ["http://h/v1/completions", "--prompt-tokens", "4", "--set", "prompt_len=5"],
            "--prompt-tokens is given twice",
        ),
        (["http://h/", "--header", "X-A: 1", "--header", "X-A: 2"], "--header 'X-A' is given twice"),
        (["http://h/v1/completions", "--mix", "{a: {promt_len: 3}}"], "Did you mean 'prompt_len'?"),
        (["http://h/v1/completions", "--mix", "{a: 3}"], "is no mix"),
        (["http://h/v1/completions", "--mix", "{a: {"], "not a mix"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(tmp_path, words, said):
    (tmp_path / "bad.jsonl").write_text('{"at_s": 0.1}\nnonsense\n')
    done = in_process.bench("load", *map(str, words), cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.sweep
@pytest.mark.covers("E-CLI02")
def test_a_warm_up_of_auto_makes_the_load_a_quarter_longer_and_cuts_no_more_than_that(tmp_path, echo):
    done = bench_load(
        tmp_path, f"http://127.0.0.1:{echo.server_port}/", "--duration", 1, "--warmup", "auto", "--json"
    )
    document = json.loads(done.stdout)
    assert document["config"]["warmup_s"] == "auto"
    assert document["window"]["end_s"] == 1.25
    assert (
        document["window"]["start_s"]
        == document["warmup_auto"]["cut_s"]
        <= document["warmup_auto"]["limit_s"]
        == 0.25
    )
    jsonschema.validate(document, metrics_schema())


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-FR09")
def test_a_load_that_is_ended_for_saturation_is_measured_up_to_there_and_marked(tmp_path):
    words = ["--requests", 100_000, "--pattern", "poisson", "--rate", 200, "--duration", 40, "--concurrency", 500]
    words += ["--set", "stop_when_saturated=true", "--set", "warmup_s=1", "--json"]
    with ephemeral_server("seamark.testservers.reference", "--queue", "md1", "--ttft-ms", 10) as port:
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/", *words)
    document = json.loads(done.stdout)
    assert document["over_saturated_at_s"] < 30
    assert document["window"]["end_s"] == pytest.approx(document["over_saturated_at_s"])
    assert document["achieved_rps"] == pytest.approx(100, rel=0.1), "one server of 10 ms"
    assert document["offered_rps"] == pytest.approx(200, rel=0.15)
    assert "p90" in document["latency_ms"]["ranges"]
    assert {"over_saturated", "percentile_lower_bound"} <= {reason["code"] for reason in document["reasons"]}


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_a_stream_that_the_server_holds_open_is_not_called_idleness_of_the_client(tmp_path):
    words = ["--requests", 400, "--concurrency", 8, "--duration", 20, "--output-tokens", 4, "--json"]
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 20, "--tail-ms", 60) as port:
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/completions", *words)
    document = json.loads(done.stdout)
    reasons = {reason["code"]: reason["text"] for reason in document["reasons"]}
    assert document["concurrency_mean"] < 4
    assert "client_underdriven" not in reasons
    held_ms = float(re.search(r"after their last token, each for (\S+) ms", reasons["streams_held_open"])[1])
    assert held_ms == pytest.approx(60, abs=10)


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-FR09")
def test_times_of_streams_of_several_tokens_a_chunk_are_those_of_the_server(tmp_path):
    """25 tokens in 5 chunks, one every 50 ms, the first two of them reasoning: 10 ms a token."""
    truth = tmp_path / "truth"
    served = ["--chunk-tokens", 5, "--gap-ms", 50, "--ttft-ms", 20, "--reasoning-chunks", 2, "--truth", truth]
    words = ["--requests", 100, "--concurrency", 5, "--duration", 20, "--output-tokens", 25]
    counts = ("--set", 'extra_body={"stream_options": {"continuous_usage_stats": true}}')
    with ephemeral_server("seamark.testservers.reference", *served) as port:
        address = f"http://127.0.0.1:{port}/v1/chat/completions"
        told = json.loads(bench_load(tmp_path, address, *words, *counts, "--json").stdout)
        untold = bench_load(tmp_path, address, *words)
    wrote = read_truth(truth)
    tpot_ms = np.median((wrote.last_ns - wrote.first_ns) / 20 / 1e6)
    assert tpot_ms == pytest.approx(10, rel=0.05)
    assert told["tpot_ms"]["p50"] == pytest.approx(tpot_ms, rel=0.05)
    waited_ms = np.median((wrote.answer_ns - wrote.first_ns) / 1e6)
    assert told["ttfo_ms"]["p50"] - told["ttft_ms"]["p50"] == pytest.approx(waited_ms, rel=0.05)
    assert told["throughput"]["unit"] == "tokens_per_s"
    lines = {line.split()[0]: line.split() for line in untold.stdout.splitlines() if line.strip()}
    assert float(lines["TPOT"][2]) == pytest.approx(200 / 24, rel=0.05)
    assert "first_chunk_not_counted:" in lines
    assert float(lines["TTFO"][2]) > float(lines["TTFT"][2]) + 80


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.covers("E-CLI02")
def test_chunks_of_a_server_that_does_not_count_are_not_called_tokens(tmp_path):
    words = ["--requests", 60, "--concurrency", 4, "--duration", 20, "--output-tokens", 25]
    with ephemeral_server("seamark.testservers.reference", "--chunk-tokens", 5, "--usage", "never") as port:
        done = bench_load(tmp_path, f"http://127.0.0.1:{port}/v1/completions", *words)
    assert "chunks/s" in done.stdout
    assert "tokens/s" not in done.stdout
    assert "tokens_not_counted: of 60 of 60 good replies" in done.stdout
    assert "TPOT" not in done.stdout.split("SUSPECT")[0]


@pytest.mark.services
@pytest.mark.covers("E-CLI02", "E-FR09")
@pytest.mark.parametrize(
    ("objective", "code", "plain_code", "line"),
    [
        ("latency_p50=60", 0, 0, r"Gate passed: 1 trial(, 1 of them SUSPECT)?; 1 objective met\."),
        ("latency_p50=1e-9", 1, 1, r"Gate not passed: latency_p50_s <= 1e-09 missed, is [0-9.e-]+\."),
        (
            "latency_p99=60",
            1,
            0,
            r"Gate not passed: whether latency_p99_s <= 60 is met is not known \(too few samples, 60 .* 1,000 .*\)\.",
        ),
    ],
)
def test_strict_is_a_gate_with_one_line_and_without_it_nothing_changes(
    echo, tmp_path, objective, code, plain_code, line
):
    words = (f"http://127.0.0.1:{echo.server_port}/", "--requests", 50, "--slo", objective)
    done = bench_load(tmp_path, *words, "--strict")
    [gate] = [each for each in done.stderr.splitlines() if each.startswith("Gate ")]
    assert re.fullmatch(line, gate), done.stderr
    assert done.returncode == code
    plain = bench_load(tmp_path, *words, "--json")
    assert plain.returncode == plain_code
    assert plain.stderr == "", "a document has no warning of the machine beside it"


@pytest.mark.services
def test_a_load_sends_other_prompts_than_the_one_before_unless_asked_for(echo, tmp_path):
    def prompts(*words: object) -> list[bytes]:
        echo.seen.clear()
        done = bench_load(
            tmp_path,
            f"http://127.0.0.1:{echo.server_port}/v1/completions",
            *("--model", "m", "--no-stream", "--requests", 3, "--concurrency", 1, "--duration", 5, *words),
        )
        assert ("--prompt-seed" in done.stderr) == (not words)
        return [body for _, path, _, body in echo.seen if path.endswith("/completions") and b"prompt" in body]

    first, second = prompts(), prompts()
    assert first
    assert not set(first) & set(second)
    again = prompts("--prompt-seed", 5), prompts("--prompt-seed", 5)
    assert set(again[0]) == set(again[1])
