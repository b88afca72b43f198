"""Tokens that a tokenizer counts where a server does not: over one whole text, whatever chunks it came in."""

import json
import sys
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from openai_streams import SERVERS, reads, stream

from seamark.drivers.openai import OpenAi
from seamark.drivers.openai.events import Forms
from seamark.drivers.openai.replies import CountedStream, CountedWhole
from seamark.load.driver import Target
from seamark.model.sample import Failure

pytestmark = pytest.mark.covers("E-FR09")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def pairs(text: str) -> int:
    """A tokenizer that joins letters in twos: tokens of parts are more than those of the whole."""
    return -(-len(text) // 2)


def event(**document: Any) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def said(text: str, **delta: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text, **delta}, "finish_reason": None}])


def decoded(*events: bytes) -> CountedStream:
    decoder = CountedStream(Forms(), 100, pairs)
    decoder.reset()
    for part in (HEAD, *events, b"data: [DONE]\n\n"):
        assert not decoder.feed(part)
    assert decoder.end_of_stream()
    return decoder


def test_a_stream_without_usage_is_as_many_tokens_as_its_whole_text():
    decoder = decoded(said("abc"), said("def"), said("g"))
    assert (decoder.units, decoder.first_units, decoder.counted, decoder.events) == (4, 2, True, 3)


def test_reasoning_answer_and_each_choice_are_texts_of_their_own():
    other = event(choices=[{"index": 1, "delta": {"content": "abc"}, "finish_reason": None}])
    decoder = decoded(said("", reasoning_content="abc"), said("def"), other)
    assert (decoder.units, decoder.first_units) == (6, 2)


def test_what_the_server_counts_stands_and_only_its_first_chunk_is_counted():
    usage = event(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 9})
    decoder = decoded(said("abcdef"), said("g"), usage)
    assert (decoder.units, decoder.first_units, decoder.counted) == (9, 3, True)


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
def test_the_tokens_of_any_servers_stream_are_those_of_a_full_parse(server):
    decoder = CountedStream(Forms(), 100_000, pairs)
    for number in range(150):
        random = Random(f"{server}/{number}")
        wanted = stream(server, random)
        decoder.reset()
        for part in reads(wanted.wire, random):
            decoder.feed(part)
        if wanted.closes:
            decoder.end_of_stream()
        texts: dict[Any, str] = {}
        for document in wanted.said:
            for choice in document["choices"]:
                for place, text in {**choice, **choice.get("delta", {})}.items():
                    if place in ("text", "content", "reasoning_content", "reasoning", "refusal") and text:
                        texts[choice["index"], place] = texts.get((choice["index"], place), "") + text
                for call in choice.get("delta", {}).get("tool_calls") or []:
                    for place in ("name", "arguments"):
                        key = choice["index"], place
                        texts[key] = texts.get(key, "") + (call["function"].get(place) or "")
        counted = sum(map(pairs, texts.values()))
        completion = wanted.usage[1]
        if decoder.failure == Failure.NONE:
            assert decoder.units == (completion or counted or len(wanted.content))


def test_a_whole_reply_without_usage_is_as_many_tokens_as_its_texts():
    decoder = CountedWhole(100, pairs)
    body = json.dumps({"choices": [{"index": 0, "text": "abc"}, {"index": 1, "text": "d"}]}).encode()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert (decoder.units, decoder.counted) == (3, True)


def test_a_driver_with_a_tokenizer_counts_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("tokenizers")
    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: SimpleNamespace(ids=text.split()))
    module.Tokenizer = SimpleNamespace(from_file=lambda path: tokenizer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tokenizers", module)
    (tmp_path / "tokenizer.json").write_text("{}")
    for streams, kind in ((True, CountedStream), (False, CountedWhole)):
        settings = {"tokenizer": str(tmp_path), "stream": streams}
        decoder = OpenAi(Target(settings=settings, data=Path(), ports={"main": 1})).decoder()
        assert type(decoder) is kind
