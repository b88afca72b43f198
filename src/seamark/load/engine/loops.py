"""Open and closed loop: which request a free connection sends next, and when. Used by the event-loop generator."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic_ns

from seamark.load.engine.connection import Connection
from seamark.load.engine.generator import NEVER_NS, Generator, LoadLoop
from seamark.load.engine.schedule_share import Arrived
from seamark.load.workers.assignment import WorkerAssignment
from seamark.patterns.table import Nanoseconds
from seamark.platform.timerfd import Timer

EARLY_NS = 200_000
SHORTEST_EARLY_NS = 100_000
LONGEST_EARLY_NS = 300_000
LONGEST_EARLY_OWN_CORE_NS = 1_000_000
"""Lead of the timer over the due time of a request: a wake-up takes tens of microseconds, on a guest with an idle
core hundreds. The lead adapts to what is measured; a worker with a core of its own may wake up earlier, as it takes
time from no one."""
EARLY_WAKE_RATIO = 0.05
"""Wake up this fraction of a long wait early: leaving a deep idle state adds latency, a second short sleep does
not."""
LATE_RATIO = 0.75
LONGER, SHORTER = 1.25, 0.9975
"""One wake-up in a hundred may use up more than LATE_RATIO of the lead; the two factors balance at that rate."""
SPIN_NS = 20_000
"""Closer than this to the due time, spin instead of returning to the event loop."""
MOST_AT_ONCE = 16
"""Requests sent before sockets are polled again: less than 0.1 ms of work."""


class Pauses:
    """Calls what was given after a pause that is the same for all, never before its end. To be used inside the event
    loop, and closed. To the nanosecond: the event loop's own timer has whole milliseconds."""

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


class ClosedLoop(LoadLoop):
    """Closed loop: each connection is a user that sends its next request after the last reply, and a pause if there
    is think time."""

    def __init__(self, generator: Generator, connections: list[Connection], assignment: WorkerAssignment) -> None:
        self._generator = generator
        self._connections = connections
        self._indexes = assignment.indexes
        self._requests = len(self._indexes)
        self._think_time_s = assignment.load.think_time_s
        self._pauses: Pauses | None = None

    def start(self) -> None:
        """Send the first request of every user."""
        self._start_pauses()
        for connection in self._connections:
            self._send(connection)

    def free(self, connection: Connection) -> None:
        """Send the next request of this connection's user, after its think time."""
        if self._pauses is not None:
            self._pauses.then(partial(self._send, connection))
        else:
            self._send(connection)

    def close(self) -> None:
        """Release the timer; called after the load."""
        if self._pauses is not None:
            self._pauses.close()

    def _start_pauses(self) -> None:
        if self._think_time_s:
            self._pauses = Pauses(self._think_time_s)

    def _send(self, connection: Connection) -> None:
        number = self.sent
        now_ns = monotonic_ns()
        if now_ns >= self._generator.deadline_ns:
            return
        if number < self._requests:
            self.sent = number + 1
            self._generator.begin(connection, self._indexes[number], now_ns, now_ns)
        else:
            self.ran_out_ns = self.ran_out_ns or now_ns

    def on_tick(self, now_ns: int) -> None:
        """Take over the number of requests: that of several passes over a work list (Passes) ends in mid-load."""
        self._requests = len(self._indexes)

    def is_done(self, now_ns: int) -> bool:
        return now_ns >= self._generator.deadline_ns or self.sent >= self._requests


