"""Timeline of a load over its measured window, and its outages: times without a good reply, wherever they lie in it.
Reads in constant memory."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import Samples
from seamark.analysis.metrics.window import Window
from seamark.model.results.trial_metrics import Outage
from seamark.stats.histogram import Histogram

Series = NDArray[np.float64]

MOST_PARTS, LEAST_PARTS = 100, 40
SHORTEST_PART_NS = 10_000_000
REPLIES_A_PART = 5


class RunTimeline:
    """Timeline of a load over `parts` equal parts of its measured window. Replies and failures count where they
    ended."""

    def __init__(self, samples: Samples, window: Window, parts: int) -> None:
        self.start_ns, self.part_ns, self.parts = window.start_ns, (window.end_ns - window.start_ns) / parts, parts
        self.replies, self.failures, self._response_ns = (np.zeros(parts) for _ in range(3))
        for batch in samples.batches():
            good, failed = batch.good, (batch.failure != 0) & batch.was_sent
            self._add(self.replies, batch.last[good])
            self._add(self._response_ns, batch.last[good], (batch.last - batch.due)[good])
            self._add(self.failures, np.where(batch.has_ended, batch.last, batch.due)[failed])

    @property
    def part_s(self) -> float:
        return self.part_ns / 1e9

    def at_s(self, part: int) -> float:
        """Return the start of a part, in seconds from the start of load."""
        return (self.start_ns + part * self.part_ns) / 1e9

    @property
    def response_s(self) -> Series:
        """Mean response time of the replies of each part; a part without any repeats the one before it."""
        known = self.replies > 0
        if not known.any():
            return np.zeros(self.parts)
        mean = np.divide(self._response_ns, self.replies, out=np.zeros(self.parts), where=known) / 1e9
        last_known = np.maximum.accumulate(np.where(known, np.arange(self.parts), -1))
        return np.asarray(mean[np.where(last_known < 0, int(np.argmax(known)), last_known)])

    def _add(self, into: Series, times_ns: NDArray[np.int64], weights: NDArray[np.int64] | None = None) -> None:
        part = ((times_ns - self.start_ns) // self.part_ns).astype(np.int64)
        inside = (times_ns >= self.start_ns) & (part < self.parts)
        chosen = None if weights is None else weights[inside]
        into += np.bincount(part[inside], weights=chosen, minlength=self.parts)


def run_timeline(samples: Samples, window: Window) -> RunTimeline | None:
    """Return the timeline of a load; None if its window or its replies do not suffice for 40 parts of 10 ms and of
    five replies each."""
    longest = int((window.end_ns - window.start_ns) // SHORTEST_PART_NS)
    parts = min(MOST_PARTS, longest, samples.rows // REPLIES_A_PART)
    return RunTimeline(samples, window, parts) if parts >= LEAST_PARTS else None


LEAST_MISSED = 20
"""With fewer expected replies, their absence may be chance."""
TYPICAL = 3
"""A time without replies of at most this many typical replies may lie between two rounds of requests."""
LEAST_S = 0.1
"""A shorter pause counts as slow replies, which percentiles show."""
MOST_SHARE = 0.5
"""A condition for more than half of the window is the state of the service, not an outage."""
BY_CHANCE = 0.001
"""Probability at most with which a load's own gaps, as they spread, have one that is called an outage."""
LEAST_TAIL, MOST_TAIL = 10, 100
"""Longest gaps that show how the gaps of a load spread: a tenth of all, within these numbers."""
FINEST_NS, MOST_BINS = 100_000, 1 << 22

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LoadFacts:
    """What of a load decides whether it was steady, and its server away.

    `response`: response times of the good replies, in ns. `closed`: users send the next request after a reply, and if
    they `think` later than that. `changing`: the rate is meant to change. `virtual`: the load is simulated, and its
    server cannot be away.
    """

    response: Histogram
    closed: bool = False
    think: bool = False
    changing: bool = False
    virtual: bool = False


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Requests due, good replies and failures of a window before each of its bins, of `bin_s` from `start_s` on, and
    before its end."""

    start_s: float
    bin_s: float
    due: Counts
    good: Counts
    failed: Counts

    @property
    def bins(self) -> int:
        return len(self.due) - 1


def _arrivals(samples: Samples, window: Window) -> Arrivals:
    """Count the samples of a window. A failure without an end counts where it was due."""
    length_ns = max(1, window.end_ns - window.start_ns)
    bin_ns = max(FINEST_NS, -(-length_ns // MOST_BINS))
    due, good, failed = counts = np.zeros((3, 1 - (-length_ns // bin_ns)), dtype=np.int64)
    for batch in samples.batches():
        bad = (batch.failure != 0) & batch.was_sent
        ends = np.where(batch.has_ended, batch.last, batch.due)
        for into, times_ns in ((due, batch.due), (good, batch.last[batch.good]), (failed, ends[bad])):
            inside = times_ns[window.holds(times_ns)]
            into += np.bincount(1 + (inside - window.start_ns) // bin_ns, minlength=len(into))
    due, good, failed = counts.cumsum(axis=1)
    return Arrivals(start_s=window.start_ns / 1e9, bin_s=bin_ns / 1e9, due=due, good=good, failed=failed)


def outages(samples: Samples, window: Window, timeline: RunTimeline | None, facts: LoadFacts) -> tuple[Outage, ...]:
    """Return the outages of a load. `timeline` shows times with more failures than good replies, None where it is too
    short for that."""
    if facts.virtual or not facts.response.count:
        return ()
    arrivals, typical_ns = _arrivals(samples, window), facts.response.quantile(0.5) or 0.0
    if facts.closed:  # users in step: their mean is the time of a round
        typical_ns = max(typical_ns, facts.response.mean or 0.0)
    down = _quiet(arrivals, typical_ns / 1e9, facts)
    if timeline is not None:
        down = _joined([*down, *_failing(arrivals, timeline)])
    if sum(end - start for start, end in down) > MOST_SHARE * arrivals.bins:
        return ()
    due, failed, usual = arrivals.due, arrivals.failed, _usual(arrivals, down)
    return tuple(
        Outage(
            start_s=arrivals.start_s + start * arrivals.bin_s,
            end_s=arrivals.start_s + end * arrivals.bin_s,
            missed=round(usual * (end - start)) if facts.closed else int(due[end] - due[start]),
            failed=int(failed[end] - failed[start]),
        )
        for start, end in down
    )


def _quiet(arrivals: Arrivals, typical_s: float, facts: LoadFacts) -> list[tuple[int, int]]:
    """Return the bins of the gaps between good replies that are outages.

    A gap counts from the first request that waits in it: where nothing is asked for, nothing is missed. Half of those
    that are missed have waited for a typical reply: a burst at the end of a gap is no outage.
    """
    due, good, failed = arrivals.due, arrivals.good, arrivals.failed
    replies, asked = np.flatnonzero(np.diff(good)), np.append(np.flatnonzero(np.diff(due)), arrivals.bins)
    starts, ends = np.append(0, replies + 1), np.append(replies, arrivals.bins)
    begins = np.minimum(asked[np.searchsorted(asked, starts)], ends) if facts.think or not facts.closed else starts
    if facts.closed:  # a user that has a request under way is not due before its reply
        begins = np.where(due[starts] > good[starts] + failed[starts], starts, begins)
    length_s = (ends - begins) * arrivals.bin_s
    fails = failed[ends] - failed[starts]
    long = (length_s >= LEAST_S) & ((length_s >= TYPICAL * typical_s) | (fails >= LEAST_MISSED))
    if facts.closed:
        usual = _usual(arrivals, list(zip(begins[long].tolist(), ends[long].tolist(), strict=True)))
        missed = usual * (ends - begins)
        waited = missed - usual * typical_s / arrivals.bin_s
    else:
        missed = (due[ends] - due[begins]).astype(float)
        before = np.maximum(begins, ends - int(typical_s / arrivals.bin_s))
        waited = due[before] - due[begins]
    missing = (missed >= LEAST_MISSED) & (2 * waited >= LEAST_MISSED)
    failing = long & (fails >= LEAST_MISSED)
    gaps = np.flatnonzero(long & missing & ~failing)
    gaps = gaps[np.argsort(length_s[gaps], kind="stable")]
    usual_s = np.sort(np.delete(length_s, np.append(gaps, np.flatnonzero(failing))))
    while len(gaps) and length_s[gaps[0]] <= _longest(usual_s[usual_s > 0]):
        usual_s, gaps = np.append(usual_s, length_s[gaps[0]]), gaps[1:]  # as long as others: so is this service
    chosen = np.sort(np.append(gaps, np.flatnonzero(failing)))
    return [(int(starts[gap] if facts.closed else begins[gap]), int(ends[gap])) for gap in chosen]


def _longest(lengths: Series) -> float:
    """Return the length that a gap like some others, in rising order, exceeds with probability BY_CHANCE at most.

    Their tail is that of a Weibull distribution, log x = c + theta log log(1 / P), with theta of the longest ones
    (Gardes and Girard, Communications in Statistics 34, 2005). It holds for exponential and lognormal gaps. It is too
    short for Pareto ones, as a rule that holds for these misses stalls of the others. 0 for too few gaps.
    """
    count = len(lengths)
    tail = min(MOST_TAIL, max(LEAST_TAIL, count // 10))
    if count <= tail + 2:
        return 0.0
    least = lengths[-tail - 1]
    spread = np.log(np.log((count + 1) / np.arange(1, tail + 1)) / np.log((count + 1) / (tail + 1)))
    theta = np.log(lengths[-tail:] / least).sum() / spread.sum()
    return float(least * (np.log((count + 1) / BY_CHANCE) / np.log((count + 1) / (tail + 1))) ** theta)


def _failing(arrivals: Arrivals, timeline: RunTimeline) -> list[tuple[int, int]]:
    """Return the bins of the times in which more requests failed than were answered."""
    bins = timeline.part_s / arrivals.bin_s
    spans, begin = [], 0
    for is_down, group in groupby((timeline.failures > 0) & (timeline.replies <= timeline.failures)):
        end = begin + len(list(group))
        if (
            is_down
            and (end - begin) * timeline.part_s >= LEAST_S
            and timeline.failures[begin:end].sum() >= LEAST_MISSED
        ):
            spans.append((round(begin * bins), min(round(end * bins), arrivals.bins)))
        begin = end
    return spans


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that overlap or touch as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _usual(arrivals: Arrivals, down: list[tuple[int, int]]) -> float:
    """Return the good replies of a bin outside of some spans."""
    good = arrivals.good
    lost = sum(end - start for start, end in down)
    answered = int(good[-1]) - sum(int(good[end] - good[start]) for start, end in down)
    return answered / max(1, arrivals.bins - lost)
