"""Scraper of a server's Prometheus endpoint, bounded in time, bytes and series.

A parser of our own: that of prometheus_client needs five times the CPU for a page, and one malformed line costs the
page (docs/dependencies.md). The unit of a counter, or of a histogram's or summary's growing part, ends in the word
`total` ("us total", or "total" alone), so that readers need not guess it from the name.
"""

import math
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from urllib.parse import urlsplit

from seamark.load.fetch import fetch
from seamark.model.results.replicas import ANSWERS
from seamark.telemetry.sampler import Reading, Say

MOST_SERIES = 500
MOST_BYTES = 1 << 23
"""A longer page is cut there."""
TIMEOUT_S = 1.0
"""Longest total time of a scrape."""
UNITS = (
    ("_seconds", "s"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
    ("_celsius", "C"),
    ("_joules", "J"),
    ("_us", "us"),
)
TOTAL = "total"
LINE = re.compile(r"[^\r\n]+")
TYPE = re.compile(r"^# TYPE [^\r\n]*", re.MULTILINE)
MOST_TYPES = 10_000
GROWING = {
    "counter": ("_total",),
    "histogram": ("_count", "_sum", "_bucket"),
    "summary": ("_count", "_sum"),
}
"""By type of a metric, the endings of those of its series that only grow."""


class Prometheus:
    """Scrapes one endpoint at most once per `interval_s`; an endpoint that does not answer yields no readings."""

    def __init__(self, url: str, say: Say, interval_s: float = 1.0, *, tls: ssl.SSLContext | None = None) -> None:
        self._url = urlsplit(url)
        self._tls = tls
        self._say = say
        self._interval_s = interval_s
        self._due_s = 0.0
        self._dropped_said = False

    def read(self) -> Iterator[Reading]:
        """Yield the endpoint's series, up to MOST_SERIES; histogram buckets come last and are omitted first."""
        text = self._fetch() if self._due() else None
        if text is None:
            return
        series: list[tuple[str, float]] = []
        buckets: list[tuple[str, float]] = []
        seen = 0
        for name, value in parse(text):
            seen += 1
            kind = buckets if "_bucket" in name.partition("{")[0] else series
            if len(kind) < MOST_SERIES:
                kind.append((name, value))
        if seen > MOST_SERIES and not self._dropped_said:
            self._dropped_said = True
            self._say("series-dropped", kept=MOST_SERIES, seen=seen)
        types = types_of(text)
        for name, value in [*series, *buckets][:MOST_SERIES]:
            yield Reading(source="service", name=name, value=value, unit=unit_of(name, types))

    def _due(self) -> bool:
        """Return whether to scrape now."""
        if time.monotonic() < self._due_s:
            return False
        self._due_s = time.monotonic() + self._interval_s * 0.9
        return True

    def _fetch(self) -> str | None:
        assert self._url.hostname is not None
        try:
            reply = fetch(
                self._url.hostname,
                self._url.port or (80 if self._tls is None else 443),
                self._url.path or "/",
                limit_s=TIMEOUT_S,
                tls=self._tls,
                most_bytes=MOST_BYTES,
                cut=True,
            )
        except OSError:
            return None
        return reply.body.decode("utf-8", errors="replace") if reply.status == 200 else None


class Counters(Prometheus):
    """Scrapes some counters of one endpoint under the names and the source that are given: `wanted` has the metric of
    each, with its labels as printed, or without labels for the sum of all of its series."""

    def __init__(self, source: str, url: str, wanted: Mapping[str, str], say: Say) -> None:
        super().__init__(url, say)
        self._source, self._wanted = source, wanted

    def read(self) -> Iterator[Reading]:
        """Yield each counter that the endpoint has, and whether it answered."""
        if not self._due():
            return
        text = self._fetch()
        yield Reading(source=self._source, name=ANSWERS, value=float(text is not None), unit="")
        sums: dict[str, float] = {}
        for name, value in parse(text or ""):
            for key in {name, name.partition("{")[0]}:
                sums[key] = sums.get(key, 0.0) + value
        for name, metric in self._wanted.items():
            if metric in sums:
                yield Reading(source=self._source, name=name, value=sums[metric], unit=TOTAL)


def parse(text: str) -> Iterator[tuple[str, float]]:
    """Yield name (with labels, as printed) and value of each sample of the text format, without NaN and infinity.

    A malformed line is skipped: the first half of a truncated page must remain usable.
    """
    for match in LINE.finditer(text):
        line = match.group().strip()
        if not line or line.startswith("#"):
            continue
        end = _end_of_name(line)
        fields = line[end:].split()
        try:
            value = float(fields[0])
        except (IndexError, ValueError):
            continue
        if math.isfinite(value):
            yield line[:end], value


def _end_of_name(line: str) -> int:
    """Return the end of name and labels; label values may contain braces, spaces and escaped quotes."""
    brace, space = line.find("{"), line.find(" ")
    if brace < 0 or (0 <= space < brace):
        return space if space >= 0 else len(line)
    quoted, position = False, brace + 1
    while position < len(line):
        letter = line[position]
        if letter == "\\" and quoted:
            position += 1
        elif letter == '"':
            quoted = not quoted
        elif letter == "}" and not quoted:
            return position + 1
        position += 1
    return len(line)


def types_of(text: str) -> dict[str, str]:
    """Return the type of each metric that has a `# TYPE` line, by its name."""
    lines = (match.group().split() for match in islice(TYPE.finditer(text), MOST_TYPES))
    return {words[2]: words[3] for words in lines if len(words) == 4}


def unit_of(name: str, types: Mapping[str, str]) -> str:
    """Return the unit that a metric's name ends in, '' when it names none; with `total` after it for a counter."""
    word = name.partition("{")[0]
    return " ".join(filter(None, (_physical_unit(word), TOTAL if _grows(word, types) else "")))


def _grows(word: str, types: Mapping[str, str]) -> bool:
    """Return whether a series is a counter by `types`: its own type, or that of the metric to which it belongs."""
    if word in types:
        return types[word] == "counter"
    return any(
        word.endswith(ending) and types.get(word.removesuffix(ending)) == kind
        for kind, endings in GROWING.items()
        for ending in endings
    )


def _physical_unit(word: str) -> str:
    for suffix in ("_total", "_sum", "_count", "_bucket"):
        if word.endswith(suffix):
            if suffix in ("_count", "_bucket"):
                return ""
            word = word.removesuffix(suffix)
    return next((unit for ending, unit in UNITS if word.endswith(ending)), "")
