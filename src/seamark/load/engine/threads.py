"""Blocking Call drivers in threads: each thread is a user with a session of its own. No event loop here.

A call cannot be cancelled from outside. The supervisor records one that exceeds the time-out, abandons its thread and
starts another. The side that removes the claim of a request writes its record, so each is written once.

Every request of a closed loop passes through `User._run` only, one loop without further calls: beside a busy server,
code between two calls runs on cold caches and takes ten times as long as in a loop by itself. For the same reason a
reply costs three appends to lists, and records are made of many at a time.
"""

import contextlib
import itertools
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from time import monotonic_ns
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from seamark.load.driver import Body, Call, NoMoreRequests, Reply, Session, TaskFailure, TracedSession, whole
from seamark.load.engine.schedule_share import Arrived, own_schedule, wait_until
from seamark.load.workers.assignment import WorkerAssignment, WorkerRun, count_error
from seamark.load.workers.records import ReplySegment, Segment
from seamark.model.sample import CONFLICTS, MISSING_NS, SAMPLE, Failure

MOST = 512
"""Replies buffered before they are written: some tens of microseconds of work, so that no request waits."""

Claim = tuple[int, int, int]
"""A request in flight: its index, due time and send time, in ns of the load's clock."""


class FinishedRequests:
    """Finished requests of one thread: `claims`, end times in ns, and replies.

    A thread appends to the three lists alike; `flush` turns them into records and empties them.
    """

    __slots__ = ("_count", "_kept", "_kinds", "_segment", "_worker", "claims", "ends_ns", "seen")

    def __init__(
        self, segment: Segment, *, worker: int, kinds: npt.NDArray[np.int8], kept: ReplySegment | None = None
    ) -> None:
        self._segment = segment
        self._kept = kept
        self._worker = worker
        self._kinds = kinds
        self._count = 0
        self.claims: list[Claim] = []
        self.ends_ns: list[int] = []
        self.seen: list[Reply] = []

    @property
    def count(self) -> int:
        """Number of finished requests, written or not."""
        return self._count + len(self.seen)

    def flush(self, epoch_ns: int) -> None:
        """Write the kept requests. Raises OSError when the disk is full."""
        if not self.seen:
            return
        records = self._records(epoch_ns)
        if self._kept is not None:
            pairs = ((claim[0], reply.kept) for claim, reply in zip(self.claims, self.seen, strict=True))
            self._kept.add_all((index, kept) for index, kept in pairs if kept is not None)
        self._count += len(records)
        for kept in (self.claims, self.ends_ns, self.seen):
            kept.clear()
        self._segment.append(memoryview(records.tobytes()), len(records))

    def _records(self, epoch_ns: int) -> npt.NDArray[np.void]:
        count = len(self.seen)
        claims = np.fromiter(chain.from_iterable(self.claims), np.int64, 3 * count).reshape(-1, 3)
        records = np.zeros(count, dtype=SAMPLE)
        records["index"] = claims[:, 0]
        records["due_ns"] = claims[:, 1] - epoch_ns
        records["sent_ns"] = claims[:, 2] - epoch_ns
        records["first_ns"] = records["answer_ns"] = MISSING_NS
        records["last_ns"] = np.fromiter(self.ends_ns, np.int64, count) - epoch_ns
        records["kind"] = self._kinds[claims[:, 0] % len(self._kinds)]
        records["worker"] = self._worker
        alike = self.seen.count(self.seen[0]) == count
        seen: Sequence[Reply] = self.seen[:1] if alike else self.seen
        for name in ("units", "bytes_sent", "bytes_received", "status", "failure", "retries"):
            records[name] = [getattr(reply, name) for reply in seen]
        if any(reply.first_ns is not None for reply in seen):
            first = [MISSING_NS if reply.first_ns is None else reply.first_ns - epoch_ns for reply in seen]
            records["first_ns"] = first
        if any(reply.began_ns is not None for reply in seen):
            began = [
                claim[2] if reply.began_ns is None else reply.began_ns
                for claim, reply in zip(self.claims, self.seen, strict=True)
            ]
            records["due_ns"] = records["sent_ns"] = np.array(began) - epoch_ns
        return records


FLUSH_NS = 1_000_000_000
"""A killed worker loses at most this much of its samples."""
FINITE_FLUSH_NS = 20_000_000
"""The same for the items of a finite load, which may take long and would be done again."""
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SHOWN_ERRORS = 3
LOST_SESSION = frozenset({Failure.CONNECT, Failure.RESET, Failure.TIMEOUT, Failure.PROTOCOL, Failure.REPLY_TOO_LARGE})


