"""Detector of a permanently over-saturated server. Pure: fed with counts and their time, no clock, no process.

A queue that is long by chance shrinks again. One that overflows grows from the beginning of the load, or after a long
stable time, at an even pace, while replies arrive at an even rate. Only all of these together count as
over-saturation.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from seamark.model.load_profile import LoadProfile
from seamark.patterns.table import has_rate, pattern_of

BLOCKS = 6
LEAST_S = 2.0
"""No verdict before this much of a load, nor before AFTER_WARMUP_S after the warm-up."""
AFTER_WARMUP_S = 1.0
FEWEST_REPLIES = 30
SHARE = 0.1
"""At least this share of arrivals in the second half of the interval remains unanswered."""
ERRORS = 5.0
"""And at least this many standard errors of the random difference between arrivals and replies."""
BEYOND = 2.0
"""And in the end at least this many times the outstanding requests that the objective allows by Little's law, if
there is one."""
EVEN = (0.5, 0.6)
"""Least ratio of the growth in the first half to that in the second, and of the second to the first."""
STEADY_RISE = 0.1
RISE, RISE_LATER, SURE = 1.6, 1.17, 2.5
"""Rise of the reply rate (late over early) expected while slow requests only pile up: over the whole time and over
its second half (roots of 2.5 and 1.375, for a rate that rises from 0). SURE standard errors must exclude it."""
MOST_POINTS = 512

Moments = npt.NDArray[np.float64]
"""Rows of seconds since the start of load, requests due, requests completed."""

Progress = tuple[int, int, int]
"""Progress of one worker: ns since the start of load, requests due, requests completed."""


class Saturation:
    """Detects that outstanding requests (due less completed) have grown steadily since the start of load, or over the
    second half of the time where they had not before.

    Memory is constant: of a long load, moments are thinned out. `limit_s` is the longest reply time that the
    objectives allow, None without one; `gap_variation` is the coefficient of variation of inter-arrival gaps.
    """

    def __init__(self, *, warmup_s: float = 0.0, limit_s: float | None = None, gap_variation: float = 1.0) -> None:
        self._from_s = max(LEAST_S, warmup_s + AFTER_WARMUP_S)
        self._limit_s = limit_s
        self._variance = max(1.0, gap_variation**2)
        self._moments: list[tuple[float, int, int]] = [(0.0, 0, 0)]
        self._every_s = 0.0
        self._before_ns = -1

    def update_by(self, progress: Iterable[Progress | None]) -> float | None:
        """Add the progress of all workers of a load; return the time of over-saturation in seconds since the start of
        load, None while there is none."""
        latest = [worker for worker in progress if worker is not None]
        at_ns = max((at for at, _, _ in latest), default=-1)
        if at_ns <= self._before_ns:
            return None
        self._before_ns = at_ns
        over = self.update(at_ns / 1e9, sum(due for _, due, _ in latest), sum(done for _, _, done in latest))
        return at_ns / 1e9 if over else None

    def update(self, at_s: float, due: int, completed: int) -> bool:
        """Add the counts at a time later than the last and return whether the server is over-saturated."""
        if at_s - self._moments[-1][0] >= self._every_s:
            self._moments.append((at_s, due, completed))
        if len(self._moments) > MOST_POINTS:
            del self._moments[1::2]
            self._every_s = 1.5 * (self._moments[-1][0] - self._moments[-2][0])
        if at_s < self._from_s:
            return False
        moments = np.array([*self._moments, (at_s, due, completed)], dtype=np.float64)
        if self._judged(moments, 0.0, at_s, RISE):
            return True
        return at_s >= 2 * self._from_s and _began_late(moments) and self._judged(moments, at_s / 2, at_s, RISE_LATER)

    def _judged(self, moments: Moments, from_s: float, until_s: float, rise: float) -> bool:
        """Test the counts at the ends of BLOCKS equal intervals of that time."""
        due, completed = _counts(moments, np.linspace(from_s, until_s, BLOCKS + 1))
        outstanding, replies, half = due - completed, np.diff(completed), BLOCKS // 2
        came, answered = due[-1] - due[half], completed[-1] - completed[half]
        first, second = outstanding[half] - outstanding[0], outstanding[-1] - outstanding[half]
        if second < max(SHARE * came, ERRORS * math.sqrt(self._variance * came + answered), 1.0):
            return False
        if first < EVEN[0] * second or second < EVEN[1] * first or (np.diff(outstanding) <= 0).any():
            return False
        if self._limit_s is not None:
            rate_rps = came / ((until_s - from_s) / 2)
            if outstanding[-1] < BEYOND * self._limit_s * rate_rps:
                return False
        return _even(replies, rise if self._limit_s is None else None)


def _counts(moments: Moments, at_s: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], ...]:
    """Return the requests due and completed at these times, interpolated."""
    known_s, due, completed = moments.T
    return np.interp(at_s, known_s, due), np.interp(at_s, known_s, completed)


def _began_late(moments: Moments) -> bool:
    """Return whether growth began in mid-load: outstanding requests grew in the second half by more than twice as
    much as in the first. Requests that are merely slow pile up fastest in the beginning."""
    until_s = moments[-1, 0]
    due, completed = _counts(moments, np.array([0.0, until_s / 2, until_s]))
    start, middle, end = due - completed
    return bool(middle - start < EVEN[0] * (end - middle))


def _even(replies: npt.NDArray[np.float64], rise: float | None) -> bool:
    """Return whether replies arrive at an even rate: neither still rising, as while the first requests are in flight,
    nor with a gap, as of a stalled server. The first block may lack replies. A rise by the factor `rise` is excluded
    if given."""
    later = replies[1:]
    if later.sum() < FEWEST_REPLIES or later.min() < 0.5 * later.mean():
        return False
    early, late = later[:2].sum(), later[-2:].sum()
    if rise is not None and rise * early - late < SURE * math.sqrt(rise**2 * early + late):
        return False
    return bool(late - early <= max(math.sqrt(early + late), STEADY_RISE * early))


def saturation_of(load: LoadProfile, limit_s: float | None) -> Saturation | None:
    """Return the detector for a load; None if it does not enable it or its rate is not constant."""
    if not load.stop_when_saturated or not has_rate(load.pattern, "steady"):
        return None
    pattern = pattern_of(load)
    assert pattern is not None
    return Saturation(warmup_s=load.warmup_s, limit_s=limit_s, gap_variation=pattern.gap_variation)
