"""Which request a free connection sends next: closed loop or open loop. Used by the event-loop generator."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns

from seamark.load.arrivals import Nanoseconds
from seamark.load.connection import Connection
from seamark.load.due import Arrived
from seamark.load.generator import Generator
from seamark.load.timer import Timer

EARLY_NS = 150_000
"""The timer is set so much before a request is due: waking up takes the kernel tens of microseconds."""
SPIN_NS = 20_000
"""So close to the due time there is no going back to the event loop."""
NEVER_NS = 1 << 62


class Closed:
    """Every connection is a user who sends the next request when the last reply is in, after a pause."""

    def __init__(
        self,
        generator: Generator,
        connections: list[Connection],
        *,
        worker: int,
        workers: int,
        requests: int | None,
        think_time_s: float,
    ) -> None:
        self._generator = generator
        self._connections = connections
        self._worker = worker
        self._workers = workers
        self._requests = NEVER_NS if requests is None else requests
        self._think_time_s = think_time_s
        self.sent = 0
        self.backlog_max = 0
        self.spin_ns = 0

    def start(self) -> None:
        """Let every user send."""
        for connection in self._connections:
            self._send(connection)

    def free(self, connection: Connection) -> None:
        """Let the user of this connection send again, after a pause if users pause."""
        if self._think_time_s:
            asyncio.get_running_loop().call_later(self._think_time_s, self._send, connection)
        else:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        now_ns = monotonic_ns()
        if now_ns < self._generator.deadline_ns and self.sent < self._requests:
            index = self.sent * self._workers + self._worker
            self.sent += 1
            self._generator.begin(connection, index, now_ns, now_ns)

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        return now_ns >= self._generator.deadline_ns or self.sent >= self._requests

    def watch(self, now_ns: int) -> None:
        """A closed loop has no backlog."""

    def scheduled(self, now_ns: int) -> int:
        """Return how many requests were due: in a closed loop, those that were sent."""
        return self.sent

    def close(self) -> None:
        """Nothing to give back."""


class Open:
    """Requests are due by a schedule, whatever the replies do; without a free connection they wait in order."""

    def __init__(
        self,
        generator: Generator,
        connections: list[Connection],
        *,
        worker: int,
        workers: int,
        schedule: Callable[[], Iterator[Nanoseconds]],
    ) -> None:
        self._generator = generator
        self._idle = deque(connections)
        self._worker = worker
        self._workers = workers
        self._arrived = Arrived(schedule())
        self._blocks = schedule()
        self._block: Iterator[int] = iter(())
        self._timer = Timer()
        self._starved = False
        self._polled_ns = 0
        self._polled_completed = 0
        self.sent = 0
        self.backlog_max = 0
        self.spin_ns = 0
        self._due_ns = NEVER_NS

    def start(self) -> None:
        """Wait for the first arrival."""
        self._due_ns = self._next()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)
        self._send_due()

    def free(self, connection: Connection) -> None:
        """Use the connection for what waits, or keep it for what comes."""
        self._idle.append(connection)
        if self._starved:
            self._starved = False
            self._send_due()

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        return now_ns >= self._generator.deadline_ns or self._due_ns == NEVER_NS

    def watch(self, now_ns: int) -> None:
        """Note how many requests are due and wait for a connection."""
        self.backlog_max = max(self.backlog_max, self.scheduled(now_ns) - self.sent)

    def scheduled(self, now_ns: int) -> int:
        """Return how many requests were due by `now_ns`."""
        return self._arrived.until(now_ns - self._generator.epoch_ns)

    def close(self) -> None:
        """Give the timer back; called after the load."""
        asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()

    def _next(self) -> int:
        """Return when the next request is due, NEVER_NS after the last."""
        at_ns = next(self._block, None)
        if at_ns is None:
            block = next(self._blocks, None)
            if block is None:
                return NEVER_NS
            self._block = iter(block.tolist())
            at_ns = next(self._block)
        return at_ns + self._generator.epoch_ns

    def _wake(self) -> None:
        self._timer.clear()
        self._send_due()

    def _poll(self) -> None:
        """Come back from a look at the sockets shortly before a request is due."""
        if self._generator.completed == self._polled_completed:
            self.spin_ns += monotonic_ns() - self._polled_ns
        self._send_due()

    def _send_due(self) -> None:
        """Send all that is due; then spin, poll or sleep until the next is."""
        idle, generator = self._idle, self._generator
        spun_from_ns = 0
        while True:
            now_ns = monotonic_ns()
            wait_ns = self._due_ns - now_ns
            if wait_ns <= 0:
                if spun_from_ns:
                    self.spin_ns += now_ns - spun_from_ns
                    spun_from_ns = 0
                if now_ns >= generator.deadline_ns:
                    return
                if not idle:
                    self._starved = True
                    self.backlog_max = max(self.backlog_max, 1)
                    return
                index = self.sent * self._workers + self._worker
                self.sent += 1
                generator.begin(idle.popleft(), index, self._due_ns, now_ns)
                self._due_ns = self._next()
            elif wait_ns > EARLY_NS:
                if self._due_ns != NEVER_NS:
                    self._timer.arm(self._due_ns - EARLY_NS)
                return
            elif wait_ns > SPIN_NS:
                self._polled_ns = now_ns
                self._polled_completed = generator.completed
                asyncio.get_running_loop().call_soon(self._poll)
                return
            elif not spun_from_ns:
                spun_from_ns = now_ns