class RequestDispenser:
    """Hands out requests to threads: at once in a closed loop, by due time in an open one."""

    def __init__(self, assignment: WorkerAssignment) -> None:
        arrivals = own_schedule(assignment)
        self._worker, self._workers = assignment.worker, assignment.workers
        self.indices = iter(assignment.indexes)
        """Request indexes of a closed loop, shared by all threads; the interpreter lock makes each step atomic."""
        self._lock = threading.Lock()
        self._due: Iterator[int] | None = None
        self._arrived: Arrived | None = None
        if arrivals is not None:
            self._due = itertools.chain.from_iterable(block.tolist() for block in arrivals())
            self._arrived = Arrived(arrivals())
        self.open = arrivals is not None
        self.taken = 0

    def next_open(self) -> tuple[int, int] | None:
        """Return index and due time (from the start of load) of the next request, None after the last."""
        assert self._due is not None
        with self._lock:
            due_ns = next(self._due, None)
            if due_ns is None:
                return None
            number = self.taken
            self.taken += 1
        return number * self._workers + self._worker, due_ns

    def due_by(self, at_ns: int) -> int:
        """Return the number of requests of an open loop due by then."""
        return 0 if self._arrived is None else self._arrived.until(at_ns)


class Load:
    """State shared by all threads of a worker."""

    def __init__(self, run: WorkerRun, driver: Call, bodies: Sequence[Body]) -> None:
        assignment = self.assignment = run.assignment
        self.segment, self.kept, self.report_progress = run.segment, run.replies, run.report_progress
        self.traced = assignment.load.keep_events
        self.driver = driver
        clock = driver.clock
        self.now_ns = monotonic_ns if clock is None else clock.now_ns
        self.wait_until = wait_until if clock is None else clock.wait_until
        self.bodies = bodies
        self.kinds = np.array([body.kind for body in bodies], dtype=np.int8)
        self.worker = assignment.worker
        self.dispenser = RequestDispenser(assignment)
        self.timeout_ns = int(assignment.load.timeout_s * 1e9)
        self.think_time_s = assignment.load.think_time_s
        self.max_tries = whole(assignment.job.settings, "max_tries", 1)
        self.until_ns = int(assignment.load.length_s * 1e9)
        self.late_ns = int(assignment.load.late_s * 1e9)
        self.flush_ns = FINITE_FLUSH_NS if assignment.load.finite else FLUSH_NS
        self.epoch_ns = 0
        self.deadline_ns = 0
        self.end_ns = 0
        """Time after which no request is sent: in an open loop `late_ns` after the deadline; 0 after a stop."""
        self.go = threading.Event()
        self.stop = threading.Event()
        self.ran_out_ns: int | None = None
        """Time at which a thread of a closed loop first had nothing left to send."""
        self.fault: BaseException | None = None
        self.errors: dict[str, dict[str, Any]] = {}
        """By code of the service's own: an ErrorsSeen."""
        self._shown = itertools.count()
        self._lock = threading.Lock()

    def start(self, epoch_ns: int) -> None:
        """Set the clock and start the threads."""
        self.epoch_ns = epoch_ns
        self.deadline_ns = epoch_ns + self.until_ns
        self.end_ns = self.deadline_ns + self.late_ns
        if self.stop.is_set():
            self.end_ns = 0
        self.go.set()

    def halt(self) -> None:
        """Stop sending and wake up waiting threads."""
        self.end_ns = 0
        self.stop.set()

    def replies(self) -> FinishedRequests:
        """Return an empty list of finished requests."""
        return FinishedRequests(self.segment, worker=self.worker, kinds=self.kinds, kept=self.kept)

    def note(self, reply: Reply) -> None:
        """Count what the service says of a failed request, by its code."""
        with self._lock:
            count_error(self.errors, reply.failure, reply.error)

    def failed(self, error: Exception) -> Reply:
        """Return what a call that raised comes to."""
        return Reply(units=0, failure=self.category(error), error=f"{type(error).__name__}: {error}")

    def category(self, error: Exception) -> Failure:
        """Return the driver's category of an exception; the first few are printed on stderr."""
        if next(self._shown) < SHOWN_ERRORS:
            traceback.print_exception(error)
        try:
            return self.driver.failure(error)
        except Exception:
            traceback.print_exc()
            return Failure.DRIVER


