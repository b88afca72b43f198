"""Plain values of the JSON documents of the results: numbers that may be unknown, settings, moments."""

from datetime import datetime
from typing import Annotated

Number = float | None
Count = int | None
Word = str | None
Setting = float | str | bool | None
Moment = Annotated[str, datetime.fromisoformat]
"""A time of the day, as ISO 8601 has it; the second part of Annotated raises ValueError for what is none."""


def _some_time(value_s: float) -> None:
    if not 0 <= value_s <= LONGEST_S:
        raise ValueError(f"outside of 0 to {LONGEST_S:g} s")


def _some_moment(unix_ns: int) -> None:
    if not 0 <= unix_ns <= LATEST_NS:
        raise ValueError("no time of the years 1970 to 2200")


LONGEST_S = 1e8
LATEST_NS = 7_258_118_400_000_000_000
Seconds = Annotated[float, _some_time] | None
"""How long something took; about three years are more than any load may."""
UnixNs = Annotated[int, _some_moment] | None
