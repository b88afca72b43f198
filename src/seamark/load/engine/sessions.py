"""Multi-turn sessions in closed and open loop: which turn is sent next, and when. Replaces the loops of loops.py.

A turn is sent after the reply to the previous one and the user's think time. Its request index is `session * turns +
turn`; session k belongs to worker k mod n. A failed turn ends its session: later turns never become due. In an open
loop the pattern's arrivals are session starts (a partly open system: Schroeder, Wierman and Harchol-Balter, NSDI
2006); a later turn is due after the think time, whether or not a connection is free.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from time import monotonic_ns

import numpy as np

from seamark.load.engine.connection import Connection
from seamark.load.engine.generator import NEVER_NS, Generator
from seamark.load.engine.loops import MOST_AT_ONCE, ClosedLoop, OpenLoop
from seamark.load.workers.assignment import WorkerAssignment
from seamark.model.sample import Failure
from seamark.patterns.table import Nanoseconds


class SessionGenerator(Generator):
    """Informs its loop of each finished request before it returns the connection."""

    def ended(self, connection: Connection, now_ns: int, units: int, status: int, failure: Failure) -> None:
        """Record a finished request."""
        in_time = now_ns - connection.sent_ns <= self._timeout_ns
        self.flow.on_turn_end(connection.index, good=not failure and in_time)
        super().ended(connection, now_ns, units, status, failure)


class _Numbers:
    """Request indexes of one worker's sessions."""

    def __init__(self, assignment: WorkerAssignment) -> None:
        self.turns = assignment.load.turns
        self.think_ns = round(assignment.load.think_time_s * 1e9)
        self._worker, self._workers = assignment.worker, assignment.workers
        self._end = NEVER_NS if assignment.load.requests is None else assignment.load.requests
        self.limited = assignment.load.requests is not None

    def index(self, number: int) -> int:
        """Return the first request index of this worker's session `number`, if that session exists."""
        return (number * self._workers + self._worker) * self.turns

    def first(self, number: int) -> int | None:
        """Return the first request index of this worker's session `number`, None past the request limit."""
        index = self.index(number)
        return index if index < self._end else None

    def after(self, index: int) -> int | None:
        """Return the next request index of the same session, None after the last."""
        following = index + 1
        return following if following % self.turns and following < self._end else None


class ClosedSessions(ClosedLoop):
    """Each connection is a user that runs one session after another, with a pause after each reply."""

    def __init__(self, generator: Generator, connections: list[Connection], assignment: WorkerAssignment) -> None:
        super().__init__(generator, connections, assignment)
        self._numbers = _Numbers(assignment)
        self._following: int | None = None
        self._pausing = 0
        self._begun = 0

    def start(self) -> None:
        self._start_pauses()
        for connection in self._connections:
            self._go_on(connection, None)

    def on_turn_end(self, index: int, *, good: bool) -> None:
        """Keep the next request of this user: its connection is freed next."""
        self._following = self._numbers.after(index) if good else None

    def free(self, connection: Connection) -> None:
        following, self._following = self._following, None
        if self._pauses is None:
            self._go_on(connection, following)
            return
        self._pausing += following is not None
        self._pauses.then(partial(self._after_pause, connection, following))

    def _after_pause(self, connection: Connection, following: int | None) -> None:
        self._pausing -= following is not None
        self._go_on(connection, following)

    def _go_on(self, connection: Connection, index: int | None) -> None:
        """Send this request, or the first of a new session."""
        now_ns = monotonic_ns()
        if now_ns >= self._generator.deadline_ns:
            return
        if index is None:
            index = self._numbers.first(self._begun)
            if index is None:
                self.ran_out_ns = self.ran_out_ns or now_ns
                return
            self._begun += 1
        self.sent += 1
        self._generator.begin(connection, index, now_ns, now_ns)

    def is_done(self, now_ns: int) -> bool:
        return now_ns >= self._generator.deadline_ns or self.ran_out

    def begun(self) -> int:
        return self._begun

    @property
    def ran_out(self) -> bool:
        """Whether every session within the request limit has started and none waits for its user."""
        return self._numbers.first(self._begun) is None and not self._pausing


