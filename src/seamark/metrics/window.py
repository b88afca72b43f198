"""Finds the measured window of a load by rule: MSER-5 truncation, then a trend test. 'Not steady' is a result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.metrics.samples import Samples
from seamark.metrics.timeline import SECOND_NS, Timeline
from seamark.stats.steady import BATCH, mser, trend

WIDTHS_NS = tuple(SECOND_NS * part // 100 for part in (100, 50, 20, 10, 5, 2, 1))
ENOUGH_WINDOWS = 100
LEAST_WINDOWS = 40
SURE = 0.01
DRIFT_RATIO = 0.1


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is measured: [start_ns, end_ns] from the start of load, and why."""

    start_ns: int
    end_ns: int
    rule: str
    steady: bool
    reason: str | None = None

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / SECOND_NS


def find_window(
    samples: Samples, *, warmup_s: float, duration_s: float, changing: bool, sending_ended_ns: int | None = None
) -> Window:
    """Return the measured window of a load that runs for `warmup_s + duration_s`.

    `sending_ended_ns` is given when the load ran out of requests before the time was over: the window ends there,
    since afterwards ever fewer requests are in flight. The window begins at the end of the warm-up, later when
    the search finds a transient, and is the whole load after the warm-up when nothing steady is found.
    """
    start_ns, end_ns = round(warmup_s * 1e9), round((warmup_s + duration_s) * 1e9)
    if sending_ended_ns is not None and start_ns < sending_ended_ns < end_ns:
        end_ns = sending_ended_ns
    if changing:
        return Window(
            start_ns=start_ns, end_ns=end_ns, rule="whole", steady=False, reason="the rate is meant to change"
        )
    width_ns = _width_ns(end_ns - start_ns)
    size = (end_ns - start_ns) // width_ns
    if size < LEAST_WINDOWS:
        reason = f"{duration_s:g} s is too short to tell"
        return Window(start_ns=start_ns, end_ns=end_ns, rule="whole", steady=False, reason=reason)
    timeline = Timeline(origin_ns=start_ns, width_ns=width_ns, size=size)
    for batch in samples.batches():
        timeline.add(batch)
    return _search(timeline, end_ns)


def _width_ns(length_ns: int) -> int:
    """1 s where that gives 100 windows; else the widest that does, down to 10 ms."""
    return next((width for width in WIDTHS_NS if length_ns // width >= ENOUGH_WINDOWS), WIDTHS_NS[-1])


def _search(timeline: Timeline, end_ns: int) -> Window:
    start_ns, width_ns = timeline.origin_ns, timeline.width_ns
    rule = f"mser5+trend over {width_ns / 1e9:g} s windows"
    response = _mean_response(timeline)
    cut = 0
    for series in (timeline.replies, response):
        found = mser(series)
        if found.differs and found.at_limit:
            reason = "the load did not settle in its first half"
            return Window(start_ns=start_ns, end_ns=end_ns, rule=rule, steady=False, reason=reason)
        cut = max(cut, found.cut if found.differs else 0)
    for name, series in (("throughput", timeline.replies), ("response time", response)):
        drift = trend(_batched(series[cut:]))
        if drift.p < SURE and abs(drift.change_ratio) > DRIFT_RATIO:
            way = "rose" if drift.change_ratio > 0 else "fell"
            reason = f"{name} {way} by {abs(drift.change_ratio):.0%} over the window"
            return Window(start_ns=start_ns, end_ns=end_ns, rule=rule, steady=False, reason=reason)
    return Window(start_ns=start_ns + cut * width_ns, end_ns=end_ns, rule=rule, steady=True)


def _batched(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of five windows: fewer ties where a window holds few replies."""
    return np.asarray(series[: len(series) // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1))


def _mean_response(timeline: Timeline) -> NDArray[np.float64]:
    """Mean response time of each window; a window without replies repeats the one before it."""
    known = timeline.replies > 0
    if not known.any():
        return np.zeros(timeline.size)
    mean = np.divide(timeline.response_ns, timeline.replies, out=np.zeros(timeline.size), where=known)
    last_known = np.maximum.accumulate(np.where(known, np.arange(timeline.size), -1))
    first = int(np.argmax(known))
    return np.asarray(mean[np.where(last_known < 0, first, last_known)])
