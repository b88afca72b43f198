"""What came of one thread's calls, kept as it came and made SAMPLE records many at a time. Written to a segment.

A reply costs three appends to lists, no more: on a machine that the server keeps busy, code between two calls runs on
cold caches, and takes ten times as long as in a loop by itself.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from seamark.load.driver import Reply
from seamark.load.workers.records import Segment
from seamark.model.sample import MISSING_NS, SAMPLE

MOST = 512
"""Replies that are kept before they are written: some tens of microseconds of work, so that no request waits."""

Claim = tuple[int, int, int]
"""A request in flight: its index, when it was due, when it was sent, in ns of CLOCK_MONOTONIC."""


class Replies:
    """The requests of one thread that have ended: `claims`, the end of each in ns, and what was seen of it.

    A thread appends to the three lists alike; `flush` makes records of them and empties them.
    """

    __slots__ = ("_count", "_kinds", "_segment", "_worker", "claims", "ends_ns", "seen")

    def __init__(self, segment: Segment, *, worker: int, kinds: npt.NDArray[np.int8]) -> None:
        self._segment = segment
        self._worker = worker
        self._kinds = kinds
        self._count = 0
        self.claims: list[Claim] = []
        self.ends_ns: list[int] = []
        self.seen: list[Reply] = []

    @property
    def count(self) -> int:
        """How many there were, written or not."""
        return self._count + len(self.seen)

    def flush(self, epoch_ns: int) -> None:
        """Write what is kept. Raises OSError when the disk is full."""
        if not self.seen:
            return
        records = self._records(epoch_ns)
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
        for name in ("units", "bytes_sent", "bytes_received", "status", "failure"):
            records[name] = [getattr(reply, name) for reply in seen]
        return records
