"""What of the trial's schedule is one worker's, and how much of it is due by now. No event loop, no thread."""

from collections.abc import Callable, Iterator

import numpy as np

from seamark.load.arrivals import Nanoseconds, pattern_of, schedule
from seamark.load.job import Share, seed_for


def own_schedule(share: Share) -> Callable[[], Iterator[Nanoseconds]] | None:
    """Return what makes this worker's arrivals, None for a closed loop."""
    job = share.job
    pattern = pattern_of(job.settings, job.until_s)
    if pattern is None:
        return None
    return lambda: schedule(
        pattern,
        seed=seed_for(job.seed, "arrivals"),
        until_s=job.until_s,
        requests=job.requests,
        worker=share.worker,
        workers=share.workers,
    )


class Arrived:
    """Counts the arrivals of a schedule that are due, without holding more of it than one block."""

    def __init__(self, blocks: Iterator[Nanoseconds]) -> None:
        self._blocks = blocks
        self._block = np.zeros(0, dtype=np.int64)
        self._before = 0

    def until(self, at_ns: int) -> int:
        """Return how many are due by `at_ns` from the start of load; may not go back in time."""
        while not self._block.size or self._block[-1] <= at_ns:
            block = next(self._blocks, None)
            if block is None:
                return self._before + self._block.size
            self._before += self._block.size
            self._block = block
        return self._before + int(np.searchsorted(self._block, at_ns, side="right"))
