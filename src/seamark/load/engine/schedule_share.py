"""What of the trial's schedule is one worker's, and how much of it is due by now. No event loop, no thread."""

from collections.abc import Callable, Iterator

import numpy as np

from seamark.load.workers.assignment import Share, seed_for
from seamark.patterns.arrivals import Nanoseconds, pattern_of, schedule
from seamark.patterns.patterns import Steps
from seamark.patterns.trace import Trace


def own_schedule(share: Share) -> Callable[[], Iterator[Nanoseconds]] | None:
    """Return what makes this worker's arrivals, None for a closed loop. Of sessions they are the starts."""
    job = share.job
    pattern = pattern_of(job.settings, job.until_s)
    if pattern is None:
        return None
    return lambda: schedule(
        pattern,
        seed=seed_for(job.seed, "arrivals"),
        until_s=job.until_s,
        requests=job.arrivals,
        worker=share.worker,
        workers=share.workers,
    )


def ran_out(share: Share) -> bool:
    """Say whether a pattern that can end has no arrival left before the end of the load; False when its file has
    gone meanwhile."""
    job = share.job
    pattern = pattern_of(job.settings, job.until_s)
    if not isinstance(pattern, Trace | Steps):
        return False
    number = 0
    try:
        for block in pattern.blocks(np.random.default_rng(0)):
            inside = int(np.searchsorted(block, job.until_s, side="left"))
            number += inside
            if job.arrivals is not None and number >= job.arrivals:
                return False  # that limit is a reason of its own
            if inside < block.size:
                return bool(np.isinf(block[inside]))
    except (OSError, ValueError):
        return False
    return True


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
