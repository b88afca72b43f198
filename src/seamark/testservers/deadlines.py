"""Deadlines of all pending writes in one heap, each at its own absolute time, and how late they were written.
Independent of the protocol."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from itertools import accumulate
from time import monotonic_ns

from seamark.platform.timerfd import Timer

EARLY_NS = 150_000
"""Lead of the timer over a deadline: a wake-up takes the kernel tens of microseconds."""
SPIN_NS = 20_000
"""Closer than this to a deadline, spin instead of returning to the event loop."""
MOST_AT_ONCE = 32
"""Writes before sockets are polled again, as the read time of requests must be right as well."""
NEVER_NS = 1 << 62


Advance = Callable[[int, int, int], int]
"""Writes what is due of a request, by its number, the deadline and the present time; returns when its next write is
due, 0 for none."""


class Deadlines:
    """Calls a function at each deadline. Timers of uvloop tick in milliseconds, the kernel's timerfd does not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, Advance]] = []
        self._timer = Timer()
        self._wakes_ns = NEVER_NS
        loop.add_reader(self._timer.fileno(), self._wake)

    def add(self, due_ns: int, number: int, advance: Advance) -> None:
        """Schedule `advance` of request `number` at `due_ns` of CLOCK_MONOTONIC."""
        heappush(self._heap, (due_ns, number, advance))
        if due_ns - EARLY_NS >= self._wakes_ns:
            return
        if due_ns - EARLY_NS <= monotonic_ns():
            self._soon()
        else:
            self._arm(due_ns - EARLY_NS)

    def close(self) -> None:
        """Release the timer; nothing advances any more."""
        self._heap.clear()
        self._loop.remove_reader(self._timer.fileno())
        self._timer.close()

    def _soon(self) -> None:
        self._wakes_ns = 0
        self._loop.call_soon(self._run)

    def _arm(self, at_ns: int) -> None:
        self._wakes_ns = at_ns
        self._timer.arm(at_ns)

    def _wake(self) -> None:
        self._timer.clear()
        if self._wakes_ns:  # else `_run` is called anyway
            self._run()

    def _run(self) -> None:
        """Write everything due; then spin, poll the sockets or sleep until the next deadline."""
        heap = self._heap
        left = MOST_AT_ONCE
        self._wakes_ns = 0
        while heap:
            now_ns = monotonic_ns()
            due_ns, number, advance = heap[0]
            wait_ns = due_ns - now_ns
            if wait_ns <= 0:
                if not left:
                    self._soon()
                    return
                left -= 1
                next_ns = advance(number, due_ns, now_ns)
                if next_ns:
                    heapreplace(heap, (next_ns, number, advance))
                else:
                    heappop(heap)
            elif wait_ns > EARLY_NS:
                self._arm(due_ns - EARLY_NS)
                return
            elif wait_ns > SPIN_NS:
                self._soon()
                return
        self._wakes_ns = NEVER_NS


BOUNDS_NS = [round(100 * 1.05**step) for step in range(426)]
"""Upper bounds of the buckets, to 100 s: quantiles are accurate to 5 %. No numpy, so that a server starts fast."""
QUANTILES = (0.5, 0.9, 0.99, 0.999)


class Lateness:
    """Histogram of the time from deadline to write, in ns."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_NS) + 1)
        self.total_ns = 0
        self.max_ns = 0

    def add(self, late_ns: int) -> None:
        """Add one write."""
        self._counts[bisect_right(BOUNDS_NS, late_ns)] += 1
        self.total_ns += late_ns
        if late_ns > self.max_ns:
            self.max_ns = late_ns

    @property
    def count(self) -> int:
        return sum(self._counts)

    def quantile_ns(self, share: float) -> int | None:
        """Return the upper bound of the bucket of a quantile, None before the first write."""
        wanted = share * self.count
        for bound_ns, seen in zip([*BOUNDS_NS, self.max_ns], accumulate(self._counts), strict=True):
            if seen and seen >= wanted:
                return min(bound_ns, self.max_ns)
        return None
