"""What one JSON document of an OpenAI server says: whether it carries tokens, how many, and what went wrong."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
"""Where a message, or the delta of one, has tokens."""
CALLS = ("name", "arguments")
"""Where a call of a function has them."""

_decode = json.JSONDecoder().decode


class Usage(NamedTuple):
    """Tokens that a server counted; None for what it does not say."""

    prompt: int | None
    completion: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """One event of a stream, or a whole reply.

    `carriers`: choices that carry a token; a role, an empty text and a usage alone do not. `tokens`: how many tokens
    it says it carries, None where it does not. `choice`: index of the first choice, None for a chunk without any,
    whose usage is that of the whole reply.
    """

    carriers: int
    tokens: int | None
    choice: int | None
    finished: bool
    usage: Usage | None
    failed: bool


def read_chunk(data: bytes) -> Chunk:
    """Read a JSON document. Raises ValueError when it is none, or no object."""
    document = _decode(data.decode())
    if not isinstance(document, dict):
        raise ValueError(f"not an object: {data[:200]!r}")
    choices = list(_objects(document.get("choices")))
    usage = document.get("usage")
    index = choices[0].get("index", 0) if choices else None
    return Chunk(
        carriers=sum(map(_carries, choices)),
        tokens=sum(map(_tokens_in, choices)) or None,
        choice=index if index is None or isinstance(index, int) else 0,
        finished=any(choice.get("finish_reason") for choice in choices),
        usage=_usage(usage) if isinstance(usage, dict) else None,
        failed=bool(document.get("error")) or document.get("object") == "error",
    )


def _carries(choice: Mapping[str, Any]) -> bool:
    if choice.get("text") or choice.get("token_ids"):
        return True
    for said in _objects([choice.get("delta"), choice.get("message")]):
        if any(said.get(name) for name in TEXTS):
            return True
        calls = [call.get("function") for call in _objects(said.get("tool_calls"))]
        if any(call.get(name) for call in _objects([*calls, said.get("function_call")]) for name in CALLS):
            return True
    return False


def _tokens_in(choice: Mapping[str, Any]) -> int:
    """Return how many tokens a choice lists, by number or with their probabilities; 0 when it lists none."""
    listed = choice.get("token_ids")
    if not listed and isinstance(logprobs := choice.get("logprobs"), dict):
        listed = logprobs.get("content") or logprobs.get("tokens")
    return len(listed) if isinstance(listed, list) else 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(
        prompt=prompt if isinstance(prompt, int) else None,
        completion=completion if isinstance(completion, int) else None,
    )


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())
