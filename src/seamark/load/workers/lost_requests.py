"""What a worker that was lost had still to send: how many requests of its open schedule were due, or would have been.
Reads what it recorded."""

import contextlib

import numpy as np
import numpy.typing as npt

from seamark.load.engine.schedule_share import Arrived, own_schedule
from seamark.load.workers.assignment import Share
from seamark.load.workers.records import read_segment
from seamark.model.sample import MISSING_NS
from seamark.patterns.arrivals import Nanoseconds


def due_of_lost(share: Share, at_ns: int) -> int | None:
    """Return how many requests of a worker that left no report were due by `at_ns` from the start of load, None in a
    closed loop.

    A session's later turns are due by the replies to those before. What was recorded says that of the turns up to the
    loss; after it, each turn is taken to be answered well and in the mean time of the worker's good replies (at once,
    where it has none).
    """
    arrivals = own_schedule(share)
    if arrivals is None:
        return None
    if share.job.turns == 1:
        return Arrived(arrivals()).until(at_ns)
    starts_ns = np.concatenate([np.zeros(0, dtype=np.int64), *arrivals()])
    starts_ns = starts_ns[: np.searchsorted(starts_ns, at_ns, side="right")]
    sessions = _Sessions(share, starts_ns)
    with contextlib.suppress(OSError, ValueError):
        for records in read_segment(share.segment):
            sessions.add(records)
    return len(starts_ns) + sessions.recorded + sessions.missing(min(at_ns, int(share.job.until_s * 1e9)))


class _Sessions:
    """How far each session of one worker had come. `recorded` counts the later turns that left a record."""

    def __init__(self, share: Share, starts_ns: Nanoseconds) -> None:
        self.recorded = 0
        self._share = share
        self._think_ns = round(share.job.think_time_s * 1e9)
        self._starts_ns = starts_ns
        self._told = np.zeros(len(starts_ns), dtype=np.int64)
        self._next_ns = np.zeros(len(starts_ns), dtype=np.int64)
        self._broken = np.zeros(len(starts_ns), dtype=np.bool_)
        self._replies, self._reply_ns = 0, 0

    def add(self, records: npt.NDArray[np.void]) -> None:
        """Take records in the order in which the requests ended: of a session, the last one counts."""
        turns = self._share.job.turns
        turn = records["index"] % turns
        self.recorded += int((turn > 0).sum())
        good = (records["failure"] == 0) & (records["last_ns"] != MISSING_NS)
        self._replies += int(good.sum())
        self._reply_ns += int((records["last_ns"] - records["due_ns"])[good].sum())
        number = (records["index"] // turns - self._share.worker) // self._share.workers
        known = number < len(self._told)
        number = number[known]
        self._told[number] = turn[known] + 1
        self._next_ns[number] = records["last_ns"][known] + self._think_ns
        self._broken[number] = ~good[known]

    def missing(self, until_ns: int) -> int:
        """Return how many later turns without a record would have been due before `until_ns`."""
        job = self._share.job
        reply_ns = self._reply_ns // self._replies if self._replies else 0
        each_ns = max(1, reply_ns + self._think_ns)
        begun = self._told > 0
        told = np.where(begun, self._told, 1)
        next_ns = np.where(begun, self._next_ns, self._starts_ns + each_ns)
        whole = np.full(len(told), job.turns, dtype=np.int64)
        if job.requests is not None:
            first = (np.arange(len(told)) * self._share.workers + self._share.worker) * job.turns
            whole = np.minimum(whole, job.requests - first)
        in_time = np.where(self._broken, 0, -((next_ns - until_ns) // each_ns))
        return int(np.clip(in_time, 0, np.maximum(whole - told, 0)).sum())
