"""Blocking Call drivers in threads: each thread a user with a session of its own. No event loop here.

A call cannot be ended from outside. One that takes longer than the time-out is recorded by the supervisor, its thread
written off and another put in its place; whoever takes a request's claim writes its record, so it is written once.

What every request of a closed loop passes through is `User._run`, which is one loop and calls nothing of ours: beside
a busy server its code runs on cold caches (see call_records.py).
"""

import contextlib
import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic_ns

import numpy as np

from seamark.load.driver import Body, Call, Reply, Session
from seamark.load.engine.call_records import MOST, Claim, Replies
from seamark.load.engine.schedule_share import Arrived, own_schedule
from seamark.load.workers.assignment import Share
from seamark.load.workers.records import Segment
from seamark.model.failure import Failure
from seamark.patterns.arrivals import Nanoseconds

EARLY_S = 60e-6
"""A sleeping thread is woken so much before its request is due, then spins."""
FLUSH_NS = 1_000_000_000
"""A killed worker loses at most so much of its samples."""
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SHOWN_ERRORS = 3
LOST_SESSION = frozenset({Failure.CONNECT, Failure.RESET, Failure.TIMEOUT, Failure.PROTOCOL, Failure.REPLY_TOO_LARGE})


class Turns:
    """Gives each thread that asks the next request: at once in a closed loop, when it is due in an open one."""

    def __init__(self, share: Share, arrivals: Callable[[], Iterator[Nanoseconds]] | None) -> None:
        self._worker, self._workers = share.worker, share.workers
        limit = share.requests
        self.indices = itertools.islice(itertools.count(share.worker, share.workers), limit)
        """The next request of a closed loop; threads share it, and the interpreter's lock makes each step whole."""
        self._lock = threading.Lock()
        self._due: Iterator[int] | None = None
        self._arrived: Arrived | None = None
        if arrivals is not None:
            self._due = itertools.chain.from_iterable(block.tolist() for block in arrivals())
            self._arrived = Arrived(arrivals())
        self.open = arrivals is not None
        self.taken = 0

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
        self.kinds = np.array([body.kind for body in bodies], dtype=np.int8)
        self.segment = segment
        self.worker = share.worker
        self.turns = Turns(share, own_schedule(share))
        self.timeout_ns = int(share.job.timeout_s * 1e9)
        self.think_time_s = share.job.think_time_s
        self.until_ns = int(share.job.until_s * 1e9)
        self.epoch_ns = 0
        self.deadline_ns = 0
        self.end_ns = 0
        """When the last request may be sent: at the deadline, or never more after a stop."""
        self.go = threading.Event()
        self.stop = threading.Event()
        self.fault: BaseException | None = None
        self._shown = itertools.count()

    def start(self, epoch_ns: int) -> None:
        """Set the clock and let the threads run."""
        self.epoch_ns = epoch_ns
        self.deadline_ns = self.end_ns = epoch_ns + self.until_ns
        if self.stop.is_set():
            self.end_ns = 0
        self.go.set()

    def halt(self) -> None:
        """Let no thread send any more, and wake those that wait for their turn."""
        self.end_ns = 0
        self.stop.set()

    def replies(self) -> Replies:
        """Return an empty list of what came of requests."""
        return Replies(self.segment, worker=self.worker, kinds=self.kinds)

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
    """One thread: takes a turn, waits until it is due, calls, keeps what came of it."""

    def __init__(self, load: Load, session: Session | None) -> None:
        super().__init__(daemon=True)
        self._load = load
        self._session = session
        self._refused = 0
        self.replies = load.replies()
        self.claims: list[Claim] = []
        """The request in flight, if there is one. Whoever removes it records it."""
        self.written_off = False
        """The supervisor took our claim: this thread no longer belongs to the load."""
        self.unsent: tuple[int, int] | None = None
        """The turn that was taken when it was too late to send: its index, and when it was due from the start."""

    @property
    def completed(self) -> int:
        """Requests that ended and were recorded by this thread."""
        return self.replies.count

    @property
    def sent(self) -> int:
        """Requests that were begun: those that ended, the one in flight, the one that was written off."""
        return self.completed + len(self.claims) + self.written_off

    def run(self) -> None:
        """Send until the load is over; a fault of ours ends the load."""
        load = self._load
        try:
            load.go.wait()
            if not load.turns.open:
                _wait_until(load.epoch_ns, load.stop)
            if self._run():
                self.replies.flush(load.epoch_ns)
                if self._session is not None:
                    self._session.close()
            else:
                self._leave()
        except Exception as error:
            load.fault = load.fault or error

    def _leave(self) -> None:
        """Close the session of a call that came back after it was written off; what it raises is nobody's."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()

    def _run(self) -> bool:
        """Make one request after another until the end; return False when this thread has been written off."""
        load, in_flight, replies = self._load, self.claims, self.replies
        claims, ends_ns, seen = replies.claims, replies.ends_ns, replies.seen
        bodies, many, indices = load.bodies, len(load.bodies), load.turns.indices
        is_open, timeout_ns, think_time_s = load.turns.open, load.timeout_ns, load.think_time_s
        call = self._first_call if self._session is None else self._session.call
        usual: Reply | None = None
        flush_ns = 0
        while True:
            if is_open:
                turn = self._next_due()
                if turn is None:
                    return True
                index, due_ns = turn
                sent_ns = monotonic_ns()
            else:
                due_ns = sent_ns = monotonic_ns()
                if sent_ns >= load.end_ns:
                    return True
                following = next(indices, None)
                if following is None:
                    return True
                index = following
            body = bodies[index % many]
            claim = (index, due_ns, sent_ns)
            in_flight.append(claim)
            try:
                reply = call(body)
                end_ns = monotonic_ns()
            except Exception as error:
                end_ns = monotonic_ns()
                reply = Reply(units=0, failure=load.category(error))
            try:
                in_flight.pop()
            except IndexError:
                return False
            unusual = reply is not usual or end_ns - sent_ns > timeout_ns
            if unusual and end_ns - sent_ns > timeout_ns and not reply.failure:
                reply = replace(reply, failure=Failure.TIMEOUT)
            claims.append(claim)
            ends_ns.append(end_ns)
            seen.append(reply)
            if end_ns > flush_ns or len(seen) == MOST:
                replies.flush(load.epoch_ns)
                flush_ns = end_ns + FLUSH_NS
            if unusual:
                usual = None if reply.failure else reply
                if reply.failure in LOST_SESSION:
                    self._renew()
                call = self._first_call if self._session is None else self._session.call
            if think_time_s:
                _wait_until(monotonic_ns() + int(think_time_s * 1e9), load.stop)

    def _next_due(self) -> tuple[int, int] | None:
        """Wait for the next turn of an open loop; return its index and when it is due, None at the end."""
        load = self._load
        turn = load.turns.next_open()
        if turn is None:
            return None
        index, due_ns = turn
        due_ns += load.epoch_ns
        _wait_until(due_ns, load.stop)
        if monotonic_ns() >= load.end_ns:
            self.unsent = turn
            return None
        return index, due_ns

    def _first_call(self, body: Body) -> Reply:
        """Make a new session, and with it a call."""
        self._session = self._load.driver.session()
        self._refused = 0
        return self._session.call(body)

    def _renew(self) -> None:
        """Give up a broken session; the next request makes a new one, after a pause while that fails."""
        session, self._session = self._session, None
        if session is None:
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._refused, 10), LONGEST_PAUSE_S)
            self._refused += 1
            self._load.stop.wait(pause_s)
            return
        self.replies.flush(self._load.epoch_ns)  # the end of a session may hang
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
