"""Blocking Call drivers in threads: each thread a user with a session of its own. No event loop here.

A call cannot be ended from outside. One that takes longer than the time-out is recorded by the supervisor, its thread
written off and another put in its place; whoever takes a request's claim writes its record, so it is written once.
"""

import contextlib
import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns

from seamark.load.arrivals import Nanoseconds
from seamark.load.driver import Body, Call, Session
from seamark.load.due import Arrived, own_schedule
from seamark.load.job import Share
from seamark.load.records import Recorder, Segment
from seamark.model.failure import Failure
from seamark.model.sample import MISSING_NS

EARLY_S = 60e-6
"""A sleeping thread is woken so much before its request is due, then spins."""
FLUSH_NS = 1_000_000_000
"""A killed worker loses at most so much of its samples."""
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SHOWN_ERRORS = 3
LOST_SESSION = frozenset({Failure.CONNECT, Failure.RESET, Failure.TIMEOUT, Failure.PROTOCOL})


class Turns:
    """Gives each thread that asks the next request: at once in a closed loop, when it is due in an open one."""

    def __init__(self, share: Share, arrivals: Callable[[], Iterator[Nanoseconds]] | None) -> None:
        self._worker, self._workers = share.worker, share.workers
        self._limit = share.requests
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._due: Iterator[int] | None = None
        self._arrived: Arrived | None = None
        if arrivals is not None:
            self._due = itertools.chain.from_iterable(block.tolist() for block in arrivals())
            self._arrived = Arrived(arrivals())
        self.open = arrivals is not None
        self.taken = 0

    def next_closed(self) -> int | None:
        """Return the index of the next request, None after the last."""
        number = next(self._count)
        if self._limit is not None and number >= self._limit:
            return None
        return number * self._workers + self._worker

    def next_open(self) -> tuple[int, int] | None:
        """Return the index of the next request and when it is due from the start of load, None after the last."""
        assert self._due is not None
        with self._lock:
            due_ns = next(self._due, None)
            if due_ns is None:
                return None
            number = self.taken
            self.taken += 1
        return number * self._workers + self._worker, due_ns

    def due_by(self, at_ns: int) -> int:
        """Return how many requests of an open loop were due by then."""
        return 0 if self._arrived is None else self._arrived.until(at_ns)


class Load:
    """What all threads of a worker share."""

    def __init__(self, share: Share, driver: Call, bodies: Sequence[Body], segment: Segment) -> None:
        self.share = share
        self.driver = driver
        self.bodies = bodies
        self.kinds = [body.kind for body in bodies]
        self.segment = segment
        self.worker = share.worker
        self.turns = Turns(share, own_schedule(share))
        self.timeout_ns = int(share.job.timeout_s * 1e9)
        self.think_time_s = share.job.think_time_s
        self.until_ns = int(share.job.until_s * 1e9)
        self.epoch_ns = 0
        self.deadline_ns = 0
        self.go = threading.Event()
        self.stop = threading.Event()
        self.fault: BaseException | None = None
        self._shown = itertools.count()

    def start(self, epoch_ns: int) -> None:
        """Set the clock and let the threads run."""
        self.epoch_ns = epoch_ns
        self.deadline_ns = epoch_ns + self.until_ns
        self.go.set()

    def category(self, error: Exception) -> Failure:
        """Ask the driver what an exception means; the first few are shown on stderr."""
        if next(self._shown) < SHOWN_ERRORS:
            traceback.print_exception(error)
        try:
            return self.driver.failure(error)
        except Exception:
            traceback.print_exc()
            return Failure.DRIVER


