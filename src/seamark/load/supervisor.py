"""Watches the threads of a load: time-outs of calls that hang, what is in flight at the deadline, the end."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from time import monotonic_ns

import numpy as np

from seamark.load.driver import Body, Call
from seamark.load.job import Share
from seamark.load.observed import Observed
from seamark.load.records import Recorder, Segment
from seamark.load.threads import Load, User
from seamark.load.unsent import record_rest, record_unsent
from seamark.model.failure import Failure
from seamark.model.sample import MISSING_NS

WATCH_S = 0.02
SWITCH_S = 0.0005
"""How long a thread that computes may keep the interpreter from one whose reply is in."""


def run_calls(
    share: Share, driver: Call, bodies: Sequence[Body], segment: Segment, begin: Callable[[], int]
) -> Observed:
    """Make a session for each thread, call `begin` (it returns the epoch), run the load and watch over it."""
    load = Load(share, driver, bodies, segment)
    users = [User(load, driver.session()) for _ in range(share.concurrency)]
    for user in users:
        user.start()
    signal.signal(signal.SIGTERM, lambda *_: load.stop.set())
    sys.setswitchinterval(SWITCH_S)
    load.start(begin())
    return Supervisor(load, users).watch()


class Supervisor:
    """Watches the threads: times out calls that hang, counts what is in flight at the deadline, sees the end."""

    def __init__(self, load: Load, users: list[User]) -> None:
        self._load = load
        self._users = users
        self._gone: list[User] = []
        self._recorder = Recorder(load.segment)
        self._recorded = 0
        self._backlog_max = 0
        self._survivors: int | None = None

    def watch(self) -> Observed:
        """Return when every request has ended."""
        load = self._load
        wait_s = max(0.001, min(WATCH_S, load.timeout_ns / 1e10))
        while any(user.is_alive() for user in self._users) and load.fault is None:
            to_deadline_s = (load.deadline_ns - monotonic_ns()) / 1e9
            time.sleep(min(wait_s, to_deadline_s) if to_deadline_s > 0 else wait_s)
            self._look(monotonic_ns())
            if load.stop.is_set():
                self._cancel()
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
                waiting = load.turns.due_by(now_ns - load.epoch_ns) - self._sent()
                self._backlog_max = max(self._backlog_max, waiting)
            if now_ns >= load.deadline_ns:
                self._survivors = sum(len(user.claims) for user in self._users)
        for user in list(self._users):
            for index, (due_ns, sent_ns) in list(user.claims.items()):
                if now_ns - sent_ns > load.timeout_ns:
                    self._write_off(user, index, due_ns, sent_ns, now_ns, Failure.TIMEOUT)

    def _write_off(self, user: User, index: int, due_ns: int, sent_ns: int, now_ns: int, failure: Failure) -> None:
        """Record a request in the place of its thread, if that has not done so, and replace the thread."""
        load = self._load
        if user.claims.pop(index, None) is None:
            return
        user.recorder.flush()
        self._recorded += 1
        self._recorder.add(
            index,
            due_ns - load.epoch_ns,
            sent_ns - load.epoch_ns,
            MISSING_NS,
            now_ns - load.epoch_ns,
            0,
            0,
            0,
            0,
            failure,
            load.kinds[index % len(load.kinds)],
            load.worker,
        )
        self._users.remove(user)
        self._gone.append(user)
        if failure == Failure.TIMEOUT:
            another = User(load, None)
            self._users.append(another)
            another.start()

    def _cancel(self) -> None:
        """After a stop: give calls in flight a moment, then record them as cancelled."""
        if self._survivors is None:
            self._survivors = sum(len(user.claims) for user in self._users)
        for user in self._users:
            user.join(0.2 / len(self._users))
        now_ns = monotonic_ns()
        for user in list(self._users):
            for index, (due_ns, sent_ns) in list(user.claims.items()):
                self._write_off(user, index, due_ns, sent_ns, now_ns, Failure.CANCELLED)

    def _record_unsent(self, until_ns: int) -> None:
        """Record what was due by then and never sent: turns that came too late, and those that nobody took."""
        load = self._load
        late = [user.unsent for user in self._users if user.unsent is not None and user.unsent[1] <= until_ns]
        turns = np.array(late, dtype=np.int64).reshape(-1, 2)
        record_unsent(load.segment, load.worker, load.kinds, turns[:, 0], turns[:, 1])
        record_rest(load.segment, load.share, load.kinds, taken=load.turns.taken, until_ns=until_ns)

    def _sent(self) -> int:
        return sum(user.sent for user in self._users) + sum(user.sent for user in self._gone)

    def _observed(self, now_ns: int) -> Observed:
        load = self._load
        self._recorder.flush()
        everyone = self._users + self._gone
        sent = self._sent()
        until_ns = now_ns - load.epoch_ns
        if load.fault is not None:
            until_ns = max(until_ns, load.until_ns)  # the whole schedule counts: the rest of it is lost
        due = load.turns.due_by(until_ns) if load.turns.open else sent
        return Observed(
            scheduled=due,
            sent=sent,
            completed=sum(user.completed for user in everyone) + self._recorded,
            survivors=self._survivors or 0,
            backlog_max=self._backlog_max,
            written_off=len(self._gone),
            fault=load.fault,
        )
