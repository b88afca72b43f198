"""Requests that were due and never sent: what they are, and their records. Each is one row, not a silence."""

from collections.abc import Iterator, Sequence

import numpy as np

from seamark.load.engine.schedule_share import own_schedule
from seamark.load.workers.assignment import Share
from seamark.load.workers.records import Segment
from seamark.model.failure import Failure
from seamark.model.sample import MISSING_NS, SAMPLE
from seamark.patterns.arrivals import Nanoseconds


def unsent(share: Share, *, taken: int, until_ns: int) -> Iterator[tuple[Nanoseconds, Nanoseconds]]:
    """Yield index and due time, in blocks, of what was due by `until_ns` from the start of load, without the first
    `taken` of this worker's schedule; of sessions, their first turns. Nothing for a closed loop."""
    arrivals = own_schedule(share)
    number = 0
    for block in arrivals() if arrivals else ():
        due_ns = block[: np.searchsorted(block, until_ns, side="right")]
        first = min(max(0, taken - number), due_ns.size)
        if first < due_ns.size:
            numbers = np.arange(number + first, number + due_ns.size, dtype=np.int64)
            yield (numbers * share.workers + share.worker) * share.job.turns, due_ns[first:]
        if due_ns.size < block.size:
            return
        number += block.size


def record_unsent(
    segment: Segment, worker: int, kinds: Sequence[int], indexes: Nanoseconds, due_ns: Nanoseconds
) -> None:
    """Record requests as cancelled before they were sent: due, and no other time. Raises OSError (no space)."""
    records = np.zeros(len(indexes), dtype=SAMPLE)
    records["index"], records["due_ns"] = indexes, due_ns
    for name in ("sent_ns", "first_ns", "answer_ns", "last_ns"):
        records[name] = MISSING_NS
    records["failure"], records["worker"] = Failure.CANCELLED, worker
    records["kind"] = np.asarray(kinds)[indexes % len(kinds)]
    if len(records):
        segment.append(memoryview(records.tobytes()), len(records))


def record_rest(segment: Segment, share: Share, kinds: Sequence[int], *, taken: int, until_ns: int) -> None:
    """Record all that `unsent` yields."""
    for indexes, due_ns in unsent(share, taken=taken, until_ns=until_ns):
        record_unsent(segment, share.worker, kinds, indexes, due_ns)
