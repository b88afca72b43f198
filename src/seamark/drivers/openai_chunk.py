"""What one JSON document of an OpenAI server says: whether it carries tokens, how many, and what went wrong."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

REASONING = ("reasoning_content", "reasoning")
"""Where a message, or the delta of one, has tokens that come before its answer."""
ANSWERS = ("content", "refusal")
TEXTS = (*ANSWERS, *REASONING)
"""Where a message, or the delta of one, has tokens."""
CALLS = ("name", "arguments")
"""Where a call of a function has them."""

MOST_CHOICES = 4096
"""More choices than any server gives a reply: one with more is wrong, and is not looked at one by one."""

_decode = json.JSONDecoder().decode


class Usage(NamedTuple):
    """Tokens that a server counted; None for what it does not say. `absurd`: its count is no whole number from 0."""

    prompt: int | None
    completion: int | None
    absurd: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """One event of a stream, or a whole reply.

    `carriers`: choices that carry a token; a role, an empty text and a usage alone do not. `answers`: one of them has
    text that is no reasoning. `tokens`: how many tokens it says it carries, None where it does not. `choice`: index
    of the first choice, None for a chunk without any, whose usage is that of the whole reply.
    """

    carriers: int
    answers: bool
    tokens: int | None
    choice: int | None
    finished: bool
    usage: Usage | None
    failed: bool


def read_chunk(data: bytes) -> Chunk:
    """Read a JSON document. Raises ValueError when it is none, nested too deeply, no object, or has more than
    MOST_CHOICES choices."""
    try:
        document = _decode(data.decode())
    except RecursionError:
        raise ValueError(f"nested too deeply: {data[:200]!r}") from None
    if not isinstance(document, dict):
        raise ValueError(f"not an object: {data[:200]!r}")
    listed = document.get("choices")
    if isinstance(listed, list) and len(listed) > MOST_CHOICES:
        raise ValueError(f"{len(listed)} choices: {data[:200]!r}")
    choices = list(_objects(listed))
    usage = document.get("usage")
    index = choices[0].get("index", 0) if choices else None
    return Chunk(
        carriers=sum(map(_carries, choices)),
        answers=any(text for choice in choices for place, text in texts_in(choice) if place not in REASONING),
        tokens=sum(map(_tokens_in, choices)) or None,
        choice=index if index is None or isinstance(index, int) else 0,
        finished=any(choice.get("finish_reason") for choice in choices),
        usage=_usage(usage) if isinstance(usage, dict) else None,
        failed=bool(document.get("error")) or document.get("object") == "error",
    )


def read_texts(data: bytes) -> list[tuple[tuple[int, str], str]]:
    """Return the texts of tokens in a JSON document that is known to be good, each with its choice and place."""
    choices = _objects(_decode(data.decode()).get("choices"))
    return [
        ((int(choice.get("index") or 0), place), text)
        for choice in choices
        for place, text in texts_in(choice)
        if text and isinstance(text, str)
    ]


def texts_in(choice: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all texts of tokens in a choice, each with the name of its place; an empty one is none."""
    yield "text", choice.get("text")
    for said in _objects([choice.get("delta"), choice.get("message")]):
        yield from ((name, said.get(name)) for name in TEXTS)
        calls = [call.get("function") for call in _objects(said.get("tool_calls"))]
        for call in _objects([*calls, said.get("function_call")]):
            yield from ((name, call.get(name)) for name in CALLS)


def _carries(choice: Mapping[str, Any]) -> bool:
    return bool(choice.get("token_ids")) or any(text for _, text in texts_in(choice))


def _tokens_in(choice: Mapping[str, Any]) -> int:
    """Return how many tokens a choice lists, by number or with their probabilities; 0 when it lists none."""
    listed = choice.get("token_ids")
    if not listed and isinstance(logprobs := choice.get("logprobs"), dict):
        listed = logprobs.get("content") or logprobs.get("tokens")
    return len(listed) if isinstance(listed, list) else 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Usage(
        prompt=prompt if _is_count(prompt) else None,
        completion=completion if _is_count(completion) else None,
        absurd=completion is not None and not _is_count(completion),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())
