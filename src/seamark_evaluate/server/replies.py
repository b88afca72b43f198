"""Replies in the form of the OpenAI completions API, with the field `seamark` at the end."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from seamark_evaluate.server.errors import RequestError
from seamark_evaluate.server.generate import Answer, Piece

DONE = b"data: [DONE]\n\n"


def head(model: str, number: int) -> dict[str, Any]:
    """Return the fields that all chunks of the number-th reply of a server share."""
    return {"id": f"cmpl-{number}", "object": "text_completion", "created": int(time.time()), "model": model}


def models(name: str, max_model_len: int) -> dict[str, Any]:
    """Return the list of models: the one that is served."""
    model = {"id": name, "object": "model", "owned_by": "seamark", "max_model_len": max_model_len}
    return {"object": "list", "data": [model]}


def piece_event(head: Mapping[str, Any], piece: Piece) -> bytes:
    """Return the event of one token. Its id is there, so that a client knows how many tokens an event has."""
    choice: dict[str, Any] = {"index": 0, "text": piece.text, "logprobs": None, "finish_reason": piece.finish_reason}
    choice["token_ids"] = [piece.token]
    return event({**head, "choices": [choice]})


def last_event(head: Mapping[str, Any], answer: Answer, *, include_usage: bool) -> bytes:
    """Return the event after the last token, without a choice."""
    usage = {"usage": usage_of(answer)} if include_usage else {}
    return event({**head, "choices": [], **usage, "seamark": answer.facts})


def whole(head: Mapping[str, Any], pieces: Sequence[Piece], answer: Answer) -> dict[str, Any]:
    """Return a reply that is not streamed."""
    text, finish = "".join(piece.text for piece in pieces), pieces[-1].finish_reason
    choice: dict[str, Any] = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    choice["token_ids"] = [piece.token for piece in pieces]
    return {**head, "choices": [choice], "usage": usage_of(answer), "seamark": answer.facts}


def usage_of(answer: Answer) -> dict[str, Any]:
    """Return the counts of tokens; an end token counts, as it was computed."""
    return {
        "prompt_tokens": answer.prompt.tokens,
        "completion_tokens": answer.tokens,
        "total_tokens": answer.prompt.tokens + answer.tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def error_document(error: RequestError) -> dict[str, Any]:
    """Return the body of an error; its `code` is a category of failures."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "code": error.code}}


def event(document: Mapping[str, Any]) -> bytes:
    """Return a server-sent event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return b"data: " + compact(document) + b"\n\n"


def compact(document: Mapping[str, Any]) -> bytes:
    """Return JSON in one line."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
