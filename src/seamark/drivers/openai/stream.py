"""Incremental decoder of streamed OpenAI replies: server-sent events over HTTP/1.1, split anywhere. No clock.

Three ways to recognise an event with tokens, each used if the one before fails: the prefix of the last such event of
this reply; the learnt forms of this server's events; a parse of its JSON. The first two are exact (events.py), so
counts equal those of a full parse.
"""

import re
from collections.abc import Collection

from seamark.drivers.openai.events import (
    MOST_CHOICES,
    MOST_SIZES,
    SEEN,
    Chunk,
    Forms,
    Usage,
    read_chunk,
    usage_in,
)
from seamark.load.engine.http import _CHUNK_SIZE, MOST_SAID_BYTES, HttpDecoder
from seamark.model.sample import Failure

DONE = b"[DONE]"
DATA = b"data:"
DONE_LINE = b"data: [DONE]"
LAST_CHUNK = b"0\r\n\r\n"
QUOTE = ord('"')
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 1 << 20
"""Most bytes of one event, its lines together."""
LONG_BYTES = 1 << 14
MOST_UNITS = 2**31 - 1
"""No sample can hold more than this."""
NO_CHUNK = (0, 0)
NOTHING_HELD = b""
MOST_HEADS = 64

_NO_BEGINNING, _NO_END = b"\n\n", b"\0"
"""No event that is one line begins and ends so."""
_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")


