"""Reader of traces: recorded arrivals, and lengths of prompts and replies. Row by row, never whole."""

import csv
import json
import math
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import expanduser, expandvars
from pathlib import Path
from typing import TypeVar

from seamark.patterns.packed import unpacked

Made = TypeVar("Made")

TIME_KEYS = {"at_s": 1, "timestamp": 1000}
"""Keys of a time in a trace -> the number of their units in a second."""
PROMPT_KEYS, OUTPUT_KEYS = ("prompt_tokens", "input_length"), ("output_tokens", "output_length")
BLOCK_TOKENS = 512
"""Tokens per block of `hash_ids` as Mooncake publishes them; other traces have other blocks."""
DATES_S = (1e9, 4.1e9)
"""Seconds since 1970 from 2001 to 2099: a first time among them is a date, not the start of a load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceRow:
    """One request of a trace. A length is None if the file lacks it; a reply of 0 tokens counts as 1.

    `blocks` identify the content of the prompt, `block_tokens` tokens each: equal ids have equal tokens.
    """

    at_s: float
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    block_tokens: int = BLOCK_TOKENS
    request_class: str | None = None

    @property
    def has_lengths(self) -> bool:
        return self.prompt_tokens is not None or self.output_tokens is not None


def file_of(trace: str) -> Path:
    """Return the file named by a setting `trace`, with `~` and `$NAME` expanded."""
    return Path(expanduser(expandvars(trace)))  # noqa: PTH111  Path's own raises for an unknown user


def recorded_arrivals(trace: str) -> Iterator[float]:
    """Yield the arrivals of a file in seconds, in the order of its rows, which must be that of time.

    `trace` is its path, relative to the working folder; `~` and `$NAME` are expanded.

    The first line decides the form. JSONL with `at_s` (seconds from the start of the load; Seamark's own form) or
    `timestamp` (milliseconds; Mooncake) is used as it is, but counted from its first row if that is a date, in these
    units since 1970. CSV with a column TIMESTAMP (a date with time, as in Azure's LLM inference traces, or seconds,
    as in BurstGPT) begins at its first row; letter case and the separator `,`, `;` or tab are free. Empty lines are
    skipped, other keys and columns ignored. Files may be packed by gzip, bz2 or xz. One line is in memory at a time.
    Raises ValueError with file and line for a line that cannot be read, OSError for the file.
    """
    return _read(trace, lambda rows, line, at_s: at_s)


def recorded_rows(trace: str, block_tokens: int = BLOCK_TOKENS) -> Iterator[TraceRow]:
    """Yield the requests of a file, in the order of `recorded_arrivals`, with lengths, blocks and class."""
    return _read(trace, lambda rows, line, at_s: rows.row(line, at_s, block_tokens))


def counted_from(trace: str) -> str | None:
    """Return the recorded time from which the times of a file are counted, None for 0. Raises as its rows do."""
    return next(_read(trace, lambda rows, line, at_s: rows.began), None)


def _read(trace: str, make: "Callable[[_JsonRows | _CsvRows, bytes, float], Made]") -> Iterator[Made]:
    row: _JsonRows | _CsvRows | None = None
    last_s: float | None = None
    number = 0
    try:
        with unpacked(file_of(trace)) as lines:
            for line in lines:
                number += 1
                if line.isspace():
                    continue
                if row is None:
                    if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                        raise ValueError("is UTF-16 text. Save the file as UTF-8")
                    line = line.removeprefix(BOM_UTF8)
                    row = _JsonRows(line) if line.lstrip()[:1] in (b"{", b"[") else _CsvRows(line)
                    if isinstance(row, _CsvRows):
                        continue
                at_s = row.at_s(line)
                if not (0.0 if last_s is None else last_s) <= at_s < math.inf:
                    raise ValueError(_disorder(at_s, last_s))
                made = make(row, line, at_s)
                last_s = at_s
                yield made
    except ValueError as error:
        raise ValueError(f"{trace}:{number}: {error}" if number else f"{trace}: {error}") from None


class _JsonRows:
    """Rows that are JSON objects, with the time key of the first one."""

    def __init__(self, first: bytes) -> None:
        row = self._object(first)
        key = next((name for name in TIME_KEYS if name in row), None)
        if key is None:
            raise ValueError(f"has neither 'at_s' nor 'timestamp', but {', '.join(map(repr, row)) or 'no key'}")
        self._key = key
        self._in_front = re.compile(
            rb'\s*\{\s*"' + key.encode() + rb'"\s*:\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*[,}]'
        )
        self._per_s, self._began = TIME_KEYS[key], 0.0
        first_time = self.at_s(first) * self._per_s
        self._began = first_time if _is_date(key, first_time, self._per_s) else 0.0

    @property
    def began(self) -> str | None:
        """The time from which times are counted, if it is not 0."""
        return _utc(self._began / self._per_s) if self._began else None

    def at_s(self, line: bytes) -> float:
        """Return the time of a row. A row that begins with it, as in all known traces, is not parsed whole."""
        found = self._in_front.match(line)
        if found and line.rstrip().endswith(b"}"):
            return (float(found[1]) - self._began) / self._per_s
        row = self._object(line)
        if self._key not in row:
            raise ValueError(f"has no '{self._key}'")
        value = row[self._key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
            raise ValueError(f"'{self._key}' is {json.dumps(value)[:40]}, not a time")
        return (value - self._began) / self._per_s

    def row(self, line: bytes, at_s: float, block_tokens: int) -> TraceRow:
        """Return a row, whose time is read already."""
        row = self._object(line)
        blocks, name = row.get("hash_ids"), row.get("class")
        blocks = [] if blocks is None else blocks
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            raise ValueError("'hash_ids' is not a list of whole numbers")
        if not isinstance(name, (str, type(None))):
            raise ValueError(f"'class' is {json.dumps(name)[:40]}, not text")
        prompt_tokens = self._length(row, PROMPT_KEYS, 1)
        if (
            blocks
            and prompt_tokens is not None
            and not 0 <= block_tokens * len(blocks) - prompt_tokens < block_tokens
        ):
            fits = math.ceil(prompt_tokens / block_tokens)
            text = f"has {len(blocks)} ids for {prompt_tokens} tokens, which are {fits} blocks of {block_tokens}"
            raise ValueError(f"{text}. Correct the length, set trace_block_tokens, or remove 'hash_ids'")
        return TraceRow(
            at_s=at_s,
            prompt_tokens=prompt_tokens,
            output_tokens=self._length(row, OUTPUT_KEYS, 0),
            blocks=tuple(blocks),
            block_tokens=block_tokens,
            request_class=name,
        )

    @staticmethod
    def _length(row: dict[str, object], keys: tuple[str, ...], least: int) -> int | None:
        key = next((key for key in keys if row.get(key) is not None), None)
        return None if key is None else _tokens(key, row[key], least)

    @staticmethod
    def _object(line: bytes) -> dict[str, object]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError('is not JSON; expected an object per line, such as {"at_s": 0.25}') from None
        if not isinstance(row, dict):
            raise ValueError('is not a JSON object; expected one per line, such as {"at_s": 0.25}')
        return row


class _CsvRows:
    """Rows of separated cells, one of them a date with time, or seconds; counted from the first row. Letter case,
    blanks and underscores of the columns are free."""

    FORMS = (("ContextTokens", "GeneratedTokens"), ("Request tokens", "Response tokens"))
    """Columns of the lengths of prompt and reply, as Azure and as BurstGPT publish them."""
    TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d):([0-5]\d(?:\.\d+)?)(Z|[-+]\d\d:\d\d)?", re.ASCII)
    SECONDS = re.compile(r"\d{1,20}(?:\.\d+)?", re.ASCII)

    def __init__(self, header: bytes) -> None:
        self._separator = max(",;\t", key=header.decode(errors="replace").count)
        names = self._cells(header)
        self._places = {_plain(name): at for at, name in reversed([*enumerate(names)])}
        if (column := self._places.get("timestamp")) is None:
            raise ValueError(
                f"has no column TIMESTAMP, but {', '.join(names)[:80]}; a trace is such a CSV, or JSON "
                "with 'at_s' or 'timestamp'"
            )
        self._key, self._column, self._columns = names[column], column, len(names)
        forms = (form for form in self.FORMS if any(_plain(name) in self._places for name in form))
        self._names = next(forms, self.FORMS[0])
        self._lengths = [self._places.get(_plain(name)) for name in self._names]
        self._minute: tuple[str | None, ...] = ()
        self._minute_s = 0.0
        self._began: tuple[float, float] | None = None
        self._header = ", ".join(names)[:80]

    def _cells(self, line: bytes) -> list[str]:
        text = line.decode(errors="replace").strip("\r\n")
        try:
            cells = (
                next(csv.reader([text], delimiter=self._separator)) if '"' in text else text.split(self._separator)
            )
        except csv.Error as error:
            raise ValueError(f"is no CSV: {error}") from None
        return [cell.strip() for cell in cells]

    @property
    def began(self) -> str | None:
        """The time from which times are counted, if it is not 0."""
        minute_s, seconds = self._began or (0.0, 0.0)
        if self._minute or seconds >= DATES_S[0]:
            return _utc(minute_s + seconds)
        return f"{seconds:g} s" if seconds else None

    def at_s(self, line: bytes) -> float:
        """Return the time of a row."""
        cells = self._cells(line)
        if len(cells) != self._columns:
            raise ValueError(f"has {len(cells)} cells where the header has {self._columns}")
        written = cells[self._column]
        if not self._minute and self.SECONDS.fullmatch(written):
            if self._began is None:
                _is_date(self._key, float(written), 1)
                self._began = 0.0, float(written)
            return float(written) - self._began[1]
        found = self.TIME.fullmatch(written)
        if not found or (self._began and not self._minute):
            raise ValueError(f"{self._key} is '{written[:40]}'; expected a time such as 2023-11-16 18:15:46.6805900")
        date, minute, seconds, zone = found.groups()
        if (date, minute, zone) != self._minute:
            text = f"{date} {minute}{(zone or '+00:00').replace('Z', '+00:00')}"
            self._minute_s = datetime.fromisoformat(text).timestamp()
            self._minute = (date, minute, zone)
        self._began = self._began or (self._minute_s, float(seconds))
        return self._minute_s - self._began[0] + (float(seconds) - self._began[1])

    def row(self, line: bytes, at_s: float, block_tokens: int) -> TraceRow:
        """Return a row, whose time is read already. Raises ValueError if one length has a column and the other has
        none."""
        missing = [name for name, at in zip(self._names, self._lengths, strict=True) if at is None]
        if len(missing) == 1:
            raise ValueError(f"has no column '{missing[0]}'; the header is {self._header}. Add it")
        cells = self._cells(line)
        prompt, output = (None if at is None or not cells[at] else cells[at] for at in self._lengths)
        return TraceRow(
            at_s=at_s,
            prompt_tokens=None if prompt is None else _tokens(self._names[0], _whole(prompt), 1),
            output_tokens=None if output is None else _tokens(self._names[1], _whole(output), 0),
        )


MOST_TOKENS = 10_000_000


def _plain(name: str) -> str:
    return name.casefold().replace(" ", "").replace("_", "")


def _is_date(name: str, first: float, per_s: int) -> bool:
    """Return whether a first time is a date since 1970. Raises ValueError for one in another unit."""
    for units, unit in ((1, "seconds"), (1000, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")):
        if DATES_S[0] <= first / units < DATES_S[1]:
            if units == per_s:
                return True
            own = "s" if per_s == 1 else f"1/{per_s} s"
            raise ValueError(f"'{name}' is {first:.0f}, as {unit} since 1970; its unit is {own}")
    return False


def _utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _whole(text: str) -> object:
    return int(text.partition(".")[0]) if re.fullmatch(r"[0-9]{1,18}(\.0*)?", text) else text


def _tokens(name: str, value: object, least: int) -> int:
    """Return a length in tokens, at least 1. Raises ValueError for any other value."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not least <= value <= MOST_TOKENS:
        raise ValueError(f"'{name}' is {json.dumps(value)[:40]}; expected {least} to {MOST_TOKENS} tokens")
    return max(1, value)


def _disorder(at_s: float, last_s: float | None) -> str:
    if last_s is not None and at_s < last_s:
        return f"lies at {at_s:.9g} s, before the row above it ({last_s:.9g} s). Sort the file by time"
    return f"lies at {at_s:.9g} s; expected a time from the start of load on"


def is_trace(first: bytes) -> bool:
    """Return whether the first line of a file is a header of CSV with a time, or an object with one."""
    if not first.lstrip().startswith(b"{"):
        try:
            _CsvRows(first)
        except ValueError:
            return False
        return True
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):  # the first line of a document that has more
        return False
    return not TIME_KEYS.keys().isdisjoint(row)
