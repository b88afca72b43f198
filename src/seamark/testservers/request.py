"""Parser of HTTP/1.1 requests and of the OpenAI API's bodies. No sockets."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seamark.testservers.prefix_cache import chained

MAX_HEAD_BYTES = 1 << 16

Endpoint = Literal["completions", "chat", "plain", "health", "models", "metrics", "reset"]
PATHS: Mapping[tuple[str, str], Endpoint] = {
    ("POST", "/v1/completions"): "completions",
    ("POST", "/v1/chat/completions"): "chat",
    ("GET", "/"): "plain",
    ("GET", "/health"): "health",
    ("GET", "/v1/models"): "models",
    ("GET", "/metrics"): "metrics",
    ("POST", "/reset_prefix_cache"): "reset",
}
PAGES = ("health", "models", "metrics", "reset")
"""Endpoints without faults and delays."""


class InvalidRequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """Head of a request. `name`: its x-request-id as a JSON string, "" without one."""

    endpoint: Endpoint
    length: int
    name: str
    closes: bool
    waits: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerParameters:
    """Parameters that determine the answer. `choices` is the number of prompts times n; `usage` is requested in the
    last chunk (end) or in each. `blocks` name the blocks of each prompt beside its number of
    tokens, where a prefix cache asks for them."""

    endpoint: Endpoint
    stream: bool = False
    usage: Literal["none", "end", "each"] = "none"
    max_tokens: int | None = None
    prompt_tokens: int = 0
    choices: int = 1
    blocks: tuple[tuple[tuple[int, ...], int], ...] = ()


def endpoint_of(method: str, path: str) -> Endpoint | None:
    """Return the endpoint of the reference server at a path, None if there is none."""
    return PATHS.get((method, path))


def read_head(head: bytes, endpoint_of: Callable[[str, str], Endpoint | None] = endpoint_of) -> Head:
    """Parse a head without its empty line; `endpoint_of` is called with its method and path.

    Raises InvalidRequestError.
    """
    first, *fields = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise InvalidRequestError(400, "not an HTTP/1.1 request")
    method, path, version = parts
    endpoint = endpoint_of(method, path.partition("?")[0])
    if endpoint is None:
        raise InvalidRequestError(
            404, f"nothing at {method} {path}: there is {', '.join(f'{m} {p}' for m, p in PATHS)}"
        )
    values = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    if "transfer-encoding" in values:
        raise InvalidRequestError(411, "a request's body needs a Content-Length")
    length = values.get("content-length", "0")
    if not length.isdigit():
        raise InvalidRequestError(400, f"Content-Length is {length!r}, not a number")
    name = values.get("x-request-id", "")
    connection = values.get("connection", "").lower()
    return Head(
        endpoint=endpoint,
        length=int(length),
        name=json.dumps(name) if name else "",
        closes="close" in connection or (version == "HTTP/1.0" and "keep-alive" not in connection),
        waits=values.get("expect", "").lower() == "100-continue",
    )


def read_ask(endpoint: Endpoint, body: bytes, *, blocks: bool = False) -> AnswerParameters:
    """Parse the body of a request, with the blocks of its prompts if they are asked for. Raises InvalidRequestError.

    Prompt tokens are the token ids, or the words of a text.
    """
    if endpoint not in ("completions", "chat"):
        return AnswerParameters(endpoint=endpoint)
    try:
        document = json.loads(body)
    except ValueError as error:
        raise InvalidRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidRequestError(400, "the body is not a JSON object")
    options = document.get("stream_options") or {}
    if not isinstance(options, dict):
        raise InvalidRequestError(400, "stream_options is not an object")
    prompts = _prompts(document) if endpoint == "completions" else [_messages_tokens(document)]
    return AnswerParameters(
        endpoint=endpoint,
        stream=bool(document.get("stream")),
        usage=_usage(options),
        max_tokens=_count(document, "max_completion_tokens") or _count(document, "max_tokens"),
        prompt_tokens=sum(map(len, prompts)),
        choices=len(prompts) * (_count(document, "n") or 1),
        blocks=tuple((chained(prompt), len(prompt)) for prompt in prompts) if blocks else (),
    )


def _usage(options: Mapping[str, Any]) -> Literal["none", "end", "each"]:
    if not options.get("include_usage"):
        return "none"
    return "each" if options.get("continuous_usage_stats") else "end"


def _count(document: Mapping[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequestError(400, f"{name} is {value!r}: a whole number from 1")
    return value


def _prompts(document: Mapping[str, Any]) -> list[list[Any]]:
    """Return the tokens of each prompt: a text, token ids, or a list of either."""
    prompt = document.get("prompt")
    if isinstance(prompt, str):
        return [prompt.split()]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(part, int) for part in prompt):
            return [prompt]
        if all(isinstance(part, (str, list)) for part in prompt):
            return [part.split() if isinstance(part, str) else part for part in prompt]
    raise InvalidRequestError(400, "prompt is a text, token ids, or a list of either")


def _messages_tokens(document: Mapping[str, Any]) -> list[str]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequestError(400, "messages is a list of objects with role and content")
    tokens: list[str] = []
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        tokens += [word for part in parts for word in part.split()]
    return tokens