class EventStreamDecoder(HttpDecoder):
    """Decodes one streamed reply after another.

    `events` counts the events with a token: content, reasoning, refusal or tool call; `answered`: one of them was not
    reasoning. `units` is the same until the reply is complete and then the server's count (`counted`), summed over
    the choices of the reply. `first_units` are the tokens of the first such event, 0 if the server omits them.
    `prompt_units` is the server's count of the prompts, None while unknown.

    A reply without any token is empty, one with an error is the server's failure. Invalid JSON is wrong, and so is a
    reply that ends without an end marker, a token count, or a finish reason. Also wrong is a token count that is not
    a whole number from 0, or that exceeds both the request's `most_units` and the received bytes. An event of more
    than MAX_EVENT_BYTES makes a reply too large and ends it.
    """

    streams = True

    __slots__ = (
        "_after_text",
        "_begins",
        "_by_choice",
        "_closed",
        "_crlf",
        "_cut_crlf",
        "_ends",
        "_ends_chunk",
        "_forms",
        "_held",
        "_last",
        "_lined_bytes",
        "_lines",
        "_most_units",
        "_sizes",
        "_skip",
        "_spoken",
        "_thinks",
        "_total",
        "_whole_chunks",
        "answered",
        "counted",
        "events",
        "first_units",
        "prompt_units",
    )

    def __init__(self, forms: Forms, most_units: int = 0) -> None:
        self._forms = forms
        self._most_units = most_units
        self._sizes = forms.sizes
        self._whole_chunks = forms.whole_chunks
        super().__init__()

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""
        super().reset()
        self.events = 0
        self.answered = False
        self.first_units = 0
        self.counted = False
        self.prompt_units: int | None = None
        self._begins = _NO_BEGINNING
        self._skip = len(_NO_BEGINNING)
        self._ends = self._ends_chunk = _NO_END
        self._thinks = False
        self._after_text = 0
        self._crlf = False
        self._cut_crlf = False
        self._held: bytes | bytearray = NOTHING_HELD
        self._lines: list[bytes] = []
        self._lined_bytes = 0
        self._last = b""
        self._spoken = False
        self._closed = False
        self._total: Usage | None = None
        self._by_choice: dict[int, Usage] = {}

    def feed(self, data: bytes) -> bool:
        """Take bytes as they arrived; return True when the reply is complete."""
        if self._state == _CHUNK_SIZE and not self._pending:
            # most reads of a slow stream are one chunk with one event like those before: a short form of `_chunks`
            first, length = self._whole_chunks.get(data[:SEEN], NO_CHUNK)
            if (
                len(data) == length
                and data.startswith(self._begins, first)
                and data.endswith(self._ends_chunk)
                and data.find(b"\n", first) == length - self._after_text
                and data[first + self._skip] != QUOTE
                and not (self._thinks and self._has_quote(data, first, length - 2))
                and not self._held
                and not self._lines
            ):
                self.units = self.events = self.events + 1
                self.body_bytes += length
                self._last = data
                return False
            return self._chunks(data)
        return super().feed(data)

    def _head(self, head: bytes) -> bool:
        """Parse a head; a repeated one is looked up. Heads change with their date, every second."""
        heads = self._forms.heads
        if (status := heads.get(head)) is not None:
            self.status = status
            self._chunked = True
            self._state = _CHUNK_SIZE
            return True
        good = super()._head(head)
        if good and self._chunked and self.keep_alive:
            if len(heads) == MOST_HEADS:
                heads.clear()
            heads[head] = self.status
        return good

    def _chunks(self, data: bytes) -> bool:
        """Consume whole chunks while they are complete; leave partial or unusual ones to the general HTTP decoder."""
        if self._state != _CHUNK_SIZE:
            return super()._chunks(data)
        begins, ends, size_of = self._begins, self._ends, self._sizes.get
        skip, tail = len(begins), 3 if self._crlf else 2
        clean, thinks = not self._held and not self._lines, self._thinks
        at, end = 0, len(data)
        events = start = stop = 0
        while at < end:
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                break
            size = size_of(data[at:line_end]) or self._size(data[at:line_end])
            first = line_end + 2
            after = first + size
            if not size or not data.startswith(b"\r\n", after):
                break
            if (
                clean
                and data.startswith(begins, first)
                and data[first + skip] != QUOTE
                and data.endswith(ends, first, after)
                and data.find(b"\n", first) == after - tail
                and not (thinks and self._has_quote(data, first, after))
            ):
                events += 1
                start, stop = first, after
                self.body_bytes += size
                if after + 2 == end and not at:
                    self._forms.remember(data, first)
            else:
                if events:
                    self._count(events, data[start:stop])
                    events = 0
                if (
                    clean
                    and data.startswith(DATA, first)
                    and data.startswith(b"\n\n", after - 2)
                    and data.find(b"\n", first) == after - 2
                    and data.find(b"\r", first, after) < 0
                ):
                    self.body_bytes += size
                    self._event(data[first : after - 2])
                elif self._take(data[first:after]):
                    return self._too_large()
                begins, ends = self._begins, self._ends
                skip, tail = len(begins), 3 if self._crlf else 2
                clean, thinks = not self._held and not self._lines, self._thinks
            at = after + 2
        if events:
            self._count(events, data[start:stop])
        if end - at == len(LAST_CHUNK) and data.startswith(LAST_CHUNK, at):
            return self._whole()
        return at < end and super()._chunks(data[at:])

    def _size(self, digits: bytes) -> int:
        """Return the size of a chunk, 0 for the last one and for any other line."""
        if not _SIZE.fullmatch(digits):
            return 0
        size = int(digits, 16)
        if len(self._sizes) < MOST_SIZES:
            self._sizes[digits] = size
        return size

    def _count(self, events: int, last: bytes) -> None:
        """Count events with tokens. `last`: the last of them where it was not read, for it may have to be yet."""
        self.events += events
        self.units = self.events
        self._last = last

    def _take(self, data: bytes) -> bool:
        """Consume a piece of the body: lines of events, any of which may continue in the next piece. Return whether
        the unfinished event is too large."""
        if self.status >= 300:
            return super()._take(data)
        begins = self.body_bytes == len(self._held)  # no line of this reply has been read
        self.body_bytes += len(data)
        if self._cut_crlf and data:  # a line ends with its \r, which may be the last byte for long; its \n is none
            self._cut_crlf = False
            data = data.removeprefix(b"\n")
        if self._held:
            if len(self._held) > LONG_BYTES and self._goes_on(data):
                return len(self._held) + self._lined_bytes > MAX_EVENT_BYTES
            data = bytes(self._held) + data
            self._held = NOTHING_HELD
        elif (
            not self._lines
            and data.startswith(DATA)
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
        ):
            self._event(data[:-2])
            return False
        self._crlf = data.endswith(b"\r\n\r\n")
        self._cut_crlf = data.endswith(b"\r")
        lines = data.splitlines(keepends=True)  # at \n, \r and \r\n, as SSE has it
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            self._held = lines.pop()
        if begins and lines:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        for line in lines:
            self._line(line.rstrip(b"\r\n"))
        return len(self._held) + self._lined_bytes > MAX_EVENT_BYTES

    def _goes_on(self, data: bytes) -> bool:
        """Extend a long line by data without its end, and return whether it was such data: it may arrive byte by
        byte."""
        if b"\n" in data or b"\r" in data:
            return False
        if isinstance(self._held, bytes):
            self._held = bytearray(self._held)
        self._held += data
        return True

    def _line(self, line: bytes) -> None:
        """Take a line of an event; an empty one ends it."""
        if line.startswith(DATA):
            self._lines.append(line)
            self._lined_bytes += len(line)
        elif not line and self._lines:
            lines, self._lines = self._lines, []
            self._lined_bytes = 0
            if len(lines) == 1:
                self._event(lines[0])
            else:
                self._read(DATA + b"\n".join(_value(data_line) for data_line in lines))
        elif line.startswith(b"event:") and _value(line) == b"error":
            self._wrong(Failure.SERVER_ERROR)
        elif line.startswith((b"error:", b"{", b"<")):  # the last two: a document in place of events
            self._say(line)
            if line.startswith(b"error:"):
                self._wrong(Failure.SERVER_ERROR)

    def _event(self, line: bytes) -> None:
        """Consume an event with one line of data: recognised by its form, or parsed."""
        if line.endswith(b"}"):
            for form in self._forms.known:
                if line.endswith(form.tail) and (self.events or not form.counts):
                    found = form.beginning.match(line)
                    if found:
                        self.answered = True
                        self._expect(found.group()[:-1], form.tail)  # the last byte belongs to the text
                        self._count(1, line)
                        return
            for thought in self._forms.thoughts:
                if (self.events or not thought.counts) and (found := thought.whole.fullmatch(line)):
                    if "thought" in thought.whole.groupindex:
                        start, end = found.span("thought")
                        self._expect(line[:start], line[end:], thinks=True)
                    self._count(1, line)
                    return
            for silence in self._forms.silent:
                if line.endswith(silence.closing) and (found := silence.whole.fullmatch(line)):
                    self._spoken = True
                    self._heed(silence.chunk, silence.chunk.usage and usage_in(found), line)
                    return
        elif line == DONE_LINE:
            self._spoken = self._closed = True
            return
        self._read(line)

    def _expect(self, begins: bytes, ends: bytes, *, thinks: bool = False) -> None:
        """Expect the next events of this reply to begin and end so. `thinks`: they are reasoning, with another text
        between."""
        self._begins = begins
        self._skip = len(begins)
        self._after_text = 5 if self._crlf else 4
        self._ends = ends + (b"\r\n\r\n" if self._crlf else b"\n\n")
        self._ends_chunk = self._ends + b"\r\n"
        self._thinks = thinks

    def _has_quote(self, data: bytes, first: int, after: int) -> bool:
        """Whether a supposed reasoning text contains a quote: another text may follow it."""
        return data.find(b'"', first + self._skip, after - len(self._ends)) >= 0

    def _read(self, line: bytes) -> None:
        """Read an event's JSON."""
        self._spoken = True
        value = _value(line)
        if value == DONE:
            self._closed = True
        elif value:
            try:
                chunk = read_chunk(value)
            except ValueError:
                self._wrong(Failure.WRONG_REPLY)
                self._say(value)
                return
            self._heed(chunk, chunk.usage, line)
            if chunk.carriers and not self.events:
                self.first_units = min(chunk.tokens or (chunk.usage and chunk.usage.completion) or 0, MOST_UNITS)
            if chunk.carriers:
                self.answered |= chunk.answers
                self._count(1, b"")
            form = self._forms.learn(line, chunk)
            if form is not None and (found := form.beginning.match(line)):
                self._expect(found.group()[:-1], form.tail)

    def _heed(self, chunk: Chunk, usage: Usage | None, line: bytes) -> None:
        """Apply the meaning of an event besides its text."""
        if chunk.failed:
            self._wrong(Failure.SERVER_ERROR)
        elif usage is not None and usage.absurd:
            self._wrong(Failure.WRONG_REPLY)
        self._closed |= chunk.finished
        if usage is not None and chunk.choice is None:
            self._total = usage
        elif usage is not None and chunk.choice is not None:
            self._by_choice[chunk.choice] = usage
            if len(self._by_choice) > MOST_CHOICES:
                self._by_choice.clear()
                self._wrong(Failure.WRONG_REPLY)
        if self.failure:
            self._say(_value(line))

    def _whole(self) -> bool:
        if not 200 <= self.status < 300:
            return super()._whole()
        if self._held or self._lines:
            for line in (*bytes(self._held).splitlines(), b""):
                self._line(line)
        if self._last and not (self._total and self._closed):
            self._read_last()
        self.prompt_units, units, _ = self._total or _sum(self._by_choice.values())
        if max(units or 0, self.first_units) > max(self._most_units, self.body_bytes):
            self._wrong(Failure.WRONG_REPLY)
            units, self.first_units = None, 0
        self.counted = bool(units)
        self.units = units or self.events
        if not self.events:  # whatever its usage says
            self._wrong(Failure.EMPTY_REPLY if self._spoken or not self.body_bytes else Failure.WRONG_REPLY)
        elif not self._closed and not self.counted:
            self._wrong(Failure.WRONG_REPLY)
        return True

    def _read_last(self) -> None:
        """Parse the last event with a token for the rest of its content: in some streams it alone has the usage or
        the end."""
        try:
            chunk = read_chunk(_value(self._last))
        except ValueError:
            self._wrong(Failure.WRONG_REPLY)
        else:
            self._heed(chunk, chunk.usage, self._last)

    def _wrong(self, failure: Failure) -> None:
        """Record a fault of this reply: the first one counts."""
        self.failure = self.failure or failure

    def _say(self, said: bytes) -> None:
        """Keep what this reply says of its fault: the first counts."""
        self._body = self._body or [said[:MOST_SAID_BYTES]]


def _value(line: bytes) -> bytes:
    """Return the meaning of an event's line."""
    return line.partition(b":")[2].strip()


def _sum(usages: Collection[Usage]) -> Usage:
    """Return the usage of choices that were counted one by one."""
    prompts = [usage.prompt for usage in usages if usage.prompt is not None]
    completions = [usage.completion for usage in usages if usage.completion is not None]
    return Usage(sum(prompts) if prompts else None, sum(completions) if completions else None)
