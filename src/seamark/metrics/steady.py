"""Whether a load was steady over its measured window, from where on, and the figures of that part.

A verdict and an advice beside the headline figures: nothing here decides what is measured.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.metrics.samples import Samples
from seamark.metrics.timeline import SECOND_NS, Timeline
from seamark.metrics.window import Window
from seamark.stats.steady import BATCH, mser, trend

WIDTHS_NS = tuple(SECOND_NS * part // 100 for part in (100, 50, 20, 10, 5, 2, 1))
ENOUGH_WINDOWS = 100
LEAST_WINDOWS = 40
SURE = 0.01
DRIFT_RATIO = 0.1


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """Whether a load was steady; None: that cannot be told, for the given reason.

    `part` is the steady part: the whole window when `steady`, what follows a start-up when there is one, else None.
    """

    steady: bool | None
    reason: str | None = None
    rule: str | None = None
    part: Window | None = None

    @property
    def advised_warmup_s(self) -> float | None:
        """The warm-up that would have left out the start-up; None where a longer one is no remedy."""
        if self.steady or self.part is None:
            return None
        return self.part.start_ns / SECOND_NS


def steady_state(samples: Samples, window: Window, *, changing: bool) -> SteadyState:
    """Judge the measured window of a load. `changing`: its rate is meant to change, so it is not judged.

    MSER-5 on means over equal windows looks for a start-up, a rank test for a trend.
    """
    if changing:
        return SteadyState(steady=None, reason="the rate is meant to change")
    width_ns = _width_ns(window.end_ns - window.start_ns)
    size = (window.end_ns - window.start_ns) // width_ns
    if size < LEAST_WINDOWS:
        return SteadyState(steady=None, reason=f"{window.length_s:g} s is too short to tell")
    timeline = Timeline(origin_ns=window.start_ns, width_ns=width_ns, size=size)
    for batch in samples.batches():
        timeline.add(batch)
    return _judged(timeline, window)


def _width_ns(length_ns: int) -> int:
    """1 s where that gives 100 windows; else the widest that does, down to 10 ms."""
    return next((width for width in WIDTHS_NS if length_ns // width >= ENOUGH_WINDOWS), WIDTHS_NS[-1])


def _judged(timeline: Timeline, window: Window) -> SteadyState:
    rule = f"mser5+trend over {timeline.width_ns / 1e9:g} s windows"
    response = _mean_response(timeline)
    cut = 0
    for series in (timeline.replies, response):
        found = mser(series)
        if found.differs and found.at_limit:
            return SteadyState(steady=False, reason="the load did not settle in its first half", rule=rule)
        cut = max(cut, found.cut if found.differs else 0)
    for name, series in (("throughput", timeline.replies), ("response time", response)):
        drift = trend(_batched(series[cut:]))
        if drift.p < SURE and abs(drift.change_ratio) > DRIFT_RATIO:
            way = "rose" if drift.change_ratio > 0 else "fell"
            reason = f"{name} {way} by {abs(drift.change_ratio):.0%} over the window"
            return SteadyState(steady=False, reason=reason, rule=rule)
    if not cut:
        return SteadyState(steady=True, rule=rule, part=window)
    start_ns = window.start_ns + cut * timeline.width_ns
    part = Window(start_ns=start_ns, end_ns=window.end_ns, rule="after the start-up")
    reason = f"the load settled {(start_ns - window.start_ns) / SECOND_NS:.3g} s after the warm-up"
    return SteadyState(steady=False, reason=reason, rule=rule, part=part)


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
