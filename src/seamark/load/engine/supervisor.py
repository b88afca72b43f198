"""Watches the threads of a load: time-outs of calls that hang, what is in flight at the deadline, the end."""

import signal
import sys
from collections.abc import Callable, Sequence
from time import monotonic_ns

import numpy as np

from seamark.load.driver import Body, Call, Reply
from seamark.load.engine.call_records import Claim
from seamark.load.engine.stalls import Stalls
from seamark.load.engine.threads import Load, User
from seamark.load.engine.unsent_requests import record_rest, record_unsent
from seamark.load.workers.assignment import Share
from seamark.load.workers.records import Segment
from seamark.load.workers.worker_counters import Observed
from seamark.model.failure import Failure

WATCH_S = 0.02
"""How often an open loop's backlog is looked at, and calls in flight of short time-outs."""
CLOSED_WATCH_S = 0.1
"""The same of a closed loop, whose threads need the interpreter that the look takes."""
LEAVING_S = 1.0
"""How long after the last time-out a thread without a request may take to end: one that hangs in the end of its
session, which no time-out covers, is left behind."""
SWITCH_S = 0.0005
"""How long a thread that computes may keep the interpreter from one whose reply is in."""


def run_calls(
    share: Share,
    driver: Call,
    bodies: Sequence[Body],
    segment: Segment,
    begin: Callable[[], int],
    tell: Callable[[int, int, int], None] | None = None,
) -> Observed:
    """Make a session for each thread, call `begin` (it returns the epoch), run the load and watch over it. `tell` is
    as `run_wire` has it."""
    load = Load(share, driver, bodies, segment)
    users = [User(load, driver.session()) for _ in range(share.concurrency)]
    for user in users:
        user.start()
    signal.signal(signal.SIGTERM, lambda *_: load.halt())
    sys.setswitchinterval(SWITCH_S)
    load.start(begin())
    return Supervisor(load, users, tell).watch()


class Supervisor:
    """Watches the threads: times out calls that hang, counts what is in flight at the deadline, sees the end."""

    def __init__(self, load: Load, users: list[User], tell: Callable[[int, int, int], None] | None = None) -> None:
        self._tell = tell
        self._load = load
        self._users = users
        self._gone: list[User] = []
        self._replies = load.replies()
        self._backlog_max = 0
        self._survivors: int | None = None
        self._stalls = Stalls()

    def watch(self) -> Observed:
        """Return when every request has ended and every thread has, or should have."""
        load = self._load
        overdue_ns = load.deadline_ns + load.timeout_ns + int(LEAVING_S * 1e9)
        wait_s = max(0.001, min(WATCH_S if load.turns.open else CLOSED_WATCH_S, load.timeout_ns / 1e10))
        while load.fault is None and (alive := next((user for user in self._users if user.is_alive()), None)):
            began_ns = monotonic_ns()
            to_deadline_s = (load.deadline_ns - began_ns) / 1e9
            pause_s = min(wait_s, to_deadline_s) if to_deadline_s > 0 else wait_s
            alive.join(pause_s)
            now_ns = monotonic_ns()
            self._stalls.add(began_ns + int(pause_s * 1e9) - load.epoch_ns, now_ns - load.epoch_ns)
            self._look(now_ns)
            if load.stop.is_set():
                self._cancel()
                overdue_ns = min(overdue_ns, now_ns + int(LEAVING_S * 1e9))
            if now_ns > overdue_ns and not any(user.claims for user in self._users):
                self._leave_behind()
        end_ns = monotonic_ns()
        if load.turns.open and load.fault is None:
            try:
                self._record_unsent(end_ns - load.epoch_ns)
            except OSError as error:
                load.fault = error
        return self._observed(end_ns)

    def _look(self, now_ns: int) -> None:
        load = self._load
        if self._survivors is None:
            if load.turns.open:
                due = load.turns.due_by(now_ns - load.epoch_ns)
                self._backlog_max = max(self._backlog_max, due - self._sent())
                if self._tell is not None:
                    self._tell(now_ns - load.epoch_ns, due, self._completed())
            if now_ns >= load.deadline_ns:
                self._survivors = sum(len(user.claims) for user in self._users)
        for user in list(self._users):
            for claim in list(user.claims):
                if now_ns - claim[2] > load.timeout_ns:
                    self._write_off(user, claim, now_ns, Failure.TIMEOUT)

    def _write_off(self, user: User, claim: Claim, now_ns: int, failure: Failure) -> None:
        """Record a request in the place of its thread, if that has not done so, and replace the thread."""
        load = self._load
        try:
            user.claims.remove(claim)
        except ValueError:
            return
        user.written_off = True
        user.replies.flush(load.epoch_ns)
        self._replies.claims.append(claim)
        self._replies.ends_ns.append(now_ns)
        self._replies.seen.append(Reply(units=0, failure=failure))
        self._replies.flush(load.epoch_ns)
        self._users.remove(user)
        self._gone.append(user)
        if failure == Failure.TIMEOUT:
            another = User(load, None)
            self._users.append(another)
            another.start()

    def _leave_behind(self) -> None:
        """Wait no longer for threads that do not end: what they have seen is written (`User._renew`)."""
        for user in [user for user in self._users if user.is_alive()]:
            self._users.remove(user)
            self._gone.append(user)

    def _cancel(self) -> None:
        """After a stop: give calls in flight a moment, then record them as cancelled."""
        if self._survivors is None:
            self._survivors = sum(len(user.claims) for user in self._users)
        for user in self._users:
            user.join(0.2 / len(self._users))
        now_ns = monotonic_ns()
        for user in list(self._users):
            for claim in list(user.claims):
                self._write_off(user, claim, now_ns, Failure.CANCELLED)

    def _record_unsent(self, until_ns: int) -> None:
        """Record what was due by then and never sent: turns that came too late, and those that nobody took."""
        load = self._load
        late = [user.unsent for user in self._users if user.unsent is not None and user.unsent[1] <= until_ns]
        turns = np.array(late, dtype=np.int64).reshape(-1, 2)
        record_unsent(load.segment, load.worker, load.kinds.tolist(), turns[:, 0], turns[:, 1])
        record_rest(load.segment, load.share, load.kinds.tolist(), taken=load.turns.taken, until_ns=until_ns)

    def _sent(self) -> int:
        return sum(user.sent for user in self._users) + sum(user.sent for user in self._gone)

    def _completed(self) -> int:
        return sum(user.completed for user in self._users + self._gone) + self._replies.count

    def _observed(self, now_ns: int) -> Observed:
        load = self._load
        sent = self._sent()
        until_ns = now_ns - load.epoch_ns
        if load.fault is not None:
            until_ns = max(until_ns, load.until_ns)  # the whole schedule counts: the rest of it is lost
        due = load.turns.due_by(until_ns) if load.turns.open else sent
        return Observed(
            scheduled=due,
            sent=sent,
            completed=self._completed(),
            survivors=self._survivors or 0,
            backlog_max=self._backlog_max,
            written_off=len(self._gone),
            stalls_ns=self._stalls.longest(),
            fault=load.fault,
        )
