"""When requests are due: the one seeded schedule that all workers of a trial share. No clock here."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from seamark.patterns.patterns import Pattern

Nanoseconds = npt.NDArray[np.int64]


def schedule(
    pattern: Pattern, *, seed: int, until_s: float, requests: int | None = None, worker: int = 0, workers: int = 1
) -> Iterator[Nanoseconds]:
    """Yield when worker `worker` of `workers` is to send, as arrays of ns from the start of load.

    Every worker makes the whole sequence and takes arrivals `worker`, `worker + workers`, ... of it: one worker or
    sixteen send the same. The sequence ends before `until_s`, after `requests` arrivals, or with the pattern's own,
    if it has an end. Constant memory.
    """
    first = 0
    for block in pattern.blocks(np.random.Generator(np.random.PCG64(seed))):
        inside = block[: np.searchsorted(block, until_s, side="left")]
        if requests is not None:
            inside = inside[: requests - first]
        own = inside[(worker - first) % workers :: workers]
        if own.size:
            yield np.rint(own * 1e9).astype(np.int64)
        first += inside.size
        if inside.size < block.size:
            return