class User(threading.Thread):
    """One thread: takes a request, waits until it is due, calls, keeps the reply."""

    def __init__(self, load: Load, session: Session | None) -> None:
        super().__init__(daemon=True)
        self._load = load
        self._session = session
        self._refused = 0
        self._traced = load.traced
        self.replies = load.replies()
        self.claims: list[Claim] = []
        """The request in flight, if any. Whoever removes it records it."""
        self.written_off = False
        """Set when the supervisor took the claim: this thread no longer belongs to the load."""
        self.unsent: tuple[int, int] | None = None
        """The request that was taken too late to send: its index, and its due time from the start of load."""

    @property
    def completed(self) -> int:
        """Requests that ended and were recorded by this thread."""
        return self.replies.count

    @property
    def sent(self) -> int:
        """Requests begun: those that ended, the one in flight, the one written off."""
        return self.completed + len(self.claims) + self.written_off

    def run(self) -> None:
        """Send requests until the load is over; a fault of the client ends the load."""
        load = self._load
        try:
            load.go.wait()
            if not load.dispenser.open:
                load.wait_until(load.epoch_ns, load.stop)
            if self._run():
                self.replies.flush(load.epoch_ns)
                if self._session is not None:
                    self._session.close()
            else:
                self._leave()
        except Exception as error:
            load.fault = load.fault or error

    def _leave(self) -> None:
        """Close the session of a call that returned after it was written off, and ignore its errors."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()

    def _run(self) -> bool:
        """Make requests until the end; return False if this thread has been written off."""
        load, in_flight, replies = self._load, self.claims, self.replies
        claims, ends_ns, seen = replies.claims, replies.ends_ns, replies.seen
        bodies, many, indices = load.bodies, len(load.bodies), load.dispenser.indices
        is_open, timeout_ns, think_time_s = load.dispenser.open, load.timeout_ns, load.think_time_s
        call, now_ns = self._call_of(self._session), load.now_ns
        usual: Reply | None = None
        flush_ns = 0
        while True:
            if is_open:
                turn = self._next_due()
                if turn is None:
                    return True
                index, due_ns = turn
                sent_ns = now_ns()
            else:
                due_ns = sent_ns = now_ns()
                if sent_ns >= load.end_ns:
                    return True
                following = next(indices, None)
                if following is None:
                    load.ran_out_ns = load.ran_out_ns or sent_ns
                    return True
                index = following
            body = bodies[index % many]
            claim = (index, due_ns, sent_ns)
            in_flight.append(claim)
            try:
                reply = call(body)
                end_ns = now_ns()
            except TaskFailure:
                raise  # the whole load has failed
            except NoMoreRequests:
                in_flight.clear()
                load.ran_out_ns = load.ran_out_ns or sent_ns
                return True
            except Exception as error:
                end_ns = now_ns()
                reply = load.failed(error)
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
                flush_ns = end_ns + load.flush_ns
            if unusual:
                usual = None if reply.failure else reply
                if reply.failure and reply.error:
                    load.note(reply)
                if reply.failure in LOST_SESSION:
                    self._renew()
                call = self._call_of(self._session)
            if think_time_s:
                load.wait_until(now_ns() + int(think_time_s * 1e9), load.stop)

    def _next_due(self) -> tuple[int, int] | None:
        """Wait for the next request of an open loop; return its index and due time, None at the end."""
        load = self._load
        turn = load.dispenser.next_open()
        if turn is None:
            return None
        index, due_ns = turn
        due_ns += load.epoch_ns
        load.wait_until(due_ns, load.stop)
        if load.now_ns() >= load.end_ns:
            self.unsent = turn
            return None
        return index, due_ns

    def _call_of(self, session: Session | None) -> Callable[[Body], Reply]:
        """Return the function that makes a request, by a session or, if there is none, by a new one."""
        if session is None:
            return self._first_call
        call = self._with_trace(session) if self._traced else session.call
        return call if self._load.max_tries == 1 else self._tried(call)

    def _with_trace(self, session: Session) -> Callable[[Body], Reply]:
        traced, in_flight = cast(TracedSession, session).call_traced, self.claims

        def call(body: Body) -> Reply:
            claim = in_flight[-1:]  # empty for a request that was written off in this moment
            return traced(body, claim[0][0]) if claim else session.call(body)

        return call

    def _tried(self, call: Callable[[Body], Reply]) -> Callable[[Body], Reply]:
        """Return a function that makes a request up to `max_tries` times while it fails by a conflict with others, as
        `pgbench --max-tries` does. One that was written off is not tried again."""
        load, in_flight = self._load, self.claims

        def tried(body: Body) -> Reply:
            retries = 0
            while True:
                try:
                    reply = call(body)
                except Exception as error:
                    reply = load.failed(error)
                if reply.failure not in CONFLICTS or retries + 1 >= load.max_tries or not in_flight:
                    return replace(reply, retries=retries) if retries else reply
                retries += 1

        return tried

    def _first_call(self, body: Body) -> Reply:
        """Open a new session and call with it."""
        self._session = self._load.driver.session()
        self._refused = 0
        return self._call_of(self._session)(body)

    def _renew(self) -> None:
        """Drop a broken session; the next request opens a new one, after a back-off while that fails."""
        session, self._session = self._session, None
        if session is None:
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._refused, 10), LONGEST_PAUSE_S)
            self._refused += 1
            self._load.stop.wait(pause_s)
            return
        self.replies.flush(self._load.epoch_ns)  # closing a session may hang
        try:
            session.close()
        except Exception as error:
            self._load.category(error)
