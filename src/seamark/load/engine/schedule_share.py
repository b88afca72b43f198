"""Schedule share of one worker: its arrivals, how many are due, which were never sent, which a lost worker had
left. Its lag behind the schedule, its stalls, and a thread's wait for its next request."""

import contextlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event
from time import monotonic_ns, sleep

import numpy as np
import numpy.typing as npt

from seamark.load.workers.assignment import WorkerAssignment
from seamark.load.workers.records import Segment, read_segment
from seamark.model.digest import seed_for
from seamark.model.sample import MISSING_NS, SAMPLE, Failure
from seamark.patterns.patterns import Pattern, Repeated
from seamark.patterns.table import Nanoseconds, pattern_of, runs_out, schedule
from seamark.stats.histogram import Accumulator, Histogram

STALL_NS = 100_000_000
MOST_STALLS = 100
EARLY_S = 60e-6
"""A sleeping thread wakes up this much before its request is due, then spins."""


def arrivals_of(assignment: WorkerAssignment) -> Pattern | None:
    """Return the pattern of the load, None for a closed loop and for a program: with `keep_busy`, one
    that ends begins anew."""
    if assignment.job.kind == "program":
        return None
    pattern = pattern_of(assignment.load)
    return Repeated(pattern=pattern) if pattern is not None and assignment.job.keep_busy else pattern


def own_schedule(assignment: WorkerAssignment) -> Callable[[], Iterator[Nanoseconds]] | None:
    """Return a function that generates this worker's arrivals (session starts where there are sessions), None for a
    closed loop."""
    load, pattern = assignment.load, arrivals_of(assignment)
    if pattern is None:
        return None
    return lambda: schedule(
        pattern,
        seed=seed_for(assignment.job.seed, "arrivals"),
        until_s=load.length_s,
        requests=load.arrivals,
        worker=assignment.worker,
        workers=assignment.workers,
    )


def ran_out(assignment: WorkerAssignment) -> bool:
    """Return whether a finite pattern has no arrival left before the end of the load; False if its file is gone."""
    load, pattern = assignment.load, arrivals_of(assignment)
    if pattern is not None:
        with contextlib.suppress(OSError, ValueError):  # the request limit is reported as a separate reason
            return runs_out(load, pattern, load.length_s, load.arrivals)
    return False


def last_sent_s(segment: Path) -> float:
    """Return the time of the last send in a segment since the start of load, 0 without one."""
    return max((int(records["sent_ns"].max(initial=0)) for records in read_segment(segment)), default=0) / 1e9


class Arrived:
    """Counts due arrivals of a schedule with one block of it in memory."""

    def __init__(self, blocks: Iterator[Nanoseconds]) -> None:
        self._blocks = blocks
        self._block = np.zeros(0, dtype=np.int64)
        self._before = 0

    def until(self, at_ns: int) -> int:
        """Return the number of arrivals due by `at_ns` since the start of load; `at_ns` must not decrease."""
        while not self._block.size or self._block[-1] <= at_ns:
            block = next(self._blocks, None)
            if block is None:
                return self._before + self._block.size
            self._before += self._block.size
            self._block = block
        return self._before + int(np.searchsorted(self._block, at_ns, side="right"))


def record_unsent(
    segment: Segment, worker: int, kinds: Sequence[int], indexes: Nanoseconds, due_ns: Nanoseconds
) -> None:
    """Record unsent requests as cancelled: a due time and no other. Raises OSError (no space)."""
    records = np.zeros(len(indexes), dtype=SAMPLE)
    records["index"], records["due_ns"] = indexes, due_ns
    for name in ("sent_ns", "first_ns", "answer_ns", "last_ns"):
        records[name] = MISSING_NS
    records["failure"], records["worker"] = Failure.CANCELLED, worker
    records["kind"] = np.asarray(kinds)[indexes % len(kinds)]
    if len(records):
        segment.append(memoryview(records.tobytes()), len(records))


def record_rest(
    segment: Segment, assignment: WorkerAssignment, kinds: Sequence[int], *, taken: int, until_ns: int
) -> None:
    """Record arrivals due by `until_ns` since the start of load as unsent, except the first `taken` of this worker's
    schedule. Of sessions, their first turns. Nothing for a closed loop."""
    arrivals = own_schedule(assignment)
    number = 0
    for block in arrivals() if arrivals else ():
        due_ns = block[: np.searchsorted(block, until_ns, side="right")]
        first = min(max(0, taken - number), due_ns.size)
        numbers = np.arange(number + first, number + due_ns.size, dtype=np.int64)
        indexes = (numbers * assignment.workers + assignment.worker) * assignment.load.turns
        record_unsent(segment, assignment.worker, kinds, indexes, due_ns[first:])
        if due_ns.size < block.size:
            return
        number += block.size