class OpenLoop(LoadLoop):
    """Open loop: requests are due by a schedule, independent of replies; without a free connection they queue in
    order."""

    def __init__(
        self,
        generator: Generator,
        connections: list[Connection],
        assignment: WorkerAssignment,
        schedule: Callable[[], Iterator[Nanoseconds]],
        report_progress: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self._generator = generator
        self._idle = deque(connections)
        self._worker, self._workers = assignment.worker, assignment.workers
        self._arrived = Arrived(schedule())
        self._blocks = schedule()
        self._block: Iterator[int] = iter(())
        self._timer = Timer()
        self._report_progress = report_progress
        self._early_ns = EARLY_NS
        self._longest_early_ns = LONGEST_EARLY_OWN_CORE_NS if len(assignment.cores) == 1 else LONGEST_EARLY_NS
        self._wakes_ns = NEVER_NS
        self._starved = False
        self._polls = False
        self._polled_ns = 0
        self._polled_completed = 0
        self._due_ns = NEVER_NS

    def start(self) -> None:
        self._due_ns = self._next()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)
        self._go_on()

    def free(self, connection: Connection) -> None:
        """Send a queued request on the connection, or keep the connection idle."""
        self._idle.append(connection)
        if self._starved:
            self._starved = False
            self._await(self._send_due())

    def on_overdue(self) -> None:
        """Send requests that came due while a reply was read: more replies may be read before the event loop runs the
        timer."""
        self._await(self._send_due())

    def is_done(self, now_ns: int) -> bool:
        return now_ns >= self._generator.deadline_ns or self._due_ns == NEVER_NS

    def on_tick(self, now_ns: int) -> None:
        """Update the largest backlog, and report progress where it is wanted."""
        due = self.scheduled(now_ns)
        self.backlog_max = max(self.backlog_max, due - self.sent)
        if self._report_progress is not None:
            self._report_progress(now_ns - self._generator.epoch_ns, due, self._generator.completed)

    def scheduled(self, now_ns: int) -> int:
        return self._arrived.until(now_ns - self._generator.epoch_ns)

    def close(self) -> None:
        """Release the timer; called after the load."""
        asyncio.get_running_loop().remove_reader(self._timer.fileno())
        self._timer.close()

    def _next(self) -> int:
        """Return the due time of the next request, NEVER_NS after the last."""
        due_ns = next(self._block, None)
        if due_ns is None:
            block = next(self._blocks, None)
            if block is None:
                return NEVER_NS
            self._block = iter((block + self._generator.epoch_ns).tolist())
            due_ns = next(self._block)
        return due_ns

    def _wake(self) -> None:
        """Handle the timer; adapt the lead to the measured wake-up latency."""
        if self._timer.clear():
            late_ns = monotonic_ns() - self._wakes_ns
            if late_ns > LATE_RATIO * self._early_ns:
                self._early_ns = min(int(LONGER * self._early_ns), self._longest_early_ns)
            else:
                self._early_ns = max(int(SHORTER * self._early_ns), SHORTEST_EARLY_NS)
        self._go_on()

    def _poll(self) -> None:
        """Continue after one poll of the sockets shortly before a request is due."""
        self._polls = False
        if self._generator.completed == self._polled_completed:
            self.spin_ns += monotonic_ns() - self._polled_ns
        self._go_on()

    def _go_on(self) -> None:
        """Send requests that are due now or within SPIN_NS; then poll or sleep until the next."""
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
        """Send requests that are due, at most MOST_AT_ONCE, so that replies are read in between.

        Returns the ns until the next is due: 0 when more are due already; NEVER_NS when they wait for a connection or
        none is left.
        """
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
        """Return the wait of `_send_due` when a request is due but not sent, and record the reason."""
        self._generator.due_ns = NEVER_NS
        if now_ns >= self._generator.deadline_ns:
            return NEVER_NS
        if self._idle:
            return 0
        self._starved = True
        self.backlog_max = max(self.backlog_max, 1)
        return NEVER_NS

    def _await(self, wait_ns: int) -> None:
        """Schedule the next call for the due time: by the timer, or in the next loop iteration when it is close."""
        if wait_ns > self._early_ns:
            if wait_ns < NEVER_NS:
                early_ns = max(self._early_ns, min(int(EARLY_WAKE_RATIO * wait_ns), LONGEST_EARLY_OWN_CORE_NS))
                self._wakes_ns = self._due_ns - early_ns
                self._timer.arm(self._wakes_ns)
        elif not self._polls:
            self._polls = True
            self._polled_ns = monotonic_ns()
            self._polled_completed = self._generator.completed
            asyncio.get_running_loop().call_soon(self._poll)
