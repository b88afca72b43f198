"""Current rate of counters that grow in steps. Reads no clock."""

from collections import deque
from collections.abc import Mapping

WINDOW_S = 3.0
"""Older steps are dropped, except the last one before the window."""
QUIET_S = 2.5
"""After this time without a step the rate includes the time until now: writers flush at least every 2 s."""


class LiveRate:
    """Sums the rates of several writers that flush their counts from time to time.

    A difference between two readings would be 0 where no writer flushed and a multiple of the truth where one did. So
    a writer's rate is the difference between two of its own steps over the time between them.
    """

    def __init__(self) -> None:
        self._steps: dict[str, deque[tuple[float, int]]] = {}

    def update(self, at_s: float, counts: Mapping[str, int]) -> float | None:
        """Add every writer's count at a time (increasing, any origin); return the total rate per second, None until a
        writer has made two steps. A writer's first step covers an unknown time, so it gives no rate."""
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
