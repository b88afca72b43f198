"""A load without a good reply: its record has what the server itself says, and nothing that was sent in secret."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from answering import Reply, answering

from seamark.load.coordinator.coordinator import LoadJob
from seamark.model.results.load_record import ErrorsSeen, LoadRecord
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.trials.address import SHOWN, answer_by_hand, answer_of
from seamark.trials.failure_lines import failure_lines
from seamark.trials.kinds.timed_load import without_replies
from seamark.trials.measure import measure
from seamark.trials.progress import Progress, State
from seamark.trials.trial_record import counted_load, keep_samples

SECRET = "hunter-of-tokens-22"
GOOD = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LoadJob]]:
    """Make loads of a server that answers 200 with a stream that has an error in it, and repeats the key that it was
    given. With the model `sometimes`, other replies are good ones, or 429."""
    monkeypatch.setenv("OWN_KEY", SECRET)
    numbers = count(1)

    def reply(request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        number = next(numbers)
        if b'"sometimes"' in body and number % 3:
            return 200 if number % 3 == 1 else 429, GOOD, {}
        message = f"KV cache exhausted for {request.headers['Authorization']}"
        said = f"data: {json.dumps({'error': {'message': message, 'code': 500}})}\n\ndata: [DONE]\n\n"
        return 200, said.encode(), {"Content-Type": "text/event-stream"}

    load = {"pattern": "closed", "concurrency": 1, "duration_s": 0.3, "warmup_s": 0.0, "timeout_s": 5.0}
    api = {"endpoint": "chat", "base_path": "/v1", "model": "m", "stream": True, "prompt_len": 8, "gen_tokens": 4}
    headers = {"headers": '{"Authorization": "Bearer env:OWN_KEY"}'}

    def make(**settings: object) -> LoadJob:
        return LoadJob(
            driver="seamark.drivers.openai:OpenAi",
            workers="wire",
            settings={**load, **api, **headers, **settings},  # type: ignore[arg-type]
            seed=1,
            data=tmp_path,
            ports={"http": port, "main": port},
        )

    with answering(reply) as port:
        yield make


@pytest.mark.slow
@pytest.mark.covers("E-FR09", "E-SEC")
def test_a_load_without_a_good_reply_has_the_servers_own_words_and_no_secret(
    job: Callable[..., LoadJob], tmp_path: Path
) -> None:
    asked = job()
    measured = measure(asked, tmp_path / "parts")
    folder = TrialFolder(root=tmp_path / "trial")
    folder.root.mkdir()
    kept = keep_samples(folder, measured.outcome, counted_load(LoadRecord(status="ok"), measured.outcome))
    load = without_replies(kept, measured, asked)
    assert (load.status, load.category, set(load.failures)) == ("failed", "all_requests_failed", {"server_error"})
    assert load.reason is not None
    assert "KV cache exhausted" in load.reason
    assert SECRET not in load.reason
    named = {"42P01 undefined_table": ErrorsSeen(category="server_error", count=9, words="no such relation")}
    counted = without_replies(
        LoadRecord(status="ok", rows=9, failures={"server_error": 9}, errors=named), measured, asked
    )
    assert counted.reason is not None
    assert "42P01 undefined_table: no such relation" in counted.reason
    assert "KV cache" not in counted.reason


@pytest.mark.slow
@pytest.mark.covers("E-FR09", "E-SEC")
def test_of_a_load_with_some_failed_replies_the_words_of_the_first_of_each_code_are_recorded(
    job: Callable[..., LoadJob], tmp_path: Path
) -> None:
    outcome = measure(job(served_model="sometimes"), tmp_path / "parts").outcome
    errors = counted_load(LoadRecord(status="ok"), outcome).errors
    assert errors is not None
    assert {code: seen.category for code, seen in errors.items()} == {
        "200 server_error": "server_error",
        "429 Too Many Requests": "client_error",
    }
    in_stream, refused = errors["200 server_error"], errors["429 Too Many Requests"]
    assert abs(refused.count - in_stream.count) <= 1
    assert "KV cache exhausted for ***" in in_stream.words
    assert refused.words == GOOD.decode().strip().partition("\n")[0] + " data: [DONE]"


@pytest.mark.parametrize("mix", [None, '{"chat": {"weight": 1}, "long": {"prompt_len": 16}}'])
def test_a_server_is_asked_once_more_by_hand_as_the_load_asked_it(
    job: Callable[..., LoadJob], mix: str | None
) -> None:
    answer = answer_by_hand(job(mix=mix))
    assert answer is not None
    assert "KV cache exhausted" in answer
    assert SECRET not in answer


@pytest.mark.covers("E-SEC")
def test_a_key_is_not_cut_in_two_where_an_answer_by_hand_is_cut() -> None:
    request = f"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {SECRET}\r\n\r\n"
    with answering(lambda *_: (403, f"{'x' * (SHOWN - 9)} {SECRET}".encode(), {})) as port:
        answer = answer_of(urlsplit(f"http://127.0.0.1:{port}"), None, request.encode())
    assert answer.text.endswith("xxx ***'")


def test_a_driver_that_speaks_no_http_or_cannot_be_made_is_not_asked(tmp_path: Path) -> None:
    for driver in ("seamark.drivers.fileio:FileIo", "no_such_module:Driver"):
        assert answer_by_hand(LoadJob(driver=driver, workers="wire", settings={}, seed=1, data=tmp_path)) is None


def test_trials_that_failed_alike_are_one_line_though_the_servers_words_differ(tmp_path: Path) -> None:
    reason = "none of 9 requests succeeded; most failed with 'server_error'. One request by hand: request"
    states = [
        State(trial=f"d--w--r{number}", deployment="d", state="failed", category="all_requests_failed", reason=text)
        for number, text in enumerate((f"{reason} 1", f"{reason} 2"))
    ]
    [line] = failure_lines(Progress(scenario="s", states=tuple(states)), ScenarioFolder(root=tmp_path), tmp_path)
    assert line.endswith("request 1")
