"""Replay of a recorded trace: the arrivals of a file, streamed. The form of a row is in trace_file.py."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from seamark.patterns.patterns import Pattern, Seconds
from seamark.patterns.trace_file import recorded_arrivals

ROWS = 32
"""Rows that are read at once: as with computed arrivals, few enough to be late for no request."""


@dataclass(frozen=True, kw_only=True)
class Trace(Pattern):
    """The arrivals of a file, their times multiplied by `time_scale`."""

    path: str
    time_scale: float = 1.0

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays of at most ROWS; the random source is not used.

        Raises ValueError with file and line for a row that cannot be read, OSError for the file.
        """
        arrivals = recorded_arrivals(self.path)
        while rows := list(islice(arrivals, ROWS)):
            yield np.array(rows) * self.time_scale

    def expected(self, at_s: float) -> None:
        """Return None: how many there are is in the file alone."""
