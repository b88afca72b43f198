"""When GPUs of a machine leave and come back: by its file, and by failures that the seed of a trial decides."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Literal

import numpy as np

from seamark_simulate.simulation.layout import Failures, Layout

STREAM = 0x6770
"""Number of the random stream of failures, apart from that of drawn times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuChange:
    """At `at_s` GPUs are `removed` or `added` by the file, or one has `failed` or is `repaired`."""

    at_s: float
    what: Literal["removed", "added", "failed", "repaired"]
    gpus: tuple[int, ...]


def gpu_changes(layout: Layout, seed: int) -> Iterator[GpuChange]:
    """Yield all changes in order of time, those of the file first; without an end where GPUs may fail."""
    streams = [_written(layout)]
    if layout.failures is not None:
        streams += [_failures(layout.failures, seed, gpu) for gpu in range(layout.gpus)]
    return merge(*streams, key=lambda change: change.at_s)


def _written(layout: Layout) -> Iterator[GpuChange]:
    for change in sorted(layout.changes, key=lambda change: change.at_s):
        if change.remove:
            yield GpuChange(at_s=change.at_s, what="removed", gpus=change.remove)
        if change.add:
            yield GpuChange(at_s=change.at_s, what="added", gpus=change.add)


def _failures(failures: Failures, seed: int, gpu: int) -> Iterator[GpuChange]:
    """Yield failures and repairs of one GPU, with exponential times between them."""
    random = np.random.default_rng((STREAM, seed, gpu))
    at_s = 0.0
    while True:
        at_s += float(random.exponential(failures.mtbf_s))
        yield GpuChange(at_s=at_s, what="failed", gpus=(gpu,))
        at_s += float(random.exponential(failures.repair_s))
        yield GpuChange(at_s=at_s, what="repaired", gpus=(gpu,))
