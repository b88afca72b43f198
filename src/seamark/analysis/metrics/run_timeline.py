"""Timeline of the measured window in equal parts: replies, failures, response times."""

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import Samples
from seamark.analysis.metrics.window import Window
from seamark.model.sample import MISSING_NS

Series = NDArray[np.float64]

MOST_PARTS, LEAST_PARTS = 100, 40
SHORTEST_PART_NS = 10_000_000
REPLIES_A_PART = 5


class RunTimeline:
    """Timeline of a load over `parts` equal parts of its measured window. Replies and failures count where they
    ended."""

    def __init__(self, samples: Samples, window: Window, parts: int) -> None:
        self.start_ns, self.part_ns, self.parts = window.start_ns, (window.end_ns - window.start_ns) / parts, parts
        self.replies, self.failures, self._response_ns = (np.zeros(parts) for _ in range(3))
        for batch in samples.batches():
            good, ended = batch.good, batch.last != MISSING_NS
            failed = (batch.failure != 0) & (batch.sent != MISSING_NS)
            self._add(self.replies, batch.last[good])
            self._add(self._response_ns, batch.last[good], (batch.last - batch.due)[good])
            self._add(self.failures, np.where(ended, batch.last, batch.due)[failed])

    @property
    def part_s(self) -> float:
        return self.part_ns / 1e9

    def at_s(self, part: int) -> float:
        """Return the start of a part, in seconds from the start of load."""
        return (self.start_ns + part * self.part_ns) / 1e9

    @property
    def response_s(self) -> Series:
        """Mean response time of the replies of each part; a part without any repeats the one before it."""
        known = self.replies > 0
        if not known.any():
            return np.zeros(self.parts)
        mean = np.divide(self._response_ns, self.replies, out=np.zeros(self.parts), where=known) / 1e9
        last_known = np.maximum.accumulate(np.where(known, np.arange(self.parts), -1))
        return np.asarray(mean[np.where(last_known < 0, int(np.argmax(known)), last_known)])

    def _add(self, into: Series, times_ns: NDArray[np.int64], weights: NDArray[np.int64] | None = None) -> None:
        part = ((times_ns - self.start_ns) // self.part_ns).astype(np.int64)
        inside = (times_ns >= self.start_ns) & (part < self.parts)
        chosen = None if weights is None else weights[inside]
        into += np.bincount(part[inside], weights=chosen, minlength=self.parts)


def run_timeline(samples: Samples, window: Window) -> RunTimeline | None:
    """Return the timeline of a load; None if its window or its replies do not suffice for 40 parts of 10 ms and of
    five replies each."""
    longest = int((window.end_ns - window.start_ns) // SHORTEST_PART_NS)
    parts = min(MOST_PARTS, longest, samples.rows // REPLIES_A_PART)
    return RunTimeline(samples, window, parts) if parts >= LEAST_PARTS else None
