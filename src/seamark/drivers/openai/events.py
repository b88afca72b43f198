"""Events of a streamed reply: their content, parsed as JSON, and a server's recurring forms, learnt from parsed
events.

An event with tokens is recognised by its prefix alone: everything from its first byte to the quote that opens a text,
where keys, brackets and spaces must match and other values may differ. If such a prefix is followed by anything but
the closing quote, the text is not empty and lies where texts are tokens of an answer.

An event of reasoning alone is recognised as a whole, because the text after it may begin the answer: texts and
numbers may differ, but an empty text of the answer must be empty.

An event without tokens (a role, an end, a usage) is recognised as a whole: every byte must match, except numbers and
texts without meaning for a benchmark, and the counts of a usage. No server's form is built in.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

REASONING = ("reasoning_content", "reasoning")
"""Places of tokens that precede the answer, in a message or its delta."""
ANSWERS = ("content", "refusal")
TEXTS = (*ANSWERS, *REASONING)
"""Where a message, or the delta of one, has tokens."""
CALLS = ("name", "arguments")
"""Where a call of a function has them."""

MOST_CHOICES = 4096
"""Limit of choices per reply: a reply with more is wrong and is not parsed further."""

_decode = json.JSONDecoder().decode


class Usage(NamedTuple):
    """A server's token counts; None if missing. `absurd`: a count is not a whole number from 0."""

    prompt: int | None
    completion: int | None
    absurd: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """One event of a stream, or a whole reply.

    `carriers`: choices with a token; a role, an empty text and a usage alone are none. `answers`: one of them has
    text that is not reasoning. `tokens`: the event's own token count, None if missing. `choice`: index of the first
    choice, None for a chunk without any, whose usage is that of the whole reply.
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
        answers=any(text for choice in choices for name, text in texts_in(choice) if name not in REASONING),
        tokens=sum(map(_tokens_in, choices)) or None,
        choice=index if index is None or isinstance(index, int) else 0,
        finished=any(choice.get("finish_reason") for choice in choices),
        usage=_usage(usage) if isinstance(usage, dict) else None,
        failed=_failed(document, choices),
    )


def read_texts(data: bytes) -> list[tuple[tuple[int, str], str]]:
    """Return the texts of tokens in a valid JSON document, each with its choice and place."""
    choices = _objects(_decode(data.decode()).get("choices"))
    return [
        ((int(choice.get("index") or 0), name), text)
        for choice in choices
        for name, text in texts_in(choice)
        if text and isinstance(text, str)
    ]


def texts_in(choice: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all texts of tokens in a choice, each with the name of its place; an empty one is none."""
    yield "text", choice.get("text")
    for part in _objects([choice.get("delta"), choice.get("message")]):
        yield from ((name, part.get(name)) for name in TEXTS)
        calls = [call.get("function") for call in _objects(part.get("tool_calls"))]
        for call in _objects([*calls, part.get("function_call")]):
            yield from ((name, call.get(name)) for name in CALLS)


def _carries(choice: Mapping[str, Any]) -> bool:
    return bool(choice.get("token_ids")) or any(text for _, text in texts_in(choice))


def _tokens_in(choice: Mapping[str, Any]) -> int:
    """Return how many tokens a choice lists, by number or with their probabilities; 0 when it lists none."""
    listed = choice.get("token_ids")
    if not listed and isinstance(logprobs := choice.get("logprobs"), dict):
        listed = logprobs.get("content") or logprobs.get("tokens")
    return len(listed) if isinstance(listed, list) else 0


