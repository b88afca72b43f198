"""Multi-turn sessions, closed and open loop: which turn goes next, and when. Takes the place of flow.py's flows.

A turn is sent when the reply to the one before is in and its user has thought. Its number as a request is
`session * turns + turn`; session k belongs to worker k mod n. A turn that fails ends its session: those after it
never become due. In an open loop the pattern's arrivals are the starts of sessions (a partly open system: Schroeder,
Wierman and Harchol-Balter, NSDI 2006); a later turn is due when its user has thought, whether or not a connection is
free.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from time import monotonic_ns
from typing import Protocol, cast

import numpy as np

from seamark.load.engine.connection import Connection
from seamark.load.engine.flow import MOST_AT_ONCE, Closed, Open
from seamark.load.engine.generator import NEVER_NS, Generator
from seamark.load.workers.assignment import Share
from seamark.model.failure import Failure
from seamark.patterns.arrivals import Nanoseconds


class SessionFlow(Protocol):
    """A flow that hears of each turn."""

    def turn_over(self, index: int, *, good: bool) -> None:
        """Request `index` has ended; `free` for its connection follows."""


class SessionGenerator(Generator):
    """Tells its flow of each request that has ended, before it gives the connection back."""

    def ended(self, connection: Connection, now_ns: int, units: int, status: int, failure: Failure) -> None:
        """Record a request that has ended."""
        in_time = now_ns - connection.sent_ns <= self._timeout_ns
        cast(SessionFlow, self.flow).turn_over(connection.index, good=not failure and in_time)
        super().ended(connection, now_ns, units, status, failure)


class _Numbers:
    """Numbers the requests of one worker's sessions."""

    def __init__(self, share: Share) -> None:
        self.turns = share.job.turns
        self.think_ns = round(share.job.think_time_s * 1e9)
        self._worker, self._workers = share.worker, share.workers
        self._end = NEVER_NS if share.job.requests is None else share.job.requests
        self.limited = share.job.requests is not None

    def index(self, number: int) -> int:
        """Return the request that begins this worker's session `number`, if there is to be one."""
        return (number * self._workers + self._worker) * self.turns

    def first(self, number: int) -> int | None:
        """Return the request that begins this worker's session `number`; None when there are to be no more."""
        index = self.index(number)
        return index if index < self._end else None

    def after(self, index: int) -> int | None:
        """Return the request that follows in the same session, None after the last."""
        following = index + 1
        return following if following % self.turns and following < self._end else None


class ClosedSessions(Closed):
    """Every connection is a user who goes through one session after another, with a pause after each reply."""

    def __init__(self, generator: Generator, connections: list[Connection], share: Share) -> None:
        think_time_s = share.job.think_time_s
        super().__init__(generator, connections, worker=0, workers=1, requests=None, think_time_s=think_time_s)
        self._numbers = _Numbers(share)
        self._following: int | None = None
        self._pausing = 0
        self._begun = 0

    def start(self) -> None:
        """Let every user begin a session."""
        for connection in self._connections:
            self._go_on(connection, None)

    def turn_over(self, index: int, *, good: bool) -> None:
        """Keep what this user sends next: the connection is free in a moment."""
        self._following = self._numbers.after(index) if good else None

    def free(self, connection: Connection) -> None:
        """Let the user of this connection go on, after a pause if users pause."""
        following, self._following = self._following, None
        if not self._think_time_s:
            self._go_on(connection, following)
            return
        self._pausing += following is not None
        asyncio.get_running_loop().call_later(self._think_time_s, self._after_pause, connection, following)

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
                return
            self._begun += 1
        self.sent += 1
        self._generator.begin(connection, index, now_ns, now_ns)

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        return now_ns >= self._generator.deadline_ns or self.ran_out

    def begun(self) -> int:
        """Return how many sessions have begun."""
        return self._begun

    @property
    def ran_out(self) -> bool:
        """Whether every session that there was to be has been begun, and none waits for its user."""
        return self._numbers.first(self._begun) is None and not self._pausing


class OpenSessions(Open):
    """Sessions begin by a schedule; later turns are due when their users have thought. What is due waits in the order
    of its time, whichever of the two it is."""

    def __init__(
        self,
        generator: Generator,
        connections: list[Connection],
        share: Share,
        schedule: Callable[[], Iterator[Nanoseconds]],
        tell: Callable[[int, int, int], None] | None = None,
    ) -> None:
        super().__init__(
            generator, connections, worker=share.worker, workers=share.workers, schedule=schedule, tell=tell
        )
        self._numbers = _Numbers(share)
        self._thinking: list[tuple[int, int]] = []
        self._waiting: deque[tuple[int, int]] = deque()
        self._arrival_ns = NEVER_NS
        self._later_sent = 0
        self._cut = False
        self._changed = False
        self._begun = 0

    def start(self) -> None:
        """Wait for the first session."""
        self._arrival_ns = self._next()
        asyncio.get_running_loop().add_reader(self._timer.fileno(), self._wake)
        self._go_on()

    def turn_over(self, index: int, *, good: bool) -> None:
        """Let the user of this session think, if there is more to say before the end of load."""
        following = self._numbers.after(index) if good else None
        if following is None:
            return
        due_ns = monotonic_ns() + self._numbers.think_ns
        if due_ns >= self._generator.deadline_ns:
            self._cut = True
            return
        heappush(self._thinking, (due_ns, following))
        self._changed = True

    def free(self, connection: Connection) -> None:
        """Use the connection for what waits, or keep it for what comes."""
        self._idle.append(connection)
        if self._starved or self._changed:
            self._starved = self._changed = False
            self._await(self._send_due())

    def over(self, now_ns: int) -> bool:
        """Say whether no further request will be sent."""
        nothing = self._arrival_ns == NEVER_NS and not self._thinking and not self._waiting
        return now_ns >= self._generator.deadline_ns or nothing

    def scheduled(self, now_ns: int) -> int:
        """Return how many requests were due by `now_ns`: starts of sessions, and later turns known to be due."""
        self._move_due(now_ns)
        return super().scheduled(now_ns) + self._later_sent + len(self._waiting)

    def begun(self) -> int:
        """Return how many sessions have begun."""
        return self._begun

    @property
    def ran_out(self) -> bool:
        """Whether a limit of requests, not the end of load, was what ended the last session."""
        nothing = not self._thinking and not self._waiting and not self._cut
        return self._numbers.limited and self._numbers.first(self._begun) is None and nothing

    def unsent(self, until_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
        """Return index and due time, from the start of load, of the later turns that were due by `until_ns` from
        there and never sent."""
        epoch_ns = self._generator.epoch_ns
        self._move_due(until_ns + epoch_ns)
        late = np.array(self._waiting, dtype=np.int64).reshape(-1, 2)
        return late[:, 1], late[:, 0] - epoch_ns

    def _move_due(self, now_ns: int) -> None:
        while self._thinking and self._thinking[0][0] <= now_ns:
            self._waiting.append(heappop(self._thinking))

    def _send_due(self) -> int:
        """As in Open, of what is due first: the start of a session or a later turn."""
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
