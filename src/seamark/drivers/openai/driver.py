"""Wire driver of servers with the OpenAI API (vLLM, SGLang, llama.cpp, TGI and others): requests and their check.

Prompts, lengths and bodies are made before the clock starts; stream.py, replies.py and items.py decode replies.
"""

import json
import re
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult

from seamark.config.secrets import resolve
from seamark.drivers.http import WANTS_A_KEY, json_object, own_headers
from seamark.drivers.openai.events import Forms, read_chunk
from seamark.drivers.openai.items import UNITS, item_decoder
from seamark.drivers.openai.models import lacking, stage
from seamark.drivers.openai.replies import CountedStream, CountedWhole, WholeDecoder
from seamark.drivers.openai.requests import Ask, Asks, one_of
from seamark.drivers.openai.stream import EventStreamDecoder
from seamark.errors import UserError, did_you_mean
from seamark.load.driver import Body, Hooks, Target, TaskFailure, Wire, whole
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.load.fetch import FetchError, fetch
from seamark.model.service import Value
from seamark.patterns.trace_file import TraceRow
from seamark.platform.tls import reason_of, tls_context

ROLES = ("user", "assistant")
PATHS = {
    "completions": "/completions",
    "chat": "/chat/completions",
    "embeddings": "/embeddings",
    "rerank": "/rerank",
}
CONTENT = {"completions": "prompt", "chat": "messages", "embeddings": "input", "rerank": "documents"}
DECIDED_BY = {
    "prompt": "prompt_len",
    "messages": "prompt_len",
    "input": "prompt_len",
    "documents": "prompt_len",
    "max_tokens": "gen_tokens",
    "stream": "stream",
}
"""Fields that `extra_body` may leave out or rename, but not set -> the setting that does."""
STANDS_FOR = re.compile(r"\{(\w+)\}")
CHECKED_REQUESTS = 4
CHECK_S = 60.0


