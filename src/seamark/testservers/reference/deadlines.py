"""Everything that is still to be written, in one heap, each thing at its own absolute time. Knows no protocol."""

import asyncio
from heapq import heappop, heappush, heapreplace
from time import monotonic_ns
from typing import Protocol

from seamark.platform.timerfd import Timer

EARLY_NS = 150_000
"""The timer is set so much before a deadline: waking up takes the kernel tens of microseconds."""
SPIN_NS = 20_000
"""So close to a deadline there is no going back to the event loop."""
MOST_AT_ONCE = 32
"""After so many writes the loop looks at its sockets: the time when a request was read must be right as well."""
NEVER_NS = 1 << 62


class Due(Protocol):
    """Who has something to write later."""

    def advance(self, number: int, due_ns: int, now_ns: int) -> int:
        """Write what is due of request `number`; return when its next write is due, 0 for no more."""


class Deadlines:
    """Calls `advance` of what is due. uvloop's own timers tick in milliseconds; the kernel's timerfd does not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[int, int, Due]] = []
        self._timer = Timer()
        self._wakes_ns = NEVER_NS
        loop.add_reader(self._timer.fileno(), self._wake)

    def add(self, due_ns: int, number: int, reply: Due) -> None:
        """Have request `number` advance at `due_ns` of CLOCK_MONOTONIC."""
        heappush(self._heap, (due_ns, number, reply))
        if due_ns - EARLY_NS >= self._wakes_ns:
            return
        if due_ns - EARLY_NS <= monotonic_ns():
            self._soon()
        else:
            self._arm(due_ns - EARLY_NS)

    def close(self) -> None:
        """Give the timer back; nothing advances any more."""
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
        """Write all that is due; then spin, look at the sockets or sleep until the next is."""
        heap = self._heap
        left = MOST_AT_ONCE
        self._wakes_ns = 0
        while heap:
            now_ns = monotonic_ns()
            due_ns, number, reply = heap[0]
            wait_ns = due_ns - now_ns
            if wait_ns <= 0:
                if not left:
                    self._soon()
                    return
                left -= 1
                next_ns = reply.advance(number, due_ns, now_ns)
                if next_ns:
                    heapreplace(heap, (next_ns, number, reply))
                else:
                    heappop(heap)
            elif wait_ns > EARLY_NS:
                self._arm(due_ns - EARLY_NS)
                return
            elif wait_ns > SPIN_NS:
                self._soon()
                return
        self._wakes_ns = NEVER_NS
