"""The reference server over real sockets: what it says to whom, in which form."""

import contextlib
import time

import numpy as np
import pytest
from known_client import completion, finishes

from seamark.testservers.wire import PLAIN_BODY, TOKEN

pytestmark = pytest.mark.services
CHAT = "/v1/chat/completions"
BOTH = pytest.mark.parametrize("path", ["/v1/completions", CHAT])
MS = 1_000_000
TRIES = 4
"""A busy machine may keep client or server waiting at any time: what is about punctuality may be tried so often."""


@BOTH
@pytest.mark.covers("E-FR20")
def test_a_stream_has_its_first_token_and_its_gaps_when_it_was_told(known, path) -> None:
    server = known("--ttft-ms", 40, "--gap-ms", 15)
    answers = [server.ask(path, max_tokens=6) for _ in range(8)]
    truth, _ = server.end()
    assert truth.outcome.tolist() == ["good"] * 8
    for at, answer in enumerate(answers):
        chunks = answer.chunks()
        assert [text for _, text in chunks] == [TOKEN] * 6
        assert answer.events()[-1][1] == "[DONE]"
        assert answer.events()[-2][1]["choices"] == []
        assert answer.events()[-2][1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
        assert truth.read_ns[at] >= answer.sent_ns
        assert truth.due_ns[at] == truth.read_ns[at] + 40 * MS
        assert truth.due_ns[at] <= truth.first_ns[at] <= chunks[0][0]
        assert truth.last_ns[at] <= chunks[-1][0]
        assert truth.last_ns[at] >= truth.due_ns[at] + 5 * 15 * MS
    late_ns = [answer.chunks()[k][0] - answer.sent_ns - (40 + 15 * k) * MS for answer in answers for k in range(6)]
    assert min(late_ns) >= 0
    assert np.percentile(late_ns, 25) < 3 * MS


@BOTH
def test_a_reply_that_does_not_stream_comes_as_a_whole_when_its_last_chunk_would(known, path) -> None:
    server = known("--ttft-ms", 20, "--gap-ms", 10, "--chunk-tokens", 2)
    answer = server.ask(path, stream=False, max_tokens=7)
    [choice] = answer.json["choices"]
    assert choice.get("text", choice.get("message", {}).get("content")) == TOKEN * 7
    assert choice["finish_reason"] == "length"
    assert answer.json["usage"]["completion_tokens"] == 7
    truth, _ = server.end()
    assert truth.due_ns[0] == truth.read_ns[0] + (20 + 3 * 10) * MS
    assert truth.first_ns[0] == truth.last_ns[0] >= truth.due_ns[0]
    assert (truth.chunks[0], truth.tokens[0]) == (1, 7)


def test_tokens_and_chunks_differ_when_told_and_a_reply_may_end_by_itself(known) -> None:
    server = known("--chunks", 3, "--chunk-tokens", 4, "--first-tokens", 6)
    full, cut = server.ask(max_tokens=1000), server.ask(max_tokens=8)
    assert [text for _, text in full.chunks()] == [TOKEN * 6, TOKEN * 4, TOKEN * 4]
    assert [text for _, text in cut.chunks()] == [TOKEN * 6, TOKEN * 2]
    assert (finishes(full), finishes(cut)) == (["stop"], ["length"])
    truth, _ = server.end()
    assert truth.chunks.tolist() == [3, 2]
    assert truth.tokens.tolist() == [14, 8]


def test_the_first_chunk_of_a_chat_is_a_role_without_a_token_long_before_the_first_token(known) -> None:
    server = known("--ttft-ms", 400)
    answer = server.ask(CHAT, max_tokens=1)
    at_ns, role = answer.events()[0]
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert answer.chunks()[0][0] - at_ns > 100 * MS
    truth, _ = server.end()
    assert truth.first_ns[0] - truth.read_ns[0] >= 400 * MS
    assert truth.chunks[0] == 1


def test_a_completion_begins_with_an_empty_text_instead_of_a_role(known) -> None:
    assert known().ask(max_tokens=1).events()[0][1]["choices"][0]["text"] == ""


@pytest.mark.parametrize(("early_head", "head_is_apart"), [("on", True), ("off", False)])
def test_without_a_role_chunk_the_head_comes_early_or_with_the_first_token(known, early_head, head_is_apart) -> None:
    server = known("--ttft-ms", 400, "--role-chunk", "off", "--early-head", early_head)
    answer = server.ask(CHAT, max_tokens=2)
    assert len(answer.chunks()) == len(answer.events()) - 2 == 2
    assert (b"data:" not in answer.reads[0][1]) == head_is_apart
    assert (answer.reads[0][0] - answer.sent_ns < 350 * MS) == head_is_apart


@pytest.mark.parametrize(
    ("told", "options", "counted"),
    [
        ("asked", {"include_usage": True}, True),
        ("asked", None, False),
        ("always", None, True),
        ("never", {"include_usage": True}, False),
    ],
)
def test_the_usage_chunk_comes_as_told_and_has_no_choices(known, told, options, counted) -> None:
    events = known("--usage", told).ask(stream_options=options, max_tokens=2).events()
    assert [event["choices"] for _, event in events[:-1]].count([]) == counted
    assert any("usage" in event for _, event in events[:-1]) == counted


def test_usage_so_far_is_in_every_chunk_when_asked_for(known) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = known("--chunk-tokens", 3, "--role-chunk", "off").ask(stream_options=options, max_tokens=8)
    assert [event["usage"]["completion_tokens"] for _, event in answer.events()[:-1]] == [3, 6, 8, 8]


def test_the_usage_chunk_may_come_long_after_the_last_token(known) -> None:
    server = known("--tail-ms", 400, "--ttft-ms", 5)
    answer = server.ask(max_tokens=2)
    usage_ns, usage = answer.events()[-2]
    assert usage["choices"] == []
    truth, _ = server.end()
    assert usage_ns >= truth.due_ns[0] + 400 * MS
    assert answer.chunks()[-1][0] - truth.last_ns[0] < 300 * MS


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_first_chunks_of_a_chat_are_reasoning(known, field, stream) -> None:
    arguments = ("--reasoning-chunks", 2, "--reasoning-field", field, "--chunk-tokens", 2, "--gap-ms", 10)
    server = known(*arguments)
    answer = server.ask(CHAT, max_tokens=7, stream=stream)
    truth, _ = server.end()
    if stream:
        deltas = [event["choices"][0]["delta"] for _, event in answer.events()[1:-2]]
        usage = answer.events()[-2][1]["usage"]
        assert deltas == [{field: TOKEN * 2}] * 2 + [{"content": TOKEN * 2}, {"content": TOKEN}]
        assert truth.answer_ns[0] >= truth.due_ns[0] + 20 * MS > truth.due_ns[0]
        assert truth.first_ns[0] < truth.answer_ns[0] < truth.last_ns[0]
    else:
        usage = answer.json["usage"]
        message = answer.json["choices"][0]["message"]
        assert (message[field], message["content"]) == (TOKEN * 4, TOKEN * 3)
    assert usage["completion_tokens"] == 7
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}


