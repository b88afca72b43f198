"""Whether a server falls behind for good: a pure detector, fed with counts and their time, and who feeds it.

A queue that only happens to be long shrinks again; one that overflows grows from the beginning, or after it was short
for long, at an even pace, while replies come at an even rate. Only all of that together is called over-saturation. No
clock, no process here.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from seamark.model.load_profile import STEADY, warmup_of
from seamark.model.service import Value

BLOCKS = 6
LEAST_S = 2.0
"""No judgement before so much of a load; nor before the warm-up is over by AFTER_WARMUP_S."""
AFTER_WARMUP_S = 1.0
FEWEST_REPLIES = 30
SHARE = 0.1
"""Of what arrives in the second half of the time that is looked at, at least so much is left over."""
ERRORS = 5.0
"""And so many times the standard error that arrivals and replies have by chance."""
BEYOND = 2.0
"""And in the end so many times as many are outstanding as the objective allows by Little's law, where it says."""
EVEN = (0.5, 0.6)
"""Growth in the first half over the second, and the second over the first: at least."""
STEADY_RISE = 0.1
RISE, RISE_LATER, SURE = 1.6, 1.17, 2.5
"""By so much at least does the rate of replies rise, late over early, while requests that take long only pile up: in
the whole time and in its second half (the roots of 2.5 and 1.375, those of a rate that rises from 0). And so many
standard errors make sure that it does not."""
MOST_POINTS = 512

Moments = npt.NDArray[np.float64]
"""Rows of seconds from the start of load, requests due, requests completed."""

Told = tuple[int, int, int]
"""What a worker says of its share: nanoseconds since the start of load, requests due, requests completed."""


class Saturation:
    """Says when outstanding requests (due less completed) have grown steadily from the start of load, or over the
    second half of the time so far where they had not before.

    Memory is constant: of a long load ever fewer moments are kept. `limit_s` is the longest that a reply may take,
    None where no objective says so; `gap_variation` the coefficient of variation of the gaps between arrivals.
    """

    def __init__(self, *, warmup_s: float = 0.0, limit_s: float | None = None, gap_variation: float = 1.0) -> None:
        self._from_s = max(LEAST_S, warmup_s + AFTER_WARMUP_S)
        self._limit_s = limit_s
        self._variance = max(1.0, gap_variation**2)
        self._moments: list[tuple[float, int, int]] = [(0.0, 0, 0)]
        self._every_s = 0.0

    def look(self, at_s: float, due: int, completed: int) -> bool:
        """Take the counts at a moment (later than the last one) and say whether the server is over-saturated."""
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
        """Judge the counts at the ends of BLOCKS equally long parts of that time."""
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
    """Return how many were due and completed at these times."""
    known_s, due, completed = moments.T
    return np.interp(at_s, known_s, due), np.interp(at_s, known_s, completed)


def _began_late(moments: Moments) -> bool:
    """Whether growth began in mid-load: what is outstanding grew in the second half of the time by more than twice as
    much as in the first. Requests that only take long pile up fastest in the beginning."""
    until_s = moments[-1, 0]
    due, completed = _counts(moments, np.array([0.0, until_s / 2, until_s]))
    start, middle, end = due - completed
    return bool(middle - start < EVEN[0] * (end - middle))


def _even(replies: npt.NDArray[np.float64], rise: float | None) -> bool:
    """Whether replies come at an even rate: neither still rising, as while the first requests are under way, nor with
    a gap, as of a server that stood still. The first block may lack those. `rise`: one by so much is ruled out."""
    later = replies[1:]
    if later.sum() < FEWEST_REPLIES or later.min() < 0.5 * later.mean():
        return False
    early, late = later[:2].sum(), later[-2:].sum()
    if rise is not None and rise * early - late < SURE * math.sqrt(rise**2 * early + late):
        return False
    return bool(late - early <= max(math.sqrt(early + late), STEADY_RISE * early))


class SaturationWatch:
    """Adds up what the workers of one load say of their shares, for the detector."""

    def __init__(self, saturation: Saturation) -> None:
        self._saturation = saturation
        self._before_ns = -1

    def look(self, told: Iterable[Told | None]) -> float | None:
        """Return when over-saturation was seen, in seconds from the start of load; None while it is not."""
        known = [each for each in told if each is not None]
        at_ns = max((at for at, _, _ in known), default=-1)
        if at_ns <= self._before_ns:
            return None
        self._before_ns = at_ns
        at_s = at_ns / 1e9
        over = self._saturation.look(at_s, sum(due for _, due, _ in known), sum(done for _, _, done in known))
        return at_s if over else None


def watch_for(settings: Mapping[str, Value], limit_s: float | None) -> SaturationWatch | None:
    """Return what watches a load of these settings; None when they do not ask for it, or its rate is not constant."""
    if not settings.get("stop_when_saturated") or settings.get("pattern") not in STEADY:
        return None
    burstiness = settings.get("burstiness")
    variation = float(burstiness) ** -0.5 if settings["pattern"] == "gamma" and burstiness else 1.0
    return SaturationWatch(Saturation(warmup_s=warmup_of(settings), limit_s=limit_s, gap_variation=variation))