class OpenAi(Wire):
    """Completions or chats, streamed or whole: the units of a reply are the tokens that the server reports. Also
    embeddings and scores of documents, counted as such. A finite load sends a prompt for each of `items`."""

    unit = "token"

    def __init__(self, target: Target) -> None:
        settings = target.settings
        self._settings = settings
        self._endpoint = one_of(settings, "endpoint", tuple(PATHS))
        self._asks = Asks(settings, self._endpoint, target.load.turns)
        self.kinds: Sequence[str] = self._asks.kinds
        self.body_count = self._asks.count
        self.work_count = whole(settings, "items", 0) or None
        self.unit = UNITS.get(self._endpoint, "token")
        self._counts_items = self._endpoint in UNITS
        self._streams = not self._counts_items and settings.get("stream") is not False
        self._host = target.host
        self._port = next(target.ports[name] for name in ("http", "main") if name in target.ports)
        self._path = path_of(settings, PATHS[self._endpoint])
        own = headers_of(settings)
        self._headers = own if "content-type" in map(str.lower, own) else {"Content-Type": "application/json", **own}
        self.tls = tls_context(settings)
        model = settings.get("served_model") or settings.get("model")
        named = {} if model is None else {"model": model}
        self._fields = named if self._counts_items else _fields(settings, named, streams=self._streams)
        self._extra = json_object(settings, "extra_body", '{"top_p": 0.9}')
        limits = {"query": ""} if self._endpoint == "rerank" else {} if self._counts_items else {"max_tokens": 1}
        _require_known(self._extra, {**self._fields, **limits, CONTENT[self._endpoint]: []})
        choices = self._extra.get("n")
        self._choices = choices if isinstance(choices, int) and choices > 0 else 1
        limited = "max_tokens" not in self._extra or "{max_tokens}" in str(self._extra)
        self._fixes_length = limited and bool(self._extra.get("ignore_eos", self._fields.get("ignore_eos")))
        self._timeout_s = target.load.timeout_s
        if settings.get("caches") == "warm":
            if not self._asks.shared and not target.load.mix:
                raise UserError("caches: 'warm' sends the prefixes of a trial, and prefix_len is 0. Set prefix_len.")
            self.warm = self._warm
        self._forms = Forms()
        self._blocks: dict[int, bytes] = {}
        self.most_units = 0

    def address(self) -> tuple[str, int]:
        """Return where the server is."""
        return self._host, self._port

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests, each an Ask. Raises UserError for lengths that no prompt or model can have."""
        return [Body(content=ask, kind=ask.turn) for ask in self._asks.drawn(count, seed)]

    def row_body(self, number: int, row: TraceRow, seed: int) -> Body:
        """Return the request for row `number` of a trace. Raises UserError for an impossible one."""
        return Body(content=self._asks.row(number, row, seed))

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the request on the wire; in pieces where its blocks of ids are those of other requests."""
        ask: Ask = body.content
        units = self._asks.items if self._counts_items else len(ask.prompts) * ask.gen_tokens * self._choices
        self.most_units = max(self.most_units, units)
        self.asked_units = units if self._fixes_length or self._counts_items else 0
        in_pieces = ask.blocks and self._endpoint == "completions" and "prompt" not in self._extra
        return self._in_pieces(ask) if in_pieces else self._request(compact(self._document(ask)))

    def decoder(self) -> EventStreamDecoder | HttpDecoder:
        """Return a decoder that counts tokens: by the server's usage, else by the tokenizer of the settings; or one
        that counts embeddings or documents."""
        if self._counts_items:
            return item_decoder(self._endpoint, self._asks.items, all_ranked="top_n" not in self._extra)
        count = self._asks.count_tokens
        if count is None:
            return (
                EventStreamDecoder(self._forms, self.most_units) if self._streams else WholeDecoder(self.most_units)
            )
        if self._streams:
            return CountedStream(self._forms, self.most_units, count)
        return CountedWhole(self.most_units, count)

    def _warm(self, bodies: Iterable[Body]) -> int:
        prefixes = (prefix for body in bodies for prefix in self._asks.prefixes(body.content))
        distinct = {prefix if isinstance(prefix, str) else prefix.tobytes(): prefix for prefix in prefixes}
        for prefix in distinct.values():
            ask = Ask(prompts=[prefix], prompt_units=self._asks.shared, gen_tokens=1)
            try:
                self.prompt_units(ask, self._timeout_s)
            except (OSError, ValueError) as error:
                raise TaskFailure("setup_failed", f"caches: a prefix before the load: {error}") from error
        return len(distinct)

    def prompt_units(self, ask: Ask, limit_s: float) -> int | None:
        """Send one request outside of a load, for one token; return the server's count of prompt tokens.

        Raises OSError if it does not answer within `limit_s`, ValueError for an answer without a count.
        """
        document = self._document(ask if "min_tokens" in self._extra else replace(ask, gen_tokens=1))
        document.pop("stream_options", None)
        if "stream" in document:
            document["stream"] = False
        reply = fetch(
            self._host,
            self._port,
            self._path,
            limit_s=limit_s,
            method="POST",
            headers=self._headers,
            body=compact(document),
            tls=self.tls,
        )
        if reply.status != 200:
            raise ValueError(f"POST {self._path}: HTTP {reply.status}: {reply.body[:300].decode(errors='replace')}")
        usage = read_chunk(reply.body).usage
        return usage and usage.prompt

    def _document(self, ask: Ask) -> dict[str, Any]:
        prompts = [prompt if isinstance(prompt, str) else prompt.tolist() for prompt in ask.prompts]
        content: Any = prompts[0] if len(prompts) == 1 else prompts
        limit: dict[str, Any] = {} if self._counts_items else {"max_tokens": ask.gen_tokens}
        if self._endpoint == "chat":
            roles = ask.roles or [ROLES[at % 2] for at in range(len(prompts))]
            content = [{"role": role, "content": text} for role, text in zip(roles, prompts, strict=True)]
        elif self._endpoint == "rerank":
            limit, content = {"query": prompts[0]}, prompts[1:]
        return self._said({**self._fields, **limit, CONTENT[self._endpoint]: content})

    def _said(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a request as `extra_body` changes them: null leaves one of ours out, and "{NAME}"
        stands for the value of ours with that name."""
        said = {name: value for name, value in self._extra.items() if value is not None or name not in ours}
        if isinstance(options := said.get("stream_options"), dict):
            said["stream_options"] = ours.get("stream_options", {}) | options
        return {**_filled(said, ours), **{name: value for name, value in ours.items() if name not in self._extra}}

    def _in_pieces(self, ask: Ask) -> tuple[bytes, ...]:
        """Return a request whose blocks are the same bytes in every request that shares them."""
        [ids] = ask.prompts
        assert not isinstance(ids, str)
        empty = compact(self._document(replace(ask, prompts=[ids[:0]])))
        assert empty.endswith(b'"prompt":[]}')
        blocks, size = [], ask.block_tokens
        for at, name in enumerate(ask.blocks):
            if name not in self._blocks:
                self._blocks[name] = compact(ids[at * size : (at + 1) * size].tolist())[1:-1] + b","
            blocks.append(self._blocks[name])
        rest = compact(ids[len(blocks) * size :].tolist())[1:-1] + empty[-2:]
        head = self._request(empty[:-2], len(empty) - 2 + sum(map(len, blocks)) + len(rest))
        return (head, *blocks, rest)

    def _request(self, body: bytes, content_bytes: int | None = None) -> bytes:
        """Return a request with this body, or with its beginning and the length of the whole."""
        address, headers = f"{in_url(self._host)}:{self._port}", self._headers
        if content_bytes is None:
            return http_request("POST", self._path, host=address, headers=headers, body=body)
        headers = {**headers, "Content-Length": str(content_bytes)}
        return http_request("POST", self._path, host=address, headers=headers) + body


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Request one token for each of several prompts; return the server's count of prompt tokens over the generated
    length (`prompt_tokens_ratio`), and the ratio of prompts that agree (`prompt_tokens_right_ratio`).

    Tokens added by a chat template or the server's tokenizer make the first ratio exceed 1. Empty for a server that
    does not count prompts. The total time is at most `timeout_s` of the settings and CHECK_S. Raises OSError, or
    ValueError if the server does not answer.
    """
    until_s = time.monotonic() + min(CHECK_S, target.load.timeout_s)
    driver = OpenAi(target)
    if driver.unit == "document":
        return {}  # a server counts the query with each document
    asks: list[Ask] = [body.content for body in driver.bodies(CHECKED_REQUESTS, seed)]
    counted = [(driver.prompt_units(ask, until_s - time.monotonic()), ask.prompt_units) for ask in asks]
    known = [(count, made) for count, made in counted if count is not None]
    if not known:
        return {}
    return {
        "prompt_tokens_ratio": sum(count for count, _ in known) / sum(made for _, made in known),
        "prompt_tokens_right_ratio": sum(count == made for count, made in known) / len(known),
    }


def compact(document: Mapping[str, Any] | list[int]) -> bytes:
    """Return JSON without blanks."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def headers_of(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return the headers of the settings, with the API key, which only the environment of the client has."""
    own, name = own_headers(settings), settings.get("api_key_env")
    if name is None:
        return own
    if "authorization" in map(str.lower, own):
        raise UserError("api_key_env, headers: both set Authorization. Remove one of them.")
    try:
        return {"Authorization": resolve(f"Bearer env:{name}"), **own}
    except UserError as error:
        raise UserError(f"api_key_env: {error}") from None


def path_of(settings: Mapping[str, Value], ending: str) -> str:
    """Return the path of an address of the API, with the query of the setting `base_path`. Raises UserError for a
    base that is an address of the API itself."""
    base, mark, query = str(settings.get("base_path") or "/v1").partition("?")
    base = base.strip("/")
    if base.endswith("completions"):
        raise UserError(f"base_path: '/{base}' names an endpoint. Write what stands before it, such as /v1.")
    return f"/{base}".rstrip("/") + ending + mark + query


def _fields(settings: Mapping[str, Value], named: Mapping[str, Any], *, streams: bool) -> dict[str, Any]:
    """Return the fields that all requests for text share."""
    fields: dict[str, Any] = {"stream": streams, **named}
    if streams:
        fields["stream_options"] = {"include_usage": True}
    temperature = settings.get("temperature", 0.0)
    if temperature is not None:
        fields["temperature"] = temperature
    if settings.get("ignore_eos") is not False:
        fields["ignore_eos"] = True
    return fields


def _require_known(extra: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise UserError for a field that another setting decides, and for a "{NAME}" that is none of our fields."""
    for name in DECIDED_BY.keys() & extra.keys() & ours.keys():
        if extra[name] is not None or (name == "stream" and ours["stream"]):
            remedy = f"Set that, or give a field of another name its value: '{{{name}}}'."
            raise UserError(f"extra_body: '{name}' is set by the setting {DECIDED_BY[name]}. {remedy}")
    try:
        _filled(dict(extra), ours)
    except KeyError as error:
        guess = did_you_mean(error.args[0], ours) or f" Known: {', '.join(ours)}."
        raise UserError(f"extra_body: '{{{error.args[0]}}}' stands for no field that is sent.{guess}") from None


def _filled(value: Any, ours: Mapping[str, Any]) -> Any:
    """Return a JSON value with our values in the places that name them. Raises KeyError for another name."""
    if isinstance(value, dict):
        return {name: _filled(inner, ours) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, ours) for inner in value]
    named = STANDS_FOR.fullmatch(value) if isinstance(value, str) else None
    return ours[named[1]] if named else value


MODELS_S = 10.0
"""Longest total time of the request for models."""
LONGEST_NAME = 1000


def first_model(url: SplitResult, settings: Mapping[str, Value], tls: ssl.SSLContext | None, limit_s: float) -> str:
    """Return the first model of `/models`, within `limit_s` and MODELS_S.

    Raises UserError with the reason if there is none.
    """
    path = path_of(settings, "/models")
    models, key, limit_s = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}", "", min(MODELS_S, limit_s)
    headers = headers_of(settings)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        reply = fetch(url.hostname or "", port, path, limit_s=limit_s, headers=headers, tls=tls)
        if 200 <= reply.status < 300:
            return _named(reply.body)
        why = f"HTTP {reply.status}"
        key = f" {WANTS_A_KEY}" if reply.status in (401, 403) else ""
    except TimeoutError:
        why = f"no whole answer in {limit_s:g} s"
    except FetchError as error:
        why = str(error)
    except OSError as error:
        why = " ".join(reason_of(error).split())
    except (ValueError, LookupError, TypeError, RecursionError):
        why = "its answer is no list of models"
    raise UserError(f"{models}: the server names no model ({why}).{key} Say which with --model, if this is its API.")


def _named(body: bytes) -> str:
    """Return the name in a list of models. Raises ValueError, LookupError, TypeError or RecursionError."""
    name = json.loads(body)["data"][0]["id"]
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise ValueError("no name")
    return name


HOOKS = Hooks(stage=stage, quality=quality, lacking=lacking)