def test_several_prompts_in_a_request_are_several_choices(known) -> None:
    server = known()
    streamed = server.ask(prompt=["a b", "c"], max_tokens=3)
    whole = server.ask(prompt=["a b", "c"], max_tokens=3, stream=False)
    indices = [event["choices"][0]["index"] for _, event in streamed.events()[2:-2]]
    assert sorted(indices) == [0, 0, 0, 1, 1, 1]
    usage = {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    assert [streamed.events()[-2][1]["usage"], whole.json["usage"]] == [usage, usage]
    assert [choice["index"] for choice in whole.json["choices"]] == [0, 1]


@BOTH
@pytest.mark.parametrize("split", ["writes", "chunks", "utf8"])
def test_events_in_pieces_say_the_same_and_are_whole_in_time(known, split, path) -> None:
    server = known("--split", split, "--ttft-ms", 50, "--gap-ms", 25, "--piece-ms", 3)
    with contextlib.closing(server.client()) as client:
        streams = [client.ask(path, max_tokens=4) for _ in range(TRIES)]
        wholes = [client.ask(path, max_tokens=4, stream=False) for _ in range(TRIES)]
    truth, _ = server.end()
    for answer in streams:
        assert [text for _, text in answer.chunks()] == [TOKEN] * 4
        assert answer.events()[-2][1]["usage"]["completion_tokens"] == 4
    for whole in wholes:
        [choice] = whole.json["choices"]
        assert choice.get("text", choice.get("message", {}).get("content")) == TOKEN * 4
    assert max(len(answer.reads) for answer in streams) > 8, "pieces arrive one by one"
    assert max(len(whole.reads) for whole in wholes) > 1
    assert (truth.first_ns >= truth.due_ns).all()
    assert min(truth.first_ns - truth.due_ns) < 2 * MS, "the last piece is in time, not the first"
    assert min(truth.last_ns[:TRIES] - truth.due_ns[:TRIES] - 75 * MS) < 2 * MS
    seen_ns = [(answer.chunks()[0][0], answer.chunks()[-1][0]) for answer in streams]
    written_ns = list(zip(truth.first_ns, truth.last_ns, strict=True))[:TRIES]
    assert (np.array(seen_ns) >= np.array(written_ns)).all()
    assert (np.array(seen_ns) - np.array(written_ns)).min() < 2 * MS
    if split == "utf8":
        half = "ø".encode()[:1]
        assert any(data[:-2].endswith(half) for answer in streams for _, data in answer.reads)
        assert any(data.endswith(half) for whole in wholes for _, data in whole.reads)


def test_several_events_come_in_one_write(known) -> None:
    server = known("--events-per-write", 4, "--ttft-ms", 20, "--gap-ms", 20)
    answers = [server.ask(max_tokens=10) for _ in range(TRIES)]
    truth, _ = server.end()
    token = TOKEN.encode()
    groups = [[data.count(token) for _, data in answer.reads if token in data] for answer in answers]
    assert [4, 4, 2] in groups
    assert truth.chunks.tolist() == [10] * TRIES
    assert (truth.last_ns >= truth.due_ns + 160 * MS).all()
    assert (truth.last_ns - truth.due_ns).min() < 180 * MS


@pytest.mark.parametrize(("told", "line_end"), [("lf", b"\n"), ("crlf", b"\r\n")])
@pytest.mark.parametrize(("space", "begins"), [("on", b"data: {"), ("off", b"data:{")])
def test_lines_end_and_data_begins_as_told(known, told, line_end, space, begins) -> None:
    answer = known("--line-end", told, "--space", space).ask(max_tokens=2)
    body, _ = answer.body()
    assert body.startswith(begins)
    assert body.count(line_end * 2) == len(answer.events(line_end)) == 5
    assert (b"\r" in body) == (told == "crlf")


def test_there_are_pages_and_a_plain_reply(known) -> None:
    server = known("--ttft-ms", 30)
    with contextlib.closing(server.client()) as client:
        health, models, plain = client.get("/health"), client.get("/v1/models"), client.get("/")
        server.ask(max_tokens=4)
        shown = client.get("/metrics").raw.decode()
    assert health.status == 200
    assert models.json["data"][0]["id"] == "known"
    assert plain.raw.endswith(b"\r\n\r\n" + PLAIN_BODY)
    assert plain.reads[0][0] - plain.sent_ns >= 30 * MS
    for line in ('known_requests_total{outcome="good"} 2', "known_tokens_total 4", "known_prompt_tokens_total 3"):
        assert line in shown.splitlines()
    assert server.end()[0].number.tolist() == [1, 2]


def test_a_wrong_request_is_refused_and_a_wrong_body_leaves_the_connection_alone(known) -> None:
    server = known()
    with contextlib.closing(server.client()) as client:
        refused = client.ask(max_tokens=-1)
        good = client.ask(max_tokens=1)
        lost = client.get("/v2/completions")
        assert client.socket.recv(1) == b""
    assert [refused.status, good.status, lost.status] == [400, 200, 404]
    assert "max_tokens is -1" in refused.json["error"]["message"]
    assert "POST /v1/completions" in lost.json["error"]["message"]


def test_a_request_in_pieces_and_two_at_once_are_answered_in_order(known) -> None:
    server = known("--ttft-ms", 10)
    one, two = completion(max_tokens=1, name="one"), completion(max_tokens=2, name="two")
    with contextlib.closing(server.client()) as client:
        for at in range(0, len(one), 40):
            answer = client.send(one[at : at + 40])
            time.sleep(0.002)
        first = client.receive(answer)
        both = client.send(one + two)
        while both.raw.count(b"[DONE]") < 2:
            both.reads.append((time.monotonic_ns(), client.socket.recv(1 << 16)))
    assert len(first.chunks()) == 1
    truth, _ = server.end()
    assert truth.ids.tolist() == ["one", "one", "two"]
    assert truth.tokens.tolist() == [1, 1, 2]
    assert truth.read_ns[0] >= answer.sent_ns, "the request is read when its last piece is there"
    assert truth.read_ns[2] >= truth.last_ns[1]


def test_a_request_that_closes_its_connection_is_answered_first(known) -> None:
    server = known("--ttft-ms", 10)
    with contextlib.closing(server.client()) as client:
        answer = client.send(completion(max_tokens=3).replace(b"Host: x", b"Connection: close"))
        assert len(client.receive(answer).chunks()) == 3
        assert client.socket.recv(1) == b""


def test_a_large_prompt_is_read_whole_before_the_clock_starts(known) -> None:
    server = known("--ttft-ms", 10)
    answer = server.ask(prompt=list(range(300_000)), max_tokens=1)
    assert answer.events()[-2][1]["usage"]["prompt_tokens"] == 300_000
    truth, _ = server.end()
    assert answer.sent_ns < truth.read_ns[0] <= truth.first_ns[0] - 10 * MS
