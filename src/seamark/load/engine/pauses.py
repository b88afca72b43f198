"""Pauses of users that think, to the nanosecond: the event loop's own timer has whole milliseconds."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic_ns

from seamark.platform.timerfd import Timer


class Pauses:
    """Calls what was given after a pause that is the same for all, never before its end. To be used inside the event
    loop, and closed."""

    def __init__(self, pause_s: float) -> None:
        self._pause_ns = round(pause_s * 1e9)
        self._timer = Timer()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)

    def then(self, call: Callable[[], None]) -> None:
        """Call after the pause; pauses of one length end in the order in which they began."""
        due_ns = monotonic_ns() + self._pause_ns
        self._waiting.append((due_ns, call))
        if len(self._waiting) == 1:
            self._timer.arm(due_ns)

    def close(self) -> None:
        """Release the timer; what waits is not called."""
        asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()

    def _wake(self) -> None:
        self._timer.clear()
        while self._waiting and self._waiting[0][0] <= monotonic_ns():
            _, call = self._waiting.popleft()
            call()
        if self._waiting:
            self._timer.arm(self._waiting[0][0])