class User(threading.Thread):
    """One thread: takes a turn, waits until it is due, calls, records."""

    def __init__(self, load: Load, session: Session | None) -> None:
        super().__init__(daemon=True)
        self._load = load
        self._session = session
        self._refused = 0
        self._flush_ns = 0
        self.recorder = Recorder(load.segment)
        self.claims: dict[int, tuple[int, int]] = {}
        """The request in flight: its index -> (due, sent)."""
        self.sent = 0
        self.completed = 0
        self.lost = False
        """The supervisor took our claim: this thread no longer belongs to the load."""
        self.unsent: tuple[int, int] | None = None
        """The turn that was taken when it was too late to send: its index, and when it was due from the start."""

    def run(self) -> None:
        """Send until the load is over; a fault of ours ends the load."""
        load = self._load
        try:
            load.go.wait()
            if load.turns.open:
                self._open()
            else:
                self._closed()
            if self.lost:
                self._leave()
            else:
                self.recorder.flush()
                if self._session is not None:
                    self._session.close()
        except Exception as error:
            load.fault = load.fault or error

    def _leave(self) -> None:
        """Close the session of a call that came back after it was written off; what it raises is nobody's."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()

    def _closed(self) -> None:
        load, take, stopped = self._load, self._load.turns.next_closed, self._load.stop.is_set
        _wait_until(load.epoch_ns, load.stop)
        while True:
            now_ns = monotonic_ns()
            if now_ns >= load.deadline_ns or stopped():
                return
            index = take()
            if index is None or not self._send(index, now_ns, now_ns):
                return
            if load.think_time_s:
                _wait_until(monotonic_ns() + int(load.think_time_s * 1e9), load.stop)

    def _open(self) -> None:
        load, take = self._load, self._load.turns.next_open
        while True:
            turn = take()
            if turn is None:
                return
            index, due_ns = turn
            due_ns += load.epoch_ns
            _wait_until(due_ns, load.stop)
            now_ns = monotonic_ns()
            if now_ns >= load.deadline_ns or load.stop.is_set():
                self.unsent = turn
                return
            if not self._send(index, due_ns, now_ns):
                return

    def _send(self, index: int, due_ns: int, sent_ns: int) -> bool:
        """Make one request and record it; return False when this thread has been written off meanwhile."""
        load, session = self._load, self._session
        at = index % len(load.bodies)
        self.sent += 1
        self.claims[index] = (due_ns, sent_ns)
        units = bytes_sent = bytes_received = status = 0
        try:
            if session is None:
                session = self._session = load.driver.session()
                self._refused = 0
            reply = session.call(load.bodies[at])
            last_ns = monotonic_ns()
            failure = reply.failure
            units, status = reply.units, reply.status
            bytes_sent, bytes_received = reply.bytes_sent, reply.bytes_received
        except Exception as error:
            last_ns = monotonic_ns()
            failure = load.category(error)
        if self.claims.pop(index, None) is None:
            self.lost = True
            return False
        if failure == Failure.NONE and last_ns - sent_ns > load.timeout_ns:
            failure = Failure.TIMEOUT
        epoch_ns = load.epoch_ns
        self.recorder.add(
            index,
            due_ns - epoch_ns,
            sent_ns - epoch_ns,
            MISSING_NS,
            last_ns - epoch_ns,
            units,
            bytes_sent,
            bytes_received,
            status,
            failure,
            load.kinds[at],
            load.worker,
        )
        self.completed += 1
        if last_ns > self._flush_ns:
            self.recorder.flush()
            self._flush_ns = last_ns + FLUSH_NS
        if failure and failure in LOST_SESSION:
            self._renew(session)
        return True

    def _renew(self, session: Session | None) -> None:
        """Give up a broken session; the next request makes a new one, after a pause while that fails."""
        self._session = None
        if session is None:
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._refused, 10), LONGEST_PAUSE_S)
            self._refused += 1
            self._load.stop.wait(pause_s)
            return
        try:
            session.close()
        except Exception as error:
            self._load.category(error)


def _wait_until(at_ns: int, stop: threading.Event) -> None:
    """Return at `at_ns` of CLOCK_MONOTONIC, or soon after `stop` is set."""
    while True:
        left_s = (at_ns - monotonic_ns()) / 1e9
        if left_s <= 0:
            return
        if left_s > 0.1:
            if stop.wait(left_s - 0.05):
                return
        elif left_s > EARLY_S:
            time.sleep(left_s - EARLY_S)