def due_requests_of_lost(assignment: WorkerAssignment, at_ns: int) -> int | None:
    """Return the number of requests of a lost worker due by `at_ns` since the start of load, None for a closed loop.

    Later turns of a session are due by earlier replies. Up to the loss, the records tell; after it, each turn is
    assumed to succeed within the mean reply time of the worker's good replies (0 without any).
    """
    arrivals = own_schedule(assignment)
    if arrivals is None:
        return None
    if assignment.load.turns == 1:
        return Arrived(arrivals()).until(at_ns)
    starts_ns = np.concatenate([np.zeros(0, dtype=np.int64), *arrivals()])
    starts_ns = starts_ns[: np.searchsorted(starts_ns, at_ns, side="right")]
    sessions = _Sessions(assignment, starts_ns)
    with contextlib.suppress(OSError, ValueError):
        for records in read_segment(assignment.segment):
            sessions.add(records)
    return len(starts_ns) + sessions.recorded + sessions.missing(min(at_ns, int(assignment.load.length_s * 1e9)))


class _Sessions:
    """Progress of each session of one worker. `recorded` counts the later turns with a record."""

    def __init__(self, assignment: WorkerAssignment, starts_ns: Nanoseconds) -> None:
        self.recorded = 0
        self._share = assignment
        self._think_ns = round(assignment.load.think_time_s * 1e9)
        self._starts_ns = starts_ns
        self._turns_recorded = np.zeros(len(starts_ns), dtype=np.int64)
        self._next_ns = np.zeros(len(starts_ns), dtype=np.int64)
        self._broken = np.zeros(len(starts_ns), dtype=np.bool_)
        self._replies, self._reply_ns = 0, 0

    def add(self, records: npt.NDArray[np.void]) -> None:
        """Add records in the order in which requests ended: the last record of a session counts."""
        turns = self._share.load.turns
        turn = records["index"] % turns
        self.recorded += int((turn > 0).sum())
        good = (records["failure"] == 0) & (records["last_ns"] != MISSING_NS)
        self._replies += int(good.sum())
        self._reply_ns += int((records["last_ns"] - records["due_ns"])[good].sum())
        number = (records["index"] // turns - self._share.worker) // self._share.workers
        in_range = number < len(self._turns_recorded)
        number = number[in_range]
        self._turns_recorded[number] = turn[in_range] + 1
        self._next_ns[number] = records["last_ns"][in_range] + self._think_ns
        self._broken[number] = ~good[in_range]

    def missing(self, until_ns: int) -> int:
        """Return the number of later turns without a record that would have been due before `until_ns`."""
        load = self._share.load
        reply_ns = self._reply_ns // self._replies if self._replies else 0
        each_ns = max(1, reply_ns + self._think_ns)
        begun = self._turns_recorded > 0
        turns_recorded = np.where(begun, self._turns_recorded, 1)
        next_ns = np.where(begun, self._next_ns, self._starts_ns + each_ns)
        whole = np.full(len(turns_recorded), load.turns, dtype=np.int64)
        if load.requests is not None:
            first = (np.arange(len(turns_recorded)) * self._share.workers + self._share.worker) * load.turns
            whole = np.minimum(whole, load.requests - first)
        in_time = np.where(self._broken, 0, -((next_ns - until_ns) // each_ns))
        return int(np.clip(in_time, 0, np.maximum(whole - turns_recorded, 0)).sum())


def lag_summary(lags_ns: Histogram) -> dict[str, int] | None:
    """Return p50, p99 and max of lags in ns, or None when nothing was counted."""
    p50, p99 = lags_ns.quantile(0.50), lags_ns.quantile(0.99)
    if p50 is None or p99 is None or lags_ns.maximum is None:
        return None
    return {"p50": round(p50), "p99": round(p99), "max": lags_ns.maximum}


def schedule_lag(segment: Path) -> dict[str, int] | None:
    """Return the schedule lag (`sent - due`) in ns of the requests in a segment that were sent."""
    lags = Accumulator()
    for records in read_segment(segment):
        sent = records[records["sent_ns"] != MISSING_NS]
        lags.add(np.maximum(sent["sent_ns"] - sent["due_ns"], 0))
    return lag_summary(lags.histogram())


class Stalls:
    """The 100 longest stalls of at least 0.1 s: the loop or supervising thread ran much later than planned."""

    def __init__(self) -> None:
        self._longest: list[tuple[int, int, int]] = []

    def add(self, from_ns: int, until_ns: int) -> None:
        """Add the interval between the planned and actual time of a run, in ns since the start of load."""
        length_ns = until_ns - from_ns
        if length_ns < STALL_NS:
            return
        heapq.heappush(self._longest, (length_ns, from_ns, until_ns))
        if len(self._longest) > MOST_STALLS:
            heapq.heappop(self._longest)

    def longest(self) -> Sequence[tuple[int, int]]:
        """Return the stalls as (from, until) in order of time."""
        return sorted((from_ns, until_ns) for _, from_ns, until_ns in self._longest)


def wait_until(at_ns: int, stop: Event) -> None:
    """Return at `at_ns` of CLOCK_MONOTONIC, or soon after `stop` is set."""
    while True:
        left_s = (at_ns - monotonic_ns()) / 1e9
        if left_s <= 0:
            return
        if left_s > 0.1:
            if stop.wait(left_s - 0.05):
                return
        elif left_s > EARLY_S:
            sleep(left_s - EARLY_S)
