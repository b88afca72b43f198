"""Reader of traces: recorded arrivals, and lengths of prompts and replies. Row by row, never whole."""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from os.path import expanduser, expandvars
from pathlib import Path
from typing import ClassVar, TypeVar

Made = TypeVar("Made")

TIME_KEYS = {"at_s": 1, "timestamp": 1000}
"""Keys of a time in a trace -> the number of their units in a second."""
PROMPT_KEYS, OUTPUT_KEYS = ("prompt_tokens", "input_length"), ("output_tokens", "output_length")
BLOCK_TOKENS = 512
"""Tokens per block of `hash_ids` as Mooncake publishes them; other traces have other blocks."""
DATES_S = (1e9, 4.1e9)
"""Seconds since 1970 from 2001 to 2099: a first time among them is a date, not the start of a load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
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
    units since 1970. CSV with a column TIMESTAMP (a date with time; Azure's LLM inference traces) or Timestamp
    (seconds; BurstGPT) begins at its first row. Empty lines are skipped, other keys and columns ignored. One line
    is in memory at a time. Raises ValueError with file and line for a line that cannot be read, OSError for the file.
    """
    return _read(trace, lambda rows, line, at_s: at_s)


def recorded_rows(trace: str, block_tokens: int = BLOCK_TOKENS) -> Iterator[Row]:
    """Yield the requests of a file, in the order of `recorded_arrivals`, with lengths, blocks and class."""
    return _read(trace, lambda rows, line, at_s: rows.row(line, at_s, block_tokens))


def counted_from(trace: str) -> str | None:
    """Return the recorded time from which the times of a file are counted, None for 0. Raises as its rows do."""
    return next(_read(trace, lambda rows, line, at_s: rows.began), None)


