"""When a worker stood still: its loop or its watching thread ran much later than it should have. No clock here."""

import heapq
from collections.abc import Sequence

STALL_NS = 100_000_000
MOST = 100


class Stalls:
    """The longest standstills of 0.1 s or more, at most 100 of them."""

    def __init__(self) -> None:
        self._longest: list[tuple[int, int, int]] = []

    def add(self, from_ns: int, until_ns: int) -> None:
        """Take the time between when something was to run and when it ran, in ns from the start of the load."""
        length_ns = until_ns - from_ns
        if length_ns < STALL_NS:
            return
        heapq.heappush(self._longest, (length_ns, from_ns, until_ns))
        if len(self._longest) > MOST:
            heapq.heappop(self._longest)

    def longest(self) -> Sequence[tuple[int, int]]:
        """Return each as (from, until), in the order of their times."""
        return sorted((from_ns, until_ns) for _, from_ns, until_ns in self._longest)
