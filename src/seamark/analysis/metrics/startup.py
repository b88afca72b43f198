"""The start-up that `warmup_s: auto` cuts, and its limits.

A start-up begins with the load, moves the median response time or the throughput in one direction, and ends within
the longest warm-up. Failures, times without replies and replies slower than the rest are never cut: an outage at the
start of a load is part of its result.
"""

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import Batch, Samples
from seamark.model.results.trial_metrics import WarmupCut
from seamark.stats import histogram
from seamark.stats.change import change

Series = NDArray[np.float64]

AFTER_START_UP = "all due after the start-up (warmup_s: auto)"
EVERYTHING = "all due (warmup_s: auto cut nothing)"
MOST_SHARE = 0.25
"""Largest ratio of a load that is cut."""
MOST_PARTS, LEAST_PARTS = 200, 40
REPLIES_A_PART = 10
LEAST_RUN = 3
"""Fewer parts do not show the direction of a series."""
SURE, LEAST_CHANGE = 0.01, 0.1
USUAL = (0.05, 0.95)
"""A part between these quantiles of the rest is like the rest."""
MEDIAN_ERROR = 0.02
SLOWER_THAN_REST = 2.0


def find_start_up(samples: Samples, *, end_ns: int, limit_ns: int, changing: bool) -> WarmupCut:
    """Return the cut of a load that ends at `end_ns`, without figures: at most `limit_ns` and a quarter of it."""
    limit_ns = min(limit_ns, int(MOST_SHARE * end_ns))
    cut_ns, reason = (0, "the rate is meant to change") if changing else _cut(samples, end_ns, limit_ns)
    reason = reason if cut_ns else f"nothing was cut: {reason}"
    return WarmupCut(limit_s=limit_ns / 1e9, cut_s=cut_ns / 1e9, reason=reason)


def _cut(samples: Samples, end_ns: int, limit_ns: int) -> tuple[int, str]:
    """Return the time that is cut and what it is, or 0 and why nothing is."""
    parts = min(MOST_PARTS, samples.rows // REPLIES_A_PART)
    if parts < LEAST_PARTS:
        return 0, f"it takes {LEAST_PARTS * REPLIES_A_PART} requests to tell"
    load = _Parts(samples, end_ns, parts)
    longest = int(limit_ns * parts // end_ns)
    run, name = max((_run(values, longest), name) for name, values in load.series().items())
    if run == 0:
        return 0, "there is no start-up"
    if run > longest:
        return 0, "it is not over within the longest warm-up"
    if why_not := load.why_not(run, longest):
        return 0, why_not
    return round(run * end_ns / parts), f"a start-up of the {name}"


def _run(values: Series, longest: int) -> int:
    """Return the number of leading parts in which a series approaches the rest; 0 for no start-up, `longest` + 1 for
    one that does not end."""
    rest = values[longest:]
    middle, (low, high) = float(np.median(rest)), np.quantile(rest, USUAL)
    falls = bool(values[0] > middle)
    outside = values[: longest + 1] > high if falls else values[: longest + 1] < low
    run = int(np.argmin(outside)) if not outside.all() else longest + 1
    if run < LEAST_RUN or low <= 0 or abs(float(np.median(values[:run])) / middle - 1) <= LEAST_CHANGE:
        return 0
    before = (np.minimum if falls else np.maximum).accumulate(values[: run - 1])
    noise = high / low
    if (values[1:run] > before * noise if falls else values[1:run] < before / noise).any():
        return 0  # it moves in both directions
    return run if change(np.log(np.maximum(values, low / 100))).p <= SURE else 0


class _Parts:
    """A load in equal parts: requests by the part in which they were due, replies by that of their arrival."""

    def __init__(self, samples: Samples, end_ns: int, parts: int) -> None:
        self._width_ns, self._parts = end_ns / parts, parts
        self._replies, self._failed, self._slowest_ns = (np.zeros(parts) for _ in range(3))
        buckets = int(histogram.bucket_indexes(np.array([2**62]), MEDIAN_ERROR)[0]) + 1
        self._times = np.zeros((parts, buckets), dtype=np.int64)
        for batch in samples.batches():
            self._add(batch)

    def series(self) -> dict[str, Series]:
        """Return the median response time of each part (0 without replies) and its replies."""
        below = np.cumsum(self._times, axis=1)
        bucket = (below >= (below[:, -1:] + 1) // 2).argmax(axis=1)
        medians = np.asarray(histogram.bucket_value(bucket, MEDIAN_ERROR), dtype=np.float64)
        return {"median response time": np.where(below[:, -1] > 0, medians, 0.0), "throughput": self._replies}

    def why_not(self, run: int, longest: int) -> str | None:
        """Return why the first `run` parts, of `longest` that may be cut, are not a start-up; None if they are
        one."""
        if failed := int(self._failed[:run].sum()):
            return f"{failed} of its first requests failed"
        if (self._replies[:run] == 0).any():
            return "for a while no reply came"
        medians = np.maximum(self.series()["median response time"], 1.0)
        slowest = self._slowest_ns / medians
        if slowest[:run].max() > SLOWER_THAN_REST * np.quantile(slowest[longest:], USUAL[1]):
            return "some of its first replies are slower than a start-up explains"
        return None

    def _add(self, batch: Batch) -> None:
        good = batch.good
        due, came = self._place(batch.due), self._place(batch.last)
        inside, arrived = (due >= 0) & (due < self._parts), good & (came >= 0) & (came < self._parts)
        self._replies += np.bincount(came[arrived], minlength=self._parts)
        self._failed += np.bincount(due[inside & ~good], minlength=self._parts)
        response = np.maximum(batch.last - batch.due, 1)[inside & good]
        flat = due[inside & good] * self._times.shape[1] + histogram.bucket_indexes(response, MEDIAN_ERROR)
        self._times += np.bincount(flat, minlength=self._times.size).reshape(self._times.shape)
        np.maximum.at(self._slowest_ns, due[inside & good], response)

    def _place(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.floor(times_ns / self._width_ns).astype(np.int64)
