"""How late writes were: counts in narrow buckets, so that a figure costs nothing to keep. No clock here."""

from bisect import bisect_right
from dataclasses import dataclass

WIDTH = 1.05
"""A bucket's upper bound to its lower one: quantiles are right within 5 %."""


def _bounds_ns() -> list[int]:
    bounds = [100.0]
    while bounds[-1] < 100e9:
        bounds.append(bounds[-1] * WIDTH)
    return [round(bound) for bound in bounds]


BOUNDS_NS = _bounds_ns()
QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, kw_only=True)
class LatenessSummary:
    """What was seen; None where nothing was written yet."""

    count: int
    total_ns: int
    max_ns: int | None
    quantiles_ns: dict[float, int | None]


class Lateness:
    """Takes the time from deadline to write, one by one."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_NS) + 1)
        self._total_ns = 0
        self._max_ns = 0

    def add(self, late_ns: int) -> None:
        """Take one write in."""
        self._counts[bisect_right(BOUNDS_NS, late_ns)] += 1
        self._total_ns += late_ns
        if late_ns > self._max_ns:
            self._max_ns = late_ns

    def summary(self) -> LatenessSummary:
        """Return count, sum, maximum and quantiles, each the upper bound of its bucket."""
        count = sum(self._counts)
        return LatenessSummary(
            count=count,
            total_ns=self._total_ns,
            max_ns=self._max_ns if count else None,
            quantiles_ns={share: self._quantile(share, count) for share in QUANTILES},
        )

    def _quantile(self, share: float, count: int) -> int | None:
        if not count:
            return None
        seen, wanted = 0, share * count
        for bound_ns, number in zip([*BOUNDS_NS, self._max_ns], self._counts, strict=True):
            seen += number
            if seen >= wanted:
                return min(bound_ns, self._max_ns)
        return self._max_ns
