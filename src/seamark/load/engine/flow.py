"""Which request a free connection sends next: closed loop or open loop. Used by the event-loop generator."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns

import numpy as np

from seamark.load.engine.connection import Connection
from seamark.load.engine.generator import NEVER_NS, Generator
from seamark.load.engine.schedule_share import Arrived
from seamark.patterns.arrivals import Nanoseconds
from seamark.platform.timerfd import Timer

EARLY_NS = 200_000
SHORTEST_EARLY_NS = 100_000
LONGEST_EARLY_NS = 300_000
LONGEST_EARLY_ALONE_NS = 1_000_000
"""The timer is set so much before a request is due: waking up takes tens of microseconds, a guest whose core was idle
hundreds. How much is learnt; a worker with a core of its own takes nothing from anybody by coming too early."""
BROKEN_SHARE = 0.05
"""A long wait is broken by that part of it before its end: a core that slept for milliseconds comes back late, one
that slept for a moment soon."""
LATE_RATIO = 0.75
LONGER, SHORTER = 1.25, 0.9975
"""One wake-up in a hundred may use up more than that part of the time; the factors balance at this share."""
SPIN_NS = 20_000
"""So close to the due time there is no going back to the event loop."""
MOST_AT_ONCE = 16
"""Requests that are sent without a look at the sockets: less than 0.1 ms of work."""
NOTHING: Nanoseconds = np.zeros(0, dtype=np.int64)


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
        number = self.sent
        now_ns = monotonic_ns()
        if now_ns < self._generator.deadline_ns and number < self._requests:
            self.sent = number + 1
            self._generator.begin(connection, number * self._workers + self._worker, now_ns, now_ns)

    def late(self) -> None:
        """A closed loop is never late."""

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        return now_ns >= self._generator.deadline_ns or self.sent >= self._requests

    def watch(self, now_ns: int) -> None:
        """A closed loop has no backlog."""

    def scheduled(self, now_ns: int) -> int:
        """Return how many requests were due: in a closed loop, those that were sent."""
        return self.sent

    def begun(self) -> int:
        """Return how many of this worker's arrivals were taken up: requests, or sessions where there are any."""
        return self.sent

    @property
    def ran_out(self) -> bool:
        """Whether a limit of requests ended the last session; where there are none, the schedule says."""
        return False

    def unsent(self, until_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
        """Return index and due time of what was due by `until_ns`, never sent and is no arrival: nothing here."""
        return NOTHING, NOTHING

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
        tell: Callable[[int, int, int], None] | None = None,
        alone: bool = False,
    ) -> None:
        self._generator = generator
        self._idle = deque(connections)
        self._worker = worker
        self._workers = workers
        self._arrived = Arrived(schedule())
        self._blocks = schedule()
        self._block: Iterator[int] = iter(())
        self._timer = Timer()
        self._tell = tell
        self._early_ns = EARLY_NS
        self._longest_early_ns = LONGEST_EARLY_ALONE_NS if alone else LONGEST_EARLY_NS
        self._wakes_ns = NEVER_NS
        self._starved = False
        self._polls = False
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
        self._go_on()

    def free(self, connection: Connection) -> None:
        """Use the connection for what waits, or keep it for what comes."""
        self._idle.append(connection)
        if self._starved:
            self._starved = False
            self._await(self._send_due())

    def late(self) -> None:
        """Send what became due while a reply was read: others may be there to be read before the loop comes round."""
        self._await(self._send_due())

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        return now_ns >= self._generator.deadline_ns or self._due_ns == NEVER_NS

    def watch(self, now_ns: int) -> None:
        """Note how many requests are due and wait for a connection."""
        due = self.scheduled(now_ns)
        self.backlog_max = max(self.backlog_max, due - self.sent)
        if self._tell is not None:
            self._tell(now_ns - self._generator.epoch_ns, due, self._generator.completed)

    def scheduled(self, now_ns: int) -> int:
        """Return how many requests were due by `now_ns`."""
        return self._arrived.until(now_ns - self._generator.epoch_ns)

    def begun(self) -> int:
        """As in Closed."""
        return self.sent

    @property
    def ran_out(self) -> bool:
        """As in Closed."""
        return False

    def unsent(self, until_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
        """As in Closed."""
        return NOTHING, NOTHING

    def close(self) -> None:
        """Give the timer back; called after the load."""
        asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()

    def _next(self) -> int:
        """Return when the next request is due, NEVER_NS after the last."""
        due_ns = next(self._block, None)
        if due_ns is None:
            block = next(self._blocks, None)
            if block is None:
                return NEVER_NS
            self._block = iter((block + self._generator.epoch_ns).tolist())
            due_ns = next(self._block)
        return due_ns

    def _wake(self) -> None:
        """Come back when the timer fires; learn how late that is here."""
        if self._timer.clear():
            late_ns = monotonic_ns() - self._wakes_ns
            if late_ns > LATE_RATIO * self._early_ns:
                self._early_ns = min(int(LONGER * self._early_ns), self._longest_early_ns)
            else:
                self._early_ns = max(int(SHORTER * self._early_ns), SHORTEST_EARLY_NS)
        self._go_on()

    def _poll(self) -> None:
        """Come back from a look at the sockets shortly before a request is due."""
        self._polls = False
        if self._generator.completed == self._polled_completed:
            self.spin_ns += monotonic_ns() - self._polled_ns
        self._go_on()

    def _go_on(self) -> None:
        """Send all that is due and what is in a moment; then poll or sleep until the next is."""
        wait_ns = self._send_due()
        if 0 < wait_ns <= SPIN_NS:
            due_ns = self._due_ns
            from_ns = now_ns = monotonic_ns()
            while now_ns < due_ns:
                now_ns = monotonic_ns()
            self.spin_ns += now_ns - from_ns
            wait_ns = self._send_due()
        self._await(wait_ns)

    def _send_due(self) -> int:
        """Send what is due, but not without end: replies are to be read. Return for how many ns nothing is; 0 when
        more is due, NEVER_NS when what is due waits for a connection or there is no more."""
        generator, idle = self._generator, self._idle
        due_ns = self._due_ns
        last = self.sent + MOST_AT_ONCE
        while True:
            now_ns = monotonic_ns()
            if now_ns < due_ns:
                generator.due_ns = due_ns
                return due_ns - now_ns if due_ns < NEVER_NS else NEVER_NS
            number = self.sent
            if not idle or number == last or now_ns >= generator.deadline_ns:
                break
            self.sent = number + 1
            generator.begin(idle.popleft(), number * self._workers + self._worker, due_ns, now_ns)
            self._due_ns = due_ns = self._next()
        return self._cannot_send(now_ns)

    def _cannot_send(self, now_ns: int) -> int:
        """Return what `_send_due` does where a request is due and is not sent now, and note why it is not."""
        self._generator.due_ns = NEVER_NS
        if now_ns >= self._generator.deadline_ns:
            return NEVER_NS
        if self._idle:
            return 0
        self._starved = True
        self.backlog_max = max(self.backlog_max, 1)
        return NEVER_NS

    def _await(self, wait_ns: int) -> None:
        """Have the loop come back when the next request is due: by the timer, or at once when that is soon."""
        if wait_ns > self._early_ns:
            if wait_ns < NEVER_NS:
                early_ns = max(self._early_ns, min(int(BROKEN_SHARE * wait_ns), LONGEST_EARLY_ALONE_NS))
                self._wakes_ns = self._due_ns - early_ns
                self._timer.arm(self._wakes_ns)
        elif not self._polls:
            self._polls = True
            self._polled_ns = monotonic_ns()
            self._polled_completed = self._generator.completed
            asyncio.get_running_loop().call_soon(self._poll)
