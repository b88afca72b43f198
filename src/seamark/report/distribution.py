"""Exact points of a pooled response-time distribution, in memory that does not grow with the samples."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.tally import Unanswered
from seamark.stats.histogram import Accumulator, Histogram, merge
from seamark.stats.quantiles import BEYOND

RELATIVE_ERROR = 0.0005
"""Buckets 0.1 % wide: finer than a line of a figure."""


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
    found: list[tuple[Histogram, Histogram]] = []
    unread = 0
    for path, window_s in trials:
        try:
            found.append(_counted(path, window_s))
        except DamagedError:
            unread += 1
    answered, unanswered = merge(known for known, _ in found), merge(bounds for _, bounds in found)
    if not answered.count:
        return None
    whole = answered.merged(unanswered)
    upper_ns, below = whole.cumulative()
    growth = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
    at_ms = np.concatenate(([upper_ns[0] / growth], upper_ns)) / 1e6
    share = np.concatenate(([0.0], below))
    n = whole.count
    known_until_ms = None
    if unanswered.minimum is not None:
        known_until_ms = float(at_ms[max(0, int(np.searchsorted(at_ms, unanswered.minimum / 1e6)) - 1)])
    reach = min(tail, 1 - BEYOND / n)
    keep = share <= max(reach, share[1])
    at_ms, share = at_ms[keep], share[keep]
    if len(share) > points:
        # Half of the points over ranks, half over the logarithm of what lies above: the tail keeps its shape.
        body = np.searchsorted(share, np.linspace(0, share[-1], points // 2))
        ends = 1 - np.geomspace(1, 1 - share[-1], points // 2)
        chosen = np.unique(np.clip(np.concatenate((body, np.searchsorted(share, ends))), 0, len(share) - 1))
        at_ms, share = at_ms[chosen], share[chosen]
    return Curve(at_ms=at_ms, share=share, n=n, known_until_ms=known_until_ms, unread=unread)


def _counted(path: Path, window_s: tuple[float, float] | None) -> tuple[Histogram, Histogram]:
    """Return one trial's times, and the lower bounds of those that have none; raises DamagedError when the samples
    cannot be read to the end."""
    answered, bounds = Accumulator(RELATIVE_ERROR), Accumulator(RELATIVE_ERROR)
    samples = open_samples(path)
    for batch in samples.batches():
        due = np.ones(len(batch.due), dtype=np.bool_)
        if window_s is not None:
            due = (batch.due >= round(window_s[0] * 1e9)) & (batch.due < round(window_s[1] * 1e9))
        answered.add(np.maximum((batch.last - batch.due)[batch.good & due], 1))
        bounds.add(np.maximum(Unanswered(batch, samples.latest_ns).since(batch.due, due), 1))
    return answered.histogram(), bounds.histogram()
