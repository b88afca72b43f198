"""Types of fields in results: figures that may be unknown, moments, durations. Checks raise ValueError."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

LONGEST_S = 1e8
LATEST_NS = 7_258_118_400_000_000_000
OPTIONAL: Mapping[str, bool] = {"optional": True}
"""Metadata of a field that is left out of its file when it has its default, such as None."""


def _require_duration(value_s: float | None) -> None:
    if value_s is not None and not 0 <= value_s <= LONGEST_S:
        raise ValueError(f"outside of 0 to {LONGEST_S:g} s")


def _require_unix_ns(unix_ns: int | None) -> None:
    if unix_ns is not None and not 0 <= unix_ns <= LATEST_NS:
        raise ValueError("no time of the years 1970 to 2200")


def _require_moment(text: str | None) -> None:
    if text is not None:
        datetime.fromisoformat(text)


Number = float | None
Count = int | None
Word = str | None
Setting = float | str | bool | None
Moment = Annotated[str | None, _require_moment]
"""A point in time as ISO 8601 has it."""
Seconds = Annotated[float | None, _require_duration]
"""A duration in seconds; no load takes the three years of the limit."""
UnixNs = Annotated[int | None, _require_unix_ns]
"""A point in time, in ns since 1970."""
