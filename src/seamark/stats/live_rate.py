"""The rate of counts that grow in steps, as they are seen while it lasts. Reads no clock."""

from collections import deque
from collections.abc import Mapping

WINDOW_S = 3.0
"""Steps that are older than this do not count, but for the last one before it."""
QUIET_S = 2.5
"""After so long without a step a rate is of the time until now: writers write at least every 2 s what they have."""


class LiveRate:
    """Adds up the rates of several writers, each of which writes what it has once in a while.

    A count divided by the time between two looks would be 0 where no writer wrote and a multiple of the truth where
    one did. So each writer's rate is what it wrote between two of its own steps over the time between these.
    """

    def __init__(self) -> None:
        self._steps: dict[str, deque[tuple[float, int]]] = {}

    def look(self, at_s: float, counts: Mapping[str, int]) -> float | None:
        """Take every writer's count at a time (rising, any origin); return their rate a second, None while no writer
        has made two steps. What a writer wrote first began at a time that is not known, so it is no rate."""
        for name, count in counts.items():
            steps = self._steps.setdefault(name, deque())
            if count > (steps[-1][1] if steps else 0):
                steps.append((at_s, count))
            while len(steps) > 2 and steps[1][0] <= steps[-1][0] - WINDOW_S:
                steps.popleft()
        rates = [_rate(steps, at_s) for steps in self._steps.values() if len(steps) > 1]
        return sum(rates) if rates else None


def _rate(steps: deque[tuple[float, int]], at_s: float) -> float:
    (from_s, before), (until_s, count) = steps[0], steps[-1]
    usual_s = max(QUIET_S, (until_s - from_s) / (len(steps) - 1))
    end_s = until_s if at_s - until_s <= usual_s else at_s
    return (count - before) / (end_s - from_s)
