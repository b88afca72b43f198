"""Lag of the client: schedule lag of requests, lag of the event loop, stalls of a worker. In constant memory, no
clock."""

import heapq
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seamark.load.workers.records import read_segment
from seamark.model.sample import MISSING_NS
from seamark.stats.histogram import Accumulator, Histogram


def lag_summary(lags_ns: Histogram) -> dict[str, int] | None:
    """Return p50, p99 and max of lags in ns, or None when nothing was counted."""
    p50, p99 = lags_ns.quantile(0.50), lags_ns.quantile(0.99)
    if p50 is None or p99 is None or lags_ns.maximum is None:
        return None
    return {"p50": round(p50), "p99": round(p99), "max": lags_ns.maximum}


def schedule_lag(segment: Path) -> dict[str, int] | None:
    """Return the schedule lag (`sent - due`) in ns of the requests in a segment that were sent."""
    lags = Accumulator()
    for records in read_segment(segment):
        sent = records[records["sent_ns"] != MISSING_NS]
        lags.add(np.maximum(sent["sent_ns"] - sent["due_ns"], 0))
    return lag_summary(lags.histogram())


STALL_NS = 100_000_000
MOST = 100


class Stalls:
    """The 100 longest stalls of at least 0.1 s: the loop or supervising thread ran much later than planned."""

    def __init__(self) -> None:
        self._longest: list[tuple[int, int, int]] = []

    def add(self, from_ns: int, until_ns: int) -> None:
        """Add the interval between the planned and actual time of a run, in ns since the start of load."""
        length_ns = until_ns - from_ns
        if length_ns < STALL_NS:
            return
        heapq.heappush(self._longest, (length_ns, from_ns, until_ns))
        if len(self._longest) > MOST:
            heapq.heappop(self._longest)

    def longest(self) -> Sequence[tuple[int, int]]:
        """Return the stalls as (from, until) in order of time."""
        return sorted((from_ns, until_ns) for _, from_ns, until_ns in self._longest)
