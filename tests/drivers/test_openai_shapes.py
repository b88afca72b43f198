"""Streams in the shapes of other servers: when the first token counts, how many there are, what has failed."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from hostile_server import Behaviour, HostileServer, says, sized

from seamark.drivers.openai.driver import first_model
from seamark.drivers.openai.events import Forms
from seamark.drivers.openai.stream import EventStreamDecoder
from seamark.errors import UserError
from seamark.model.sample import Failure

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKENS = 4


def event(**document: Any) -> bytes:
    return b"data: " + json.dumps({"id": "c", "created": 1, "model": "m"} | document).encode() + b"\n\n"


def delta(finish: str | None = None, **said: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": said, "finish_reason": finish}])


def usage(**counts: Any) -> bytes:
    return event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": TOKENS} | counts)


DONE = b"data: [DONE]\n\n"
ROLE, TEXT, END, USAGE = delta(role="assistant", content=""), delta(content="a "), delta("stop"), usage()
TEXTS = [TEXT] * TOKENS
LAST = [END, USAGE, DONE]
THOUGHT, THOUGHTS = delta(reasoning_content="so "), [delta(reasoning_content="so ")] * 2
CALL = delta(tool_calls=[{"index": 0, "function": {"arguments": '"a"'}}])
CUT = event(choices=[{"index": 0, "delta": {"content": "a "}}]).replace(b', "choices"', b',\ndata: "choices"')
MESSAGE = event(choices=[{"index": 0, "message": {"role": "assistant", "content": "a "}, "finish_reason": None}])
LISTED = delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}])

GOOD: Mapping[str, tuple[list[bytes], int]] = {
    "base": ([ROLE, *TEXTS, *LAST], 1),
    "role without content": ([delta(role="assistant", content=None), *TEXTS, *LAST], 1),
    "role with the end": ([*TEXTS, delta("stop", role="assistant"), USAGE, DONE], 0),
    "reasoning first": ([ROLE, *THOUGHTS, TEXT, TEXT, *LAST], 1),
    "reasoning alone": ([ROLE, *[THOUGHT] * TOKENS, delta("length"), USAGE, DONE], 1),
    "reasoning beside null": ([ROLE, *[delta(content=None, reasoning="so")] * 2, TEXT, TEXT, *LAST], 1),
    "reasoning beside empty": ([ROLE, *[delta(content="", reasoning_content="so")] * 2, TEXT, TEXT, *LAST], 1),
    "parts of content": ([ROLE, LISTED, LISTED, TEXT, TEXT, *LAST], 1),
    "calls of a tool": ([ROLE, *[CALL] * TOKENS, delta("tool_calls"), USAGE, DONE], 1),
    "results of a filter first": ([event(choices=[], prompt_filter_results=[{}]), ROLE, *TEXTS, *LAST], 2),
    "no choices": (
        [event(object="chat.completion.chunk"), *TEXTS, END, event(usage={"completion_tokens": 4}), DONE],
        1,
    ),
    "choices of null": ([ROLE, *TEXTS, END, event(choices=None, usage={"completion_tokens": TOKENS}), DONE], 1),
    "usage with the last text": (
        [
            ROLE,
            *TEXTS[1:],
            event(
                choices=[{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}],
                usage={"completion_tokens": TOKENS},
            ),
            DONE,
        ],
        1,
    ),
    "usage of null": ([x.replace(b"}]}", b'}], "usage": null}') for x in [ROLE, *TEXTS, END]] + [USAGE, DONE], 1),
    "usage as text": ([ROLE, *TEXTS, END, usage(completion_tokens="4"), DONE], 1),
    "usage with a point": ([ROLE, *TEXTS, END, usage(completion_tokens=4.0), DONE], 1),
    "usage before the end": ([ROLE, *TEXTS, USAGE, END, DONE], 1),
    "usage after the end mark": ([ROLE, *TEXTS, END, DONE, USAGE], 1),
    "no end mark": ([ROLE, *TEXTS, END, USAGE], 1),
    "usage is the end": ([ROLE, *TEXTS, USAGE], 1),
    "an empty reason to end": ([x.replace(b'_reason": null', b'_reason": ""') for x in [ROLE, *TEXTS]] + LAST, 1),
    "no blank": ([x.replace(b"data: ", b"data:") for x in [ROLE, *TEXTS, *LAST]], 1),
    "CRLF": ([x.replace(b"\n", b"\r\n") for x in [ROLE, *TEXTS, *LAST]], 1),
    "CR": ([x.replace(b"\n", b"\r") for x in [ROLE, *TEXTS, *LAST]], 1),
    "comments": ([ROLE, b": still there\n\n", *TEXTS, b":\n\n", *LAST], 2),
    "events without data": ([b"data:\n\n", b"data: \n\n", *TEXTS, END, b"data: \n\n", USAGE, DONE], 2),
    "ids and kinds": ([b"id: 1\nevent: message\nretry: 30\n" + x for x in [ROLE, *TEXTS, *LAST]], 1),
    "pings": ([b"event: ping\ndata: {}\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', *TEXTS, *LAST], 2),
    "data on two lines": ([ROLE, *[CUT] * TOKENS, *LAST], 1),
    "a byte order mark": ([b"\xef\xbb\xbf" + ROLE, *TEXTS, *LAST], 1),
    "a byte order mark at the first text": ([b"\xef\xbb\xbf" + TEXT, *TEXTS[1:], *LAST], 0),
    "an error of null": ([x.replace(b'"model"', b'"error": null, "model"') for x in [ROLE, *TEXTS, *LAST]], 1),
    "a blank first": ([ROLE, delta(content="\n\n"), *TEXTS[1:], *LAST], 1),
    "messages": ([*[MESSAGE] * TOKENS, *LAST], 0),
    "letters of several bytes": ([ROLE, *[delta(content="漢字🙂")] * TOKENS, *LAST], 1),
    "raw letters": ([ROLE, *[TEXT.replace(b"a ", "漢🙂".encode())] * TOKENS, *LAST], 1),
    "escapes": ([ROLE, *[delta(content='"\\')] * TOKENS, *LAST], 1),
}
"""Events of a good reply of four tokens, and the place of the first that has one."""


@pytest.mark.parametrize("name", GOOD)
def test_a_stream_of_another_shape_has_its_tokens_when_they_come(name: str) -> None:
    events, first = GOOD[name]
    decoder = EventStreamDecoder(Forms(), most_units=100)
    for _ in range(3):
        decoder.reset()
        decoder.feed(CHUNKED)
        seen = []
        for each in events:
            decoder.feed(b"%x\r\n%b\r\n" % (len(each), each))
            seen.append(decoder.events)
        assert seen[first] == 1, seen
        assert first == 0 or seen[first - 1] == 0
        assert decoder.feed(b"0\r\n\r\n")
        assert (decoder.failure, decoder.events, decoder.units) == (Failure.NONE, TOKENS, TOKENS)
        assert decoder.counted


BAD: Mapping[str, tuple[list[bytes], Failure]] = {
    "an error in its midst": (
        [ROLE, TEXT, event(error={"message": "stopped", "code": 500}), DONE],
        Failure.SERVER_ERROR,
    ),
    "no token": ([ROLE, END, usage(completion_tokens=1), DONE], Failure.EMPTY_REPLY),
    "lines without an empty one": ([x[:-1] for x in [ROLE, *TEXTS, *LAST]], Failure.WRONG_REPLY),
    "JSON lines": ([b'{"message": {"content": "a"}, "done": false}\n'] * 4, Failure.WRONG_REPLY),
    "messages of Anthropic": (
        [b'event: x\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"t"}}\n\n'] * 4,
        Failure.EMPTY_REPLY,
    ),
    "a page": ([b"<html>sign in first</html>\n"], Failure.WRONG_REPLY),
}


@pytest.mark.parametrize("name", BAD)
def test_a_stream_that_is_no_good_reply_has_its_failure(name: str) -> None:
    events, failure = BAD[name]
    decoder = EventStreamDecoder(Forms(), most_units=100)
    for _ in range(3):
        decoder.reset()
        decoder.feed(CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in events))
        assert decoder.feed(b"0\r\n\r\n")
        assert decoder.failure == failure


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (says(sized(b'{"data": []}')), "its answer is no list of models"),
        (says(sized(b'[{"id": "m"}]')), "its answer is no list of models"),
        (says(sized(b"", status="404 Not Found")), "HTTP 404"),
        (says(sized(b"{}", status="401 Unauthorized")), "It wants a key"),
    ],
)
def test_a_server_that_names_no_model_is_said_so_with_what_to_do(behaviour: Behaviour, said: str) -> None:
    with HostileServer(behaviour, models=True) as server, pytest.raises(UserError) as refused:
        first_model(urlsplit(f"http://127.0.0.1:{server.port}/v1/completions"), {}, None, 2.0)
    assert said in str(refused.value)
    assert "--model" in str(refused.value)
