"""Exact points of a pooled response-time distribution, in memory that does not grow with the samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.tally import Unanswered
from seamark.stats.quantiles import BEYOND

_BITS = 42
"""Low bits of a float64 that are dropped: 1,024 buckets for each doubling, 0.1 % wide."""
_FIRST = int(np.float64(1.0).view(np.int64)) >> _BITS
_BUCKETS = (int(np.float64(2.0**45).view(np.int64)) >> _BITS) - _FIRST
"""Buckets from 1 ns to 9.8 h."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of an empirical distribution: `share` of the `n` requests took less than `at_ms`, exactly.

    Of requests without an answer only a lower bound of the time is known: it stands for the time, so beyond the least
    of these bounds, `known_until_ms` (None: there is none), times are lower bounds. `unread` trials are not in it,
    since their samples are damaged.
    """

    at_ms: NDArray[np.float64]
    share: NDArray[np.float64]
    n: int
    known_until_ms: float | None = None
    unread: int = 0


def pooled(
    trials: Iterable[tuple[Path, tuple[float, float] | None]], *, points: int = 2000, tail: float = 0.999
) -> Curve | None:
    """Pool the response times of requests that were due in each trial's window; None when none has a good reply.

    `trials` are pairs of a samples.parquet and its measured window in seconds. Samples are counted into narrow
    buckets in batches. At a bucket's edge the share below is a count, not an estimate; at most
    `points` edges are kept, spread evenly over ranks, up to the rank `tail` (but never beyond the rank above
    which fewer than ten requests lie); the first filled bucket is always kept.
    """
    counts, bounds = np.zeros(_BUCKETS, dtype=np.int64), np.zeros(_BUCKETS, dtype=np.int64)
    unread = 0
    for path, window_s in trials:
        try:
            known, censored = _counted(path, window_s)
            counts += known
            bounds += censored
        except DamagedError:
            unread += 1
    if not counts.any():
        return None
    known_until = int(np.flatnonzero(bounds)[0]) if bounds.any() else None
    counts += bounds
    n = int(counts.sum())
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
    known_until_ms = None if known_until is None else float(edges_ns[known_until]) / 1e6
    return Curve(at_ms=at_ms, share=share, n=n, known_until_ms=known_until_ms, unread=unread)


def _counted(path: Path, window_s: tuple[float, float] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count one trial's times, and the lower bounds of those that have none; raises DamagedError when the samples
    cannot be read to the end."""
    counts, bounds = np.zeros(_BUCKETS, dtype=np.int64), np.zeros(_BUCKETS, dtype=np.int64)
    samples = open_samples(path)
    for batch in samples.batches():
        due = np.ones(len(batch.due), dtype=np.bool_)
        if window_s is not None:
            due = (batch.due >= round(window_s[0] * 1e9)) & (batch.due < round(window_s[1] * 1e9))
        counts += _buckets((batch.last - batch.due)[batch.good & due])
        bounds += _buckets(Unanswered(batch, samples.latest_ns).since(batch.due, due))
    return counts, bounds


def _buckets(times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    took_ns = np.maximum(times_ns, 1).astype(np.float64)
    buckets = (took_ns.view(np.int64) >> _BITS) - _FIRST
    return np.bincount(np.minimum(buckets, _BUCKETS - 1), minlength=_BUCKETS)
