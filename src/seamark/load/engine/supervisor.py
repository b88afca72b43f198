"""Supervisor of the threads of a load: time-outs of hanging calls, requests in flight at the deadline, the end."""

import signal
import sys
from collections.abc import Sequence

import numpy as np

from seamark.load.driver import Body, Call, Reply, TaskFailure
from seamark.load.engine.schedule_share import Stalls, record_rest, record_unsent
from seamark.load.engine.threads import Claim, Load, User
from seamark.load.workers.assignment import WorkerCounters, WorkerRun
from seamark.model.sample import Failure

CHECK_S = 0.02
"""Interval of checks of an open loop's backlog, and of calls with short time-outs."""
CLOSED_CHECK_S = 0.1
"""The same for a closed loop, where a check takes the interpreter from the threads."""
LEAVING_S = 1.0
"""Grace after the last time-out for a thread without a request: one that hangs while its session closes, which no
time-out covers, is abandoned."""
SWITCH_S = 0.0005
"""Longest time that a computing thread keeps the interpreter from one whose reply has arrived."""


def run_calls(run: WorkerRun, driver: Call, bodies: Sequence[Body]) -> WorkerCounters:
    """Open a session for each thread, begin, run and supervise the load."""
    load = Load(run, driver, bodies)
    users = [User(load, driver.session()) for _ in range(run.assignment.concurrency)]
    for user in users:
        user.start()
    signal.signal(signal.SIGTERM, lambda *_: load.halt())
    sys.setswitchinterval(SWITCH_S)
    load.start(run.begin())
    return Supervisor(load, users).supervise()


class Supervisor:
    """Ends hanging calls, counts requests in flight at the deadline, detects the end."""

    def __init__(self, load: Load, users: list[User]) -> None:
        self._load = load
        self._users = users
        self._gone: list[User] = []
        self._replies = load.replies()
        self._backlog_max = 0
        self._survivors: int | None = None
        self._stalls = Stalls()

    def supervise(self) -> WorkerCounters:
        """Return the counters when every request has ended, and every thread has ended or been abandoned."""
        load = self._load
        overdue_ns = load.deadline_ns + load.late_ns + load.timeout_ns + int(LEAVING_S * 1e9)
        wait_s = max(0.001, min(CHECK_S if load.dispenser.open else CLOSED_CHECK_S, load.timeout_ns / 1e10))
        while load.fault is None and (alive := next((user for user in self._users if user.is_alive()), None)):
            began_ns = load.now_ns()
            to_deadline_s = (load.deadline_ns - began_ns) / 1e9
            pause_s = min(wait_s, to_deadline_s) if to_deadline_s > 0 else wait_s
            alive.join(pause_s)
            now_ns = load.now_ns()
            self._stalls.add(began_ns + int(pause_s * 1e9) - load.epoch_ns, now_ns - load.epoch_ns)
            self._check(now_ns)
            if load.stop.is_set():
                self._cancel()
                overdue_ns = min(overdue_ns, now_ns + int(LEAVING_S * 1e9))
            if now_ns > overdue_ns and not any(user.claims for user in self._users):
                self._abandon_threads()
        end_ns = load.now_ns()
        if load.dispenser.open and load.fault is None:
            try:
                self._record_unsent(end_ns - load.epoch_ns)
            except OSError as error:
                load.fault = error
        return self._counters(end_ns)

    def _check(self, now_ns: int) -> None:
        load = self._load
        if self._survivors is None:
            if load.dispenser.open:
                due = load.dispenser.due_by(now_ns - load.epoch_ns)
                self._backlog_max = max(self._backlog_max, due - self._sent())
                if load.report_progress is not None:
                    load.report_progress(now_ns - load.epoch_ns, due, self._completed())
            if now_ns >= load.deadline_ns:
                self._survivors = sum(len(user.claims) for user in self._users)
        for user in list(self._users):
            for claim in list(user.claims):
                if now_ns - claim[2] > load.timeout_ns:
                    self._write_off(user, claim, now_ns, Failure.TIMEOUT)

    def _write_off(self, user: User, claim: Claim, now_ns: int, failure: Failure) -> None:
        """Record a request in place of its thread, unless that has done so, and replace the thread."""
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

    def _abandon_threads(self) -> None:
        """Abandon threads that do not end: their samples are already written (`User._renew`)."""
        for user in [user for user in self._users if user.is_alive()]:
            self._users.remove(user)
            self._gone.append(user)

    def _cancel(self) -> None:
        """After a stop: give calls in flight a moment, then record them as cancelled."""
        if self._survivors is None:
            self._survivors = sum(len(user.claims) for user in self._users)
        for user in self._users:
            user.join(0.2 / len(self._users))
        now_ns = self._load.now_ns()
        for user in list(self._users):
            for claim in list(user.claims):
                self._write_off(user, claim, now_ns, Failure.CANCELLED)

    def _record_unsent(self, until_ns: int) -> None:
        """Record requests due by then and never sent: those taken too late, and those never taken."""
        load = self._load
        late = [user.unsent for user in self._users if user.unsent is not None and user.unsent[1] <= until_ns]
        turns = np.array(late, dtype=np.int64).reshape(-1, 2)
        record_unsent(load.segment, load.worker, load.kinds.tolist(), turns[:, 0], turns[:, 1])
        record_rest(load.segment, load.assignment, load.kinds.tolist(), taken=load.dispenser.taken, until_ns=until_ns)

    def _sent(self) -> int:
        return sum(user.sent for user in self._users) + sum(user.sent for user in self._gone)

    def _completed(self) -> int:
        return sum(user.completed for user in self._users + self._gone) + self._replies.count

    def _counters(self, now_ns: int) -> WorkerCounters:
        load = self._load
        sent = self._sent()
        until_ns = now_ns - load.epoch_ns
        if load.fault is not None:
            until_ns = max(until_ns, load.until_ns)  # the rest of the schedule counts as lost requests
        due = load.dispenser.due_by(until_ns) if load.dispenser.open else sent
        return WorkerCounters(
            scheduled=due,
            sent=sent,
            completed=self._completed(),
            survivors=self._survivors or 0,
            backlog_max=self._backlog_max,
            written_off=len(self._gone),
            stalls_ns=self._stalls.longest(),
            ran_out_s=None if load.ran_out_ns is None else (load.ran_out_ns - load.epoch_ns) / 1e9,
            fault=load.fault,
            category=load.fault.category if isinstance(load.fault, TaskFailure) else None,
            errors=load.errors or None,
        )