def _read(trace: str, make: "Callable[[_JsonRows | _CsvRows, bytes, float], Made]") -> Iterator[Made]:
    row: _JsonRows | _CsvRows | None = None
    last_s: float | None = None
    with file_of(trace).open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                if row is None:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                    row = _JsonRows(line) if line.lstrip().startswith(b"{") else _CsvRows(line)
                    if isinstance(row, _CsvRows):
                        continue
                at_s = row.at_s(line)
                if not (0.0 if last_s is None else last_s) <= at_s < math.inf:
                    raise ValueError(_disorder(at_s, last_s))
                made = make(row, line, at_s)
            except ValueError as error:
                raise ValueError(f"{trace}:{number}: {error}") from None
            last_s = at_s
            yield made


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
        self._began_s = 0.0
        self._began_s = self._date_s(self.at_s(first))

    def _date_s(self, first_s: float) -> float:
        """Return the first time if it is a date since 1970, else 0. Raises ValueError for one in another unit."""
        own = TIME_KEYS[self._key]
        for per_s, unit in ((1, "seconds"), (1000, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")):
            if DATES_S[0] <= first_s * own / per_s < DATES_S[1]:
                if per_s == own:
                    return first_s
                raise ValueError(f"'{self._key}' is {first_s * own:.0f}, as {unit} since 1970; its unit is 1/{own} s")
        return 0.0

    @property
    def began(self) -> str | None:
        """The time from which times are counted, if it is not 0."""
        return f"{datetime.fromtimestamp(self._began_s, UTC):%Y-%m-%d %H:%M:%S} UTC" if self._began_s else None

    def at_s(self, line: bytes) -> float:
        """Return the time of a row. A row that begins with it, as in all known traces, is not parsed whole."""
        found = self._in_front.match(line)
        if found and line.rstrip().endswith(b"}"):
            return float(found[1]) / TIME_KEYS[self._key] - self._began_s
        row = self._object(line)
        if self._key not in row:
            raise ValueError(f"has no '{self._key}'")
        value = row[self._key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
            raise ValueError(f"'{self._key}' is {json.dumps(value)[:40]}, not a time")
        return value / TIME_KEYS[self._key] - self._began_s

    def row(self, line: bytes, at_s: float, block_tokens: int) -> Row:
        """Return a row, whose time is read already."""
        row = self._object(line)
        blocks, name = row.get("hash_ids", []), row.get("class")
        if not isinstance(blocks, list) or not all(type(each) is int for each in blocks):
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
        return Row(
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
    """Rows of comma-separated cells, one of them a date with time, or seconds; counted from the first row."""

    FORMS: ClassVar = {
        "TIMESTAMP": ("ContextTokens", "GeneratedTokens"),
        "Timestamp": ("Request tokens", "Response tokens"),
    }
    """Column of the time in Azure's and in BurstGPT's form -> columns of the lengths of prompt and reply."""
    TIME = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d):([0-5]\d(?:\.\d+)?)(Z|[-+]\d\d:\d\d)?")
    SECONDS = re.compile(rb"\d{1,15}(?:\.\d+)?")

    def __init__(self, header: bytes) -> None:
        names = [name.strip(' "') for name in header.decode(errors="replace").strip().split(",")]
        key = next((name for name in self.FORMS if name in names), None)
        if key is None:
            raise ValueError(
                f"has no column TIMESTAMP or Timestamp, but {', '.join(names)[:80]}; a trace is such a CSV, or JSON "
                "with 'at_s' or 'timestamp'"
            )
        self._key, self._column, self._columns = key, names.index(key), len(names)
        self._names = self.FORMS[key]
        self._lengths = [names.index(name) if name in names else None for name in self._names]
        self._minute: tuple[bytes | None, ...] = ()
        self._minute_s = 0.0
        self._began: tuple[float, float] | None = None
        self._header = ", ".join(names)[:80]

    @property
    def began(self) -> str | None:
        """The time from which times are counted, if it is not 0."""
        minute_s, seconds = self._began or (0.0, 0.0)
        if self._minute:
            return f"{datetime.fromtimestamp(minute_s + seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"{seconds:g} s" if seconds else None

    def at_s(self, line: bytes) -> float:
        """Return the time of a row."""
        cells = line.split(b",")
        if len(cells) != self._columns:
            raise ValueError(f"has {len(cells)} cells where the header has {self._columns}")
        written = cells[self._column].strip(b' "\r\n')
        if self._key == "Timestamp" and self.SECONDS.fullmatch(written):
            self._began = self._began or (0.0, float(written))
            return float(written) - self._began[1]
        found = self.TIME.fullmatch(written)
        if not found:
            shown = cells[self._column].decode(errors="replace").strip()
            raise ValueError(f"{self._key} is '{shown[:40]}'; expected a time such as 2023-11-16 18:15:46.6805900")
        date, minute, seconds, zone = found.groups()
        if (date, minute, zone) != self._minute:
            text = b"%b %b%b" % (date, minute, (zone or b"+00:00").replace(b"Z", b"+00:00"))
            self._minute_s = datetime.fromisoformat(text.decode()).timestamp()
            self._minute = (date, minute, zone)
        self._began = self._began or (self._minute_s, float(seconds))
        return self._minute_s - self._began[0] + (float(seconds) - self._began[1])

    def row(self, line: bytes, at_s: float, block_tokens: int) -> Row:
        """Return a row, whose time is read already. Raises ValueError if one length has a column and the other has
        none."""
        missing = [name for name, at in zip(self._names, self._lengths, strict=True) if at is None]
        if len(missing) == 1:
            raise ValueError(f"has no column '{missing[0]}'; the header is {self._header}. Add it")
        cells = [cell.strip(b' "\r\n').decode(errors="replace") for cell in line.split(b",")]
        prompt, output = (None if at is None or not cells[at] else cells[at] for at in self._lengths)
        return Row(
            at_s=at_s,
            prompt_tokens=None if prompt is None else _tokens(self._names[0], _whole(prompt), 1),
            output_tokens=None if output is None else _tokens(self._names[1], _whole(output), 0),
        )


MOST_TOKENS = 10_000_000


def _whole(text: str) -> object:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text


def _tokens(name: str, value: object, least: int) -> int:
    """Return a length in tokens, at least 1. Raises ValueError for any other value."""
    if type(value) is not int or not least <= value <= MOST_TOKENS:
        raise ValueError(f"'{name}' is {json.dumps(value)[:40]}; expected {least} to {MOST_TOKENS} tokens")
    return max(1, value)


def _disorder(at_s: float, last_s: float | None) -> str:
    if last_s is not None and at_s < last_s:
        return f"lies at {at_s:.9g} s, before the row above it ({last_s:.9g} s). Sort the file by time"
    return f"lies at {at_s:.9g} s; expected a time from the start of load on"