def _failed(document: Mapping[str, Any], choices: Collection[Mapping[str, Any]]) -> bool:
    """Return whether a document is an error: by a key that is not all empty, by its kind, by the words of one where
    choices should be, or by the end of a choice."""
    error = document.get("error")
    if (any(error.values()) if isinstance(error, dict) else error) or document.get("object") == "error":
        return True
    words = document.get("detail") or (document.get("code") and document.get("message"))
    return ("choices" not in document and isinstance(words, str)) or any(
        choice.get("error") or choice.get("finish_reason") == "error" for choice in choices
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    completion = _count(usage.get("completion_tokens"))
    absurd = completion is None and usage.get("completion_tokens") is not None
    return Usage(prompt=_count(usage.get("prompt_tokens")), completion=completion, absurd=absurd)


def _count(value: Any) -> int | None:
    """Return a whole number from 0, also as a text (`"8"`) and with a point (8.0, `"8.0"`); None for anything
    else."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]{1,18})(?:\.0*)?\s*", value)
        return int(found[1]) if found else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if 0 <= value < float("inf") and value == int(value) else None


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict)) if isinstance(values, list) else iter(())


Path = tuple[bytes, ...]
Way = Literal["silent", "reasoning", "answer"]

TAIL_BYTES = 16
LONGEST_BYTES = 4096
"""Longer events are read, not learnt."""
SEEN = 6
"""Bytes of a read that contain the size line of an HTTP chunk, up to four digits, with its end."""
MOST_SIZES = 8192
MOST_LESSONS = 16
"""A server has few forms of either kind; any further one is parsed."""
ITEM = b"[]"
_STARTS = (b"data:{", b"data: {")

_DELTA = (b"choices", ITEM, b"delta")
TOKEN_PATHS: frozenset[Path] = frozenset(
    [
        (b"choices", ITEM, b"text"),
        *((*_DELTA, name.encode()) for name in TEXTS),
        *((*_DELTA, b"tool_calls", ITEM, b"function", name.encode()) for name in CALLS),
        *((*_DELTA, b"function_call", name.encode()) for name in CALLS),
    ]
)
"""Keys that lead to a text of tokens."""
REASONING_PATHS: frozenset[Path] = frozenset((*_DELTA, name.encode()) for name in REASONING)

_LEXEME = re.compile(rb'\s*+(?:("[^"\\]*+(?:\\.[^"\\]*+)*+")|([{}\[\],:])|(-?[0-9][0-9.eE+-]*+)|(true|false|null))')
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_THOUGHT = rb'"(?P<thought>(?!")[^"\\]*+(?:\\.[^"\\]*+)*+)"'
_NUMBER = rb"-?[0-9][0-9.eE+-]*+"
_WHOLE_NUMBER = rb"(?:0|[1-9][0-9]{0,17}+)(?![0-9.eE])"
_COUNTED: dict[Path, bytes] = {
    (b"usage", b"prompt_tokens"): b"(?P<prompt>%b)" % _WHOLE_NUMBER,
    (b"usage", b"completion_tokens"): b"(?P<completion>%b)" % _WHOLE_NUMBER,
}
_INDEX = (b"choices", ITEM, b"index")
_TELLING = (b"choices", b"object", b"error")
"""The meaning of an event without tokens, besides the counts of a usage."""


@dataclass(kw_only=True, slots=True)
class EventForm:
    """A beginning, up to and with the first byte of the text. `tail`: how all events of this form that were read
    whole have ended. `counts`: they say how many tokens they carry."""

    beginning: re.Pattern[bytes]
    tail: bytes
    counts: bool

    def narrow(self, line: bytes) -> None:
        """Take one more event into account: the tail is the common suffix of all."""
        tail = self.tail
        while not line.endswith(tail):
            tail = tail[1:]
        self.tail = tail


@dataclass(kw_only=True, slots=True)
class Thought:
    """An event of reasoning alone; its text is the group `thought`. Another text of reasoning must be as it was.
    `counts`: such events say how many tokens they carry."""

    whole: re.Pattern[bytes]
    counts: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """An event without a token, with its meaning except its usage (`usage_in`). `closing`: the brackets that end it,
    which distinguish most events at once."""

    whole: re.Pattern[bytes]
    chunk: Chunk
    closing: bytes


def usage_in(found: re.Match[bytes]) -> Usage:
    """Return the usage of an event recognised as one with a usage."""
    prompt, completion = found.group("prompt", "completion")
    return Usage(int(prompt), int(completion))


class Forms:
    """Learnt forms of one server's replies: events, sizes of HTTP chunks (hexadecimal digits: bytes), prefixes of
    reads that were one chunk (start of the content, bytes of the read), and heads of streams on persistent
    connections, with their status. Shared by all connections of a worker."""

    def __init__(self) -> None:
        self.known: list[EventForm] = []
        self.thoughts: list[Thought] = []
        self.silent: list[Silence] = []
        self.sizes: dict[bytes, int] = {}
        self.whole_chunks: dict[bytes, tuple[int, int]] = {}
        self.heads: dict[bytes, int] = {}
        self._lessons = {True: 0, False: 0}

    def remember(self, read: bytes, first: int) -> None:
        """Remember how a read began that was one whole chunk, its content from byte `first` on."""
        if first <= SEEN and len(self.whole_chunks) < MOST_SIZES:
            self.whole_chunks[read[:SEEN]] = (first, len(read))

    def learn(self, line: bytes, chunk: Chunk) -> EventForm | None:
        """Learn from a line `data: {...}` and its parsed event. Return its form if it has one now."""
        if chunk.failed or (chunk.carriers and chunk.usage is not None):
            return None
        if chunk.carriers and not chunk.answers:
            self._learn_thought(line, chunk)
            return None
        counts = chunk.tokens is not None
        for form in self.known:
            if chunk.carriers and form.beginning.match(line):
                form.narrow(line)
                form.counts |= counts
                return form
        silent = not chunk.carriers
        if len(line) > LONGEST_BYTES or not line.startswith(_STARTS) or self._lessons[silent] == MOST_LESSONS:
            return None
        self._lessons[silent] += 1
        way: Way = "silent" if silent else "answer"
        pattern, text_end = _pattern(line, way, any_choice=chunk.usage is None)
        if silent:
            if chunk.usage is None or pattern.groups == 2:
                closing = line[len(line.rstrip(b"}]")) :]
                self.silent.append(Silence(whole=pattern, chunk=chunk, closing=closing))
        elif text_end < len(line):
            tail = line[max(text_end - 1, len(line) - TAIL_BYTES) :]
            self.known.append(EventForm(beginning=pattern, tail=tail, counts=counts))
            return self.known[-1]
        return None

    def _learn_thought(self, line: bytes, chunk: Chunk) -> None:
        counts = chunk.tokens is not None
        for thought in self.thoughts:
            if thought.whole.fullmatch(line):
                thought.counts |= counts
                return
        if len(line) <= LONGEST_BYTES and line.startswith(_STARTS) and len(self.thoughts) < MOST_LESSONS:
            pattern, _ = _pattern(line, "reasoning", any_choice=True)
            self.thoughts.append(Thought(whole=pattern, counts=counts))


def _pattern(line: bytes, way: Way, *, any_choice: bool) -> tuple[re.Pattern[bytes], int]:
    """Return the pattern of a line with valid JSON, and the end of its answer text.

    The pattern of a silent event and of reasoning is that of the whole line; so is that of an answer whose tokens are
    in no text. With `any_choice` the choice of a silent event does not matter.
    """
    silent = way == "silent"
    at = line.index(b"{")
    pieces = [re.escape(line[:at])]
    path: list[bytes] = []
    opened: list[bytes] = []
    key_is_next = False
    while found := _LEXEME.match(line, at):
        string, mark, number, _ = found.groups()
        lexeme = found.group().lstrip()
        pieces.append(re.escape(found.group()[: -len(lexeme)]))
        piece = re.escape(lexeme)
        if string is not None and key_is_next:
            path[-1] = string[1:-1]
            key_is_next = False
        elif string is not None or number is not None:
            place = tuple(path)
            if silent and place in _COUNTED:
                piece = _COUNTED[place] if re.fullmatch(_WHOLE_NUMBER, lexeme) else piece
            elif silent and path[0] in _TELLING and not (any_choice and place == _INDEX and number):
                pass
            elif silent:
                piece = _NUMBER if string is None else _STRING
            elif path[0] == b"error":
                pass
            elif string is not None and place in TOKEN_PATHS and way == "reasoning":
                if place in REASONING_PATHS and len(string) > 2 and _THOUGHT not in pieces:
                    piece = _THOUGHT
            elif string is not None and len(string) > 2 and place in TOKEN_PATHS - REASONING_PATHS:
                pieces.append(b'"[^"]')
                return re.compile(b"".join(pieces)), found.end()
            else:
                piece = _NUMBER if string is None else _STRING
        elif mark in (b"{", b"["):
            opened.append(mark)
            path.append(ITEM)
            key_is_next = mark == b"{"
        elif mark in (b"}", b"]"):
            opened.pop()
            path.pop()
        elif mark == b",":
            key_is_next = opened[-1] == b"{"
        pieces.append(piece)
        at = found.end()
    pieces.append(re.escape(line[at:]))
    return re.compile(b"".join(pieces)), len(line)
