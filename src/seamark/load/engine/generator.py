"""Event-loop generator for wire drivers. No task, future or timer per request; independent of the service.

Requests in flight are kept in the order of sending, which is also the order of their time-outs, so only the oldest
has to be checked. One periodic timer does this, measures the loop's own lag and detects the end.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

import numpy as np

from seamark.load.driver import Wire
from seamark.load.engine.connection import Connection, Outgoing
from seamark.load.engine.schedule_share import STALL_NS, Stalls
from seamark.load.workers.assignment import count_error
from seamark.load.workers.records import ChunkRecorder, Recorder, ReplySegment
from seamark.model.sample import Failure
from seamark.patterns.table import Nanoseconds
from seamark.platform.timerfd import Timer
from seamark.stats.histogram import Accumulator

TICK_NS = 10_000_000
OVERDUE_NS = 50_000_000
"""A server that never stops sending keeps the loop from its ticks: this long after a tick, a read checks
time-outs."""
TICK_OFFSET_RATIO = 0.37
"""Phase offset of the tick timer as a fraction of a tick, so ticks never coincide with evenly spaced arrivals."""
FLUSH_EVERY = 100
"""Ticks between two flushes: a killed worker loses at most about two seconds of samples."""
CHORES_NS = 1_000_000
LATEST = 2
"""A flush waits for a gap of CHORES_NS in the schedule, at most this many times FLUSH_EVERY ticks."""
MOST_PIECES = 1024
"""Limit of the kernel for one writev (IOV_MAX)."""
NEVER_NS = 1 << 62
TIMEOUT, CONNECT = Failure.TIMEOUT, Failure.CONNECT
"""Module constants, as an attribute look-up in an enumeration costs as much as sending."""
SHORTEST_CONNECT_S = 1.0
"""Least time-out of connecting before the clock starts, even if requests have a shorter one."""
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
NOTHING: Nanoseconds = np.zeros(0, dtype=np.int64)


class LoadLoop(ABC):
    """Decides which request is sent next, and when: implemented in loops.py and sessions.py.

    `sent` counts requests sent, `spin_ns` is CPU time of exact waits. `ran_out_ns` is the time at which a user of a
    closed loop first had nothing left to send.
    """

    sent = 0
    ran_out_ns: int | None = None
    backlog_max = 0
    spin_ns = 0

    @abstractmethod
    def start(self) -> None:
        """Begin: the clock has started."""

    @abstractmethod
    def free(self, connection: Connection) -> None:
        """Take back a connection without a request in flight."""

    @abstractmethod
    def is_done(self, now_ns: int) -> bool:
        """Return whether no further request will be sent."""

    def on_overdue(self) -> None:  # noqa: B027
        """Send requests whose due time passed while a reply was read."""

    def on_tick(self, now_ns: int) -> None:  # noqa: B027
        """Update the backlog; called at every tick."""

    def on_turn_end(self, index: int, *, good: bool) -> None:  # noqa: B027
        """Record that request `index` of a session has ended; `free` for its connection follows."""

    def scheduled(self, now_ns: int) -> int:
        """Return the number of requests due by `now_ns`."""
        return self.sent

    def begun(self) -> int:
        """Return how many arrivals of this worker have started: requests, or sessions where the load has sessions."""
        return self.sent

    @property
    def ran_out(self) -> bool:
        """Whether the request limit ended the last session. Without sessions the schedule tells
        (schedule_share.ran_out)."""
        return False

    def unsent(self, until_ns: int) -> tuple[Nanoseconds, Nanoseconds]:
        """Return index and due time of requests due by `until_ns`, never sent, that are not arrivals."""
        return NOTHING, NOTHING

    def close(self) -> None:  # noqa: B027
        """Release timers; called after the load."""


class Generator:
    """Owns the connections, requests in flight and records of one worker."""

    def __init__(
        self,
        *,
        driver: Wire,
        requests: Sequence[Outgoing],
        recorder: Recorder,
        chunks: ChunkRecorder | None,
        worker: int,
        timeout_ns: int,
        replies: ReplySegment | None = None,
    ) -> None:
        self.epoch_ns = 0
        self.until_ns = 0
        self.deadline_ns = 0
        self.due_ns = NEVER_NS
        self.check_ns = NEVER_NS
        self.completed = 0
        self.held_open_ns = 0
        self.asked_units = 0
        self.connected_anew = 0
        self.survivors: int | None = None
        self.errors: dict[str, dict[str, Any]] = {}
        self.loop_lag = Accumulator()
        self.stalls = Stalls()
        self._driver = driver
        self._address = driver.address()
        self._tls: ssl.SSLContext | None = driver.tls
        self.in_pieces = any(len(request.data) > 1 for request in requests)
        self._requests = [self._as_written(request) for request in requests]
        self._bodies = len(requests)
        self._recorder = recorder
        self._free: Callable[[Connection], None]
        self._record = recorder.add
        self._chunks = chunks
        self._replies = replies
        self.keeps_replies = replies is not None
        self._worker = worker
        self._timeout_ns = timeout_ns
        self._in_flight: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused_in_a_row = 0
        self._stopped = False

    def _as_written(self, request: Outgoing) -> Outgoing:
        """Return a request in the form that a connection writes."""
        pieces = request.data if len(request.data) <= MOST_PIECES else (b"".join(request.data),)
        return request._replace(data=pieces if self.in_pieces else pieces[0])

    async def open(self, count: int, at_once: int = 64) -> list[Connection]:
        """Open `count` connections before the clock starts, `at_once` concurrently, each within the request time-out.

        Raises OSError if a connection fails.
        """
        loop = asyncio.get_running_loop()
        connections = [Connection(self, self._driver.decoder()) for _ in range(count)]
        limit_s = max(SHORTEST_CONNECT_S, self._timeout_ns / 1e9)
        for first in range(0, count, at_once):
            group = connections[first : first + at_once]
            factories: list[Callable[[], Connection]] = [
                lambda connection=connection: connection  # type: ignore[misc]
                for connection in group
            ]
            try:
                async with asyncio.timeout(limit_s):
                    await asyncio.gather(
                        *(loop.create_connection(factory, *self._address, ssl=self._tls) for factory in factories)
                    )
            except TimeoutError:
                host, port = self._address
                raise TimeoutError(f"no connection to {host}:{port} in {limit_s:g} s") from None
        return connections

    def chunk(self, index: int, at_ns: int, events: int) -> None:
        """Record a read of a streamed reply that carried content."""
        assert self._chunks is not None
        self._chunks.add(index, at_ns, events)

    def on_overdue(self) -> None:
        """Send requests that came due while a reply was read."""
        self.flow.on_overdue()

    def begin(self, connection: Connection, index: int, due_ns: int, now_ns: int) -> None:
        """Send a request on a free connection, or on a new one if the server closed that while it was idle."""
        if connection.closed:
            connection = Connection(self, self._driver.decoder())
        self._in_flight[connection] = None
        connection.begin(index, due_ns, now_ns, self._requests[index % self._bodies])

    def connect(self, connection: Connection) -> None:
        """Connect for a request whose service time already runs."""
        self.connected_anew += 1
        task = asyncio.get_running_loop().create_task(self._connect(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: Connection) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection, *self._address, ssl=self._tls)
        except OSError:
            if connection.busy:
                self._refused_in_a_row += 1
                connection.end(monotonic_ns(), Failure.CONNECT)
            return
        self._refused_in_a_row = 0

    def ended(self, connection: Connection, now_ns: int, units: int, status: int, failure: Failure) -> None:
        """Record a finished request and return its connection to the loop."""
        sent_ns = connection.sent_ns
        request = connection.request
        if not failure and now_ns - sent_ns > self._timeout_ns:
            failure = TIMEOUT
        del self._in_flight[connection]
        self.completed += 1
        if failure:
            count_error(self.errors, failure, connection.error, request[0])
        elif not connection.uncounted:
            self.asked_units += request[3]
        if self._replies is not None and connection.pieces:
            self._replies.add(connection.index, connection.pieces)
            connection.pieces.clear()
        self._record(
            connection.index,
            connection.due_ns,
            sent_ns,
            connection.first_ns,
            connection.answer_ns,
            now_ns,
            units,
            connection.first_units,
            connection.uncounted,
            0 if failure is CONNECT else request[1],
            connection.received_bytes,
            status,
            failure,
            request[2],
            self._worker,
        )
        if self._stopped:
            return
        if connection.connected:
            self._free(connection)
        else:
            self._replace(failure)

    def _replace(self, failure: Failure) -> None:
        """Put a new connection, which connects on first use, in the place of a closed one."""
        fresh = Connection(self, self._driver.decoder())
        if failure is CONNECT:
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._refused_in_a_row, 10), LONGEST_PAUSE_S)
            asyncio.get_running_loop().call_later(pause_s, self._free, fresh)
        else:
            self._free(fresh)

    async def run(self, flow: LoadLoop, epoch_ns: int, until_ns: int, late_ns: int = 0) -> int:
        """Run from the epoch until every request has ended; return the end time, ns.

        Nothing is due after `until_ns`, and nothing is sent more than `late_ns` after it. Raises faults of the client
        itself (OSError: no space).
        """
        self.flow = flow
        self._free = flow.free
        self.epoch_ns = self._recorder.epoch_ns = epoch_ns
        if self._chunks is not None:
            self._chunks.epoch_ns = epoch_ns
        self.until_ns, self.deadline_ns = until_ns, until_ns + late_ns
        loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = loop.create_future()
        loop.set_exception_handler(self._fault)
        timer = Timer()
        tick_ns = max(1_000_000, min(TICK_NS, self._timeout_ns // 10))
        first_ns = epoch_ns + int(TICK_OFFSET_RATIO * tick_ns)
        ticks = -1
        lags: list[int] = []

        def tick() -> None:
            nonlocal ticks
            now_ns = monotonic_ns()
            fired = timer.clear()
            if not fired:
                return
            lag_ns = now_ns - (epoch_ns if ticks < 0 else first_ns + ticks * tick_ns)
            if ticks < 0:
                flow.start()
                timer.arm(first_ns, tick_ns)
            lags.append(lag_ns)
            if lag_ns >= STALL_NS:
                self.stalls.add(now_ns - self.epoch_ns - lag_ns, now_ns - self.epoch_ns)
            ticks += fired
            if len(lags) >= FLUSH_EVERY and (now_ns + CHORES_NS < self.due_ns or len(lags) > LATEST * FLUSH_EVERY):
                self._keep(lags)
            self.check_timeouts(now_ns)

        loop.add_reader(timer.fileno(), tick)
        timer.arm(epoch_ns)
        try:
            await self._done
        finally:
            loop.remove_reader(timer.fileno())
            timer.close()
            self._stopped = True
            self._keep(lags)
        return monotonic_ns()

    def stop(self) -> None:
        """Stop now: requests in flight are recorded as cancelled."""
        self._stopped = True
        self.until_ns = self.deadline_ns = 0
        now_ns = monotonic_ns()
        if self.survivors is None:
            self.survivors = len(self._in_flight)
        for connection in list(self._in_flight):
            connection.end(now_ns, Failure.CANCELLED)
        if not self._done.done():
            self._done.set_result(None)

    def check_timeouts(self, now_ns: int) -> None:
        """End requests past their time-out, update the backlog, detect the end of the load."""
        self.check_ns = now_ns + OVERDUE_NS
        oldest_ns = now_ns - self._timeout_ns
        late = []
        for connection in self._in_flight:
            if connection.sent_ns > oldest_ns:
                break
            late.append(connection)
        for connection in late:
            connection.end(now_ns, Failure.TIMEOUT)
        if self.survivors is None:
            self.flow.on_tick(now_ns)
            if now_ns >= self.until_ns:
                self.survivors = len(self._in_flight)
        if not self._in_flight and self.flow.is_done(now_ns) and not self._done.done():
            self._done.set_result(None)

    def _keep(self, lags: list[int]) -> None:
        self.loop_lag.add(np.maximum(np.array(lags, dtype=np.int64), 0))
        lags.clear()
        self._recorder.flush()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an uncaught exception: network errors appear as lost connections, faults of the client end the
        load."""
        error = context.get("exception")
        if error is None or isinstance(error, ConnectionError | TimeoutError) or self._done.done():
            return
        self._done.set_exception(error)
