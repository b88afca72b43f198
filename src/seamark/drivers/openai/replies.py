"""Whole replies of the OpenAI API, and tokens counted by a tokenizer if the server does not count them.

The text is tokenised once and whole, without special tokens, because tokens of single chunks need not add up to it.
The load does this after the reply's last timestamp: `loop_lag` shows if it delays other requests.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from seamark.drivers.openai.events import Forms, read_chunk, read_texts
from seamark.drivers.openai.stream import BYTE_ORDER_MARK, EventStreamDecoder
from seamark.load.engine.http import HttpDecoder
from seamark.model.sample import Failure


class WholeDecoder(HttpDecoder):
    """Decodes one reply after another. `units` is the server's count (`counted`), else one for each choice with
    tokens; `prompt_units` is its count of the prompts, None if missing.

    A reply without any token is empty, one with an error is the server's failure, one that is not a JSON object is
    wrong. Also wrong is a token count that is not a whole number from 0, or that exceeds both the request's
    `most_units` and the received bytes.
    """

    __slots__ = ("_most_units", "counted", "prompt_units")

    def __init__(self, most_units: int = 0) -> None:
        self._most_units = most_units
        super().__init__()
        self._keep = True

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""
        super().reset()
        self.counted = False
        self.prompt_units: int | None = None

    def _whole(self) -> bool:
        if not 200 <= self.status < 300:
            return super()._whole()
        try:
            chunk = read_chunk(b"".join(self._body))
        except ValueError:
            self.failure = Failure.WRONG_REPLY
            return True
        units, absurd = 0, False
        if chunk.usage is not None:
            self.prompt_units = chunk.usage.prompt
            units = chunk.usage.completion or 0
            absurd = chunk.usage.absurd or units > max(self._most_units, self.body_bytes)
        self.counted = units > 0 and not absurd
        self.units = units if self.counted else chunk.carriers
        if chunk.failed:
            self.failure = Failure.SERVER_ERROR
        elif absurd:
            self.failure = Failure.WRONG_REPLY
        elif not chunk.carriers:  # whatever its usage says
            self.failure = Failure.EMPTY_REPLY
        return True


Count = Callable[[str], int]
"""Returns how many tokens a text is."""
Place = tuple[int, str]
"""The choice of a text, and the name of its place in it."""

_BETWEEN_EVENTS = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class CountedStream(EventStreamDecoder):
    """Like EventStreamDecoder, but counts what the server omits: tokens of a reply and of its first event. Keeps the
    bytes of a reply until it is complete."""

    __slots__ = ("_count_tokens", "_reads")

    def __init__(self, forms: Forms, most_units: int, count: Count) -> None:
        self._count_tokens = count
        super().__init__(forms, most_units)

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""
        super().reset()
        self._reads: list[bytes] = []

    def feed(self, data: bytes) -> bool:
        """Take bytes as they arrived; return True when the reply is complete."""
        self._reads.append(data)
        return super().feed(data)

    def _whole(self) -> bool:
        complete = super()._whole()
        if self.failure or (self.counted and self.first_units):
            return complete
        events = [texts for texts in map(read_texts, _events(_body(self._reads))) if texts]
        if events and not self.first_units:
            self.first_units = _tokens(events[:1], self._count_tokens)
        if units := 0 if self.counted else _tokens(events, self._count_tokens):
            self.units, self.counted = units, True
        return complete


class CountedWhole(WholeDecoder):
    """As WholeDecoder, but the tokens of a reply are counted where the server does not say how many they are."""

    __slots__ = ("_count_tokens",)

    def __init__(self, most_units: int, count: Count) -> None:
        self._count_tokens = count
        super().__init__(most_units)

    def _whole(self) -> bool:
        complete = super()._whole()
        if self.failure or self.counted:
            return complete
        if units := _tokens([read_texts(b"".join(self._body))], self._count_tokens):
            self.units, self.counted = units, True
        return complete


def _tokens(events: Iterable[list[tuple[Place, str]]], count: Count) -> int:
    """Return the tokens of the texts of some events, joined by place."""
    texts: dict[Place, list[str]] = {}
    for event in events:
        for place, text in event:
            texts.setdefault(place, []).append(text)
    return sum(count("".join(parts)) for parts in texts.values())


def _body(reads: Iterable[bytes]) -> bytes:
    """Return the body of a valid reply."""
    kept: list[bytes] = []

    def keep(status: int, body: bytes) -> int:
        kept.append(body)
        return 1

    decoder = HttpDecoder(keep)
    complete = False
    for data in reads:
        complete = decoder.feed(data)
    if not complete:
        decoder.end_of_stream()
    return b"".join(kept)


def _events(body: bytes) -> Iterator[bytes]:
    """Yield the data of the server-sent events with JSON."""
    for block in _BETWEEN_EVENTS.split(body.removeprefix(BYTE_ORDER_MARK)):
        lines = [line[len(b"data:") :].strip() for line in block.splitlines() if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data.startswith(b"{"):
            yield data
