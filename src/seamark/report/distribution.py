"""Exact points of a pooled response-time distribution, in memory that does not grow with the samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamark.metrics.samples import DamagedError, open_samples
from seamark.stats.quantiles import BEYOND

_BITS = 42
"""Low bits of a float64 that are dropped: 1,024 buckets for each doubling, 0.1 % wide."""
_FIRST = int(np.float64(1.0).view(np.int64)) >> _BITS
_BUCKETS = (int(np.float64(2.0**45).view(np.int64)) >> _BITS) - _FIRST
"""Buckets from 1 ns to 9.8 h."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of an empirical distribution: `share` of the `n` requests took less than `at_ms`, exactly.

    `unread` trials are not in it, since their samples are damaged.
    """

    at_ms: NDArray[np.float64]
    share: NDArray[np.float64]
    n: int
    unread: int = 0


def pooled(
    trials: Iterable[tuple[Path, tuple[float, float] | None]], *, points: int = 2000, tail: float = 0.999
) -> Curve | None:
    """Pool the response times of good requests that were due in each trial's window; None when there are none.

    `trials` are pairs of a samples.parquet and its measured window in seconds. Samples are counted into narrow
    buckets in batches. At a bucket's edge the share below is a count, not an estimate; at most
    `points` edges are kept, spread evenly over ranks, up to the rank `tail` (but never beyond the rank above
    which fewer than ten requests lie); the first filled bucket is always kept.
    """
    counts = np.zeros(_BUCKETS, dtype=np.int64)
    unread = 0
    for path, window_s in trials:
        try:
            counts += _counted(path, window_s)
        except DamagedError:
            unread += 1
    n = int(counts.sum())
    if n == 0:
        return None
    below = np.cumsum(counts)
    filled = np.flatnonzero(counts)
    edges_ns = ((np.arange(_BUCKETS + 1, dtype=np.int64) + _FIRST) << _BITS).view(np.float64)
    at_ms = np.concatenate(([edges_ns[filled[0]]], edges_ns[filled + 1])) / 1e6
    share = np.concatenate(([0.0], below[filled] / n))
    reach = min(tail, 1 - BEYOND / n)
    keep = share <= max(reach, share[1])
    at_ms, share = at_ms[keep], share[keep]
    if len(share) > points:
        # Half of the points over ranks, half over the logarithm of what lies above: the tail keeps its shape.
        body = np.searchsorted(share, np.linspace(0, share[-1], points // 2))
        ends = 1 - np.geomspace(1, 1 - share[-1], points // 2)
        chosen = np.unique(np.clip(np.concatenate((body, np.searchsorted(share, ends))), 0, len(share) - 1))
        at_ms, share = at_ms[chosen], share[chosen]
    return Curve(at_ms=at_ms, share=share, n=n, unread=unread)


def _counted(path: Path, window_s: tuple[float, float] | None) -> NDArray[np.int64]:
    """Count one trial's samples; raises DamagedError when they cannot be read to the end."""
    counts = np.zeros(_BUCKETS, dtype=np.int64)
    for batch in open_samples(path).batches():
        good = batch.good
        if window_s is not None:
            good &= (batch.due >= round(window_s[0] * 1e9)) & (batch.due < round(window_s[1] * 1e9))
        took_ns = np.maximum((batch.last - batch.due)[good], 1).astype(np.float64)
        buckets = (took_ns.view(np.int64) >> _BITS) - _FIRST
        counts += np.bincount(np.minimum(buckets, _BUCKETS - 1), minlength=_BUCKETS)
    return counts
