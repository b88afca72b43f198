"""Encoding of answers: HTTP/1.1, chunked transfer, SSE events and their JSON in the form of vLLM."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from seamark.testservers.behaviour import WRONG_TOKENS, Behaviour
from seamark.testservers.request import AnswerParameters

MODEL = "known"
TOKEN = " tøken"
"""Text of one token; it has a two-byte character, so that a decoder can be tested with half of it."""
PLAIN_BODY = b"the known answer\n"
CREATED_S = 1_700_000_000
LAST_CHUNK = b"0\r\n\r\n"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    411: "Length Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
JSON = "application/json"


def reply(status: int, body: bytes, kind: str, more: str = "") -> bytes:
    """Return a reply with a stated length. `more`: further header lines, each with its line end."""
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def refusal(status: int, message: str, *, closes: bool = False) -> bytes:
    """Return an error in the form of the OpenAI API. `closes`: it is the last on its connection."""
    error = {"message": message, "type": REASONS[status], "param": None, "code": status}
    return reply(status, compact({"error": error}), JSON, "connection: close\r\n" if closes else "")


def models() -> bytes:
    """Return the reply to GET /v1/models."""
    model = {"id": MODEL, "object": "model", "created": CREATED_S, "owned_by": "seamark"}
    return reply(200, compact({"object": "list", "data": [model]}), JSON)


def framed(payload: bytes) -> bytes:
    """Return a piece of a body as one chunk of chunked transfer."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def compact(value: Any) -> bytes:
    """Return JSON in vLLM's form: no spaces, characters in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def usage_of(ask: AnswerParameters, tokens: int, reasoning_tokens: int, behaviour: Behaviour) -> dict[str, Any]:
    """Return the usage object for `tokens` written so far, or a wrong one."""
    usage: dict[str, Any] = {
        "prompt_tokens": ask.prompt_tokens,
        "total_tokens": ask.prompt_tokens + tokens,
        "completion_tokens": WRONG_TOKENS.get(behaviour.usage, tokens),
    }
    if reasoning_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning_tokens}
    return usage


class SseEvents:
    """SSE events for one behaviour; events common to many replies are cached."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._field = behaviour.reasoning_field
        self._behaviour = behaviour
        self._begin = b"data: " if behaviour.space else b"data:"
        self._end = b"\n\n" if behaviour.line_end == "lf" else b"\r\n\r\n"
        self.done = self._begin + b"[DONE]" + self._end
        self.content = lru_cache(maxsize=4096)(self.chunk)

    def event(self, value: Mapping[str, Any]) -> bytes:
        """Return one event."""
        return self._begin + compact(value) + self._end

    def role(self, is_chat: bool, choice: int) -> bytes:
        """Return the first chunk, without tokens: a role in a chat, else an empty text."""
        content = {"delta": {"role": "assistant", "content": ""}} if is_chat else {"text": ""}
        return self.event(_chunk(is_chat, [{"index": choice, **content, "logprobs": None, "finish_reason": None}]))

    def usage(self, ask: AnswerParameters, tokens: int, reasoning_tokens: int) -> bytes:
        """Return the chunk without choices that has the token counts."""
        chunk = _chunk(ask.endpoint == "chat", [])
        return self.event({**chunk, "usage": usage_of(ask, tokens, reasoning_tokens, self._behaviour)})

    def chunk(
        self,
        is_chat: bool,
        choice: int,
        tokens: int,
        reasons: bool,
        finish: str | None,
        usage: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return a content chunk, with the usage so far if given. `content` is the cached form without it."""
        text = TOKEN * tokens
        content = {"delta": {self._field if reasons else "content": text}} if is_chat else {"text": text}
        chunk = _chunk(is_chat, [{"index": choice, **content, "logprobs": None, "finish_reason": finish}])
        return self.event(chunk if usage is None else {**chunk, "usage": usage})


def _chunk(is_chat: bool, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    name, kind = ("chatcmpl-known", "chat.completion.chunk") if is_chat else ("cmpl-known", "text_completion")
    return {"id": name, "object": kind, "created": CREATED_S, "model": MODEL, "choices": choices}


def whole(ask: AnswerParameters, counts: Sequence[int], finish: str, behaviour: Behaviour) -> bytes:
    """Return the reply to a request that is not streamed: chunks of `counts` tokens, the first of them reasoning."""
    reasoning_chunks = behaviour.reasoning_chunks if ask.endpoint == "chat" else 0
    is_chat = ask.endpoint == "chat"
    reasoning, answer = sum(counts[:reasoning_chunks]), sum(counts[reasoning_chunks:])
    message: dict[str, Any] = {"role": "assistant", "content": TOKEN * answer}
    if reasoning:
        message[behaviour.reasoning_field] = TOKEN * reasoning
    content = {"message": message} if is_chat else {"text": TOKEN * answer}
    value: dict[str, Any] = {
        "id": "chatcmpl-known" if is_chat else "cmpl-known",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": CREATED_S,
        "model": MODEL,
        "choices": [
            {"index": choice, **content, "logprobs": None, "finish_reason": finish} for choice in range(ask.choices)
        ],
    }
    if behaviour.usage != "never":
        tokens = (reasoning + answer) * ask.choices
        value["usage"] = usage_of(ask, tokens, reasoning * ask.choices, behaviour)
    return reply(200, compact(value), JSON)