class OpenSessions(OpenLoop):
    """Sessions start by a schedule; later turns are due after the think time. Both kinds queue in order of due
    time."""

    def __init__(
        self,
        generator: Generator,
        connections: list[Connection],
        assignment: WorkerAssignment,
        schedule: Callable[[], Iterator[Nanoseconds]],
        report_progress: Callable[[int, int, int], None] | None = None,
    ) -> None:
        super().__init__(generator, connections, assignment, schedule, report_progress)
        self._numbers = _Numbers(assignment)
        self._thinking: list[tuple[int, int]] = []
        self._waiting: deque[tuple[int, int]] = deque()
        self._arrival_ns = NEVER_NS
        self._later_sent = 0
        self._cut = False
        self._changed = False
        self._begun = 0

    def start(self) -> None:
        self._arrival_ns = self._next()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)
        self._go_on()

    def on_turn_end(self, index: int, *, good: bool) -> None:
        """Schedule the session's next turn after the think time, if it is due before the end of load."""
        following = self._numbers.after(index) if good else None
        if following is None:
            return
        due_ns = monotonic_ns() + self._numbers.think_ns
        if due_ns >= self._generator.until_ns:
            self._cut = True
            return
        heappush(self._thinking, (due_ns, following))
        self._changed = True

    def free(self, connection: Connection) -> None:
        self._idle.append(connection)
        if self._starved or self._changed:
            self._starved = self._changed = False
            self._await(self._send_due())

    def is_done(self, now_ns: int) -> bool:
        nothing = self._arrival_ns == NEVER_NS and not self._thinking and not self._waiting
        return now_ns >= self._generator.deadline_ns or nothing

    def scheduled(self, now_ns: int) -> int:
        """Return the number of requests due by `now_ns`: session starts, and later turns with a known due time."""
        self._move_due(now_ns)
        return super().scheduled(now_ns) + self._later_sent + len(self._waiting)

    def begun(self) -> int:
        return self._begun

    @property
    def ran_out(self) -> bool:
        """Whether the request limit, not the end of load, ended the last session."""
        nothing = not self._thinking and not self._waiting and not self._cut
        return self._numbers.limited and self._numbers.first(self._begun) is None and nothing

    def unsent(self, until_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
        """Return index and due time (from the start of load) of later turns due by `until_ns` and never sent."""
        epoch_ns = self._generator.epoch_ns
        self._move_due(until_ns + epoch_ns)
        late = np.array(self._waiting, dtype=np.int64).reshape(-1, 2)
        return late[:, 1], late[:, 0] - epoch_ns

    def _move_due(self, now_ns: int) -> None:
        while self._thinking and self._thinking[0][0] <= now_ns:
            self._waiting.append(heappop(self._thinking))

    def _send_due(self) -> int:
        """As in OpenLoop, in order of due time: session starts and later turns."""
        generator, idle = self._generator, self._idle
        last = self.sent + MOST_AT_ONCE
        while True:
            now_ns = monotonic_ns()
            later_ns = self._waiting[0][0] if self._waiting else self._thinking[0][0] if self._thinking else NEVER_NS
            self._due_ns = due_ns = min(self._arrival_ns, later_ns)
            if now_ns < due_ns:
                generator.due_ns = due_ns
                return due_ns - now_ns if due_ns < NEVER_NS else NEVER_NS
            if not idle or self.sent == last or now_ns >= generator.deadline_ns:
                break
            self.sent += 1
            if later_ns < self._arrival_ns:
                _, index = self._waiting.popleft() if self._waiting else heappop(self._thinking)
                self._later_sent += 1
            else:
                index = self._numbers.index(self._begun)
                self._begun += 1
                self._arrival_ns = self._next()
            generator.begin(idle.popleft(), index, due_ns, now_ns)
        return self._cannot_send(now_ns)
