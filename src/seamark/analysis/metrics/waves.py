"""Whether the requests of a load start in waves: many at once, and again one latency later."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import Batch, Mask, Samples
from seamark.analysis.metrics.window import Window

BINS = 8
"""Bins of one median latency."""
FEWEST_LATENCIES = 10
"""Median latencies that a window must have: of fewer, starts by chance look alike."""
MOST_BINS = 1 << 22
"""Of a window with more only the beginning is looked at."""


@dataclass(frozen=True, kw_only=True)
class Waves:
    """Starts of the requests of a window, counted in bins of an eighth of its median latency.

    `autocorrelation` is that of the counts and those eight bins later, near 0 for independent starts and 1 for starts
    that recur with each latency. `dispersion` is the variance of the counts over their mean: 1 for independent
    starts, less where they are spread evenly, and about N where N users start together.

    `behind_ratio` is by how much the mean service time of good requests behind others of their bin differs from that
    of the first ones, over the latter; `behind_errors` is that difference in its standard errors. None where either
    has fewer than two.
    """

    autocorrelation: float
    dispersion: float
    behind_ratio: float | None = None
    behind_errors: float | None = None


def start_waves(samples: Samples, window: Window, latency_ns: float) -> Waves | None:
    """Return how the starts of all requests sent in a window recur after its median service time, `latency_ns`.

    With counts x of n bins of mean m, sum((x[i] - m) (x[i + 8] - m)) / sum((x[i] - m)^2): Box, Jenkins and Reinsel,
    Time Series Analysis, 2.1.5. None for a window of fewer than ten latencies, or where all bins have the same count.
    Raises DamagedError.
    """
    width_ns = latency_ns / BINS
    bins = min(int((window.end_ns - window.start_ns) / width_ns), MOST_BINS) if width_ns > 0 else 0
    if bins < FEWEST_LATENCIES * BINS:
        return None
    counts, first_ns = np.zeros(bins), np.full(bins, np.inf)

    def of_window(batch: Batch) -> tuple[Mask, NDArray[np.int64]]:
        inside = batch.was_sent & (batch.sent >= window.start_ns)
        at = np.where(inside, (batch.sent - window.start_ns) / width_ns, bins).astype(np.int64)
        return inside & (at < bins), at

    for batch in samples.batches():
        inside, at = of_window(batch)
        counts += np.bincount(at[inside], minlength=bins)
        np.minimum.at(first_ns, at[inside], batch.sent[inside])
    mean = float(counts.mean())
    counts -= mean
    total = float(counts @ counts)
    if total == 0:
        return None
    sums = np.zeros((2, 3))  # of the first of their bins, and of those behind: number, sum and sum of squares
    for batch in samples.batches():
        inside, at = of_window(batch)
        good = inside & batch.good
        service, behind = (batch.last - batch.sent)[good] / latency_ns, batch.sent[good] > first_ns[at[good]]
        for which, chosen in enumerate((service[~behind], service[behind])):
            sums[which] += len(chosen), chosen.sum(), (chosen * chosen).sum()
    ratio = errors = None
    if sums[:, 0].min() >= 2:
        first, behind_mean = means = sums[:, 1] / sums[:, 0]
        variances = np.maximum(sums[:, 2] - sums[:, 0] * means**2, 0) / (sums[:, 0] - 1)
        error = float(np.sqrt((variances / sums[:, 0]).sum()))
        ratio, errors = float(behind_mean / first - 1), float(abs(behind_mean - first)) / max(error, 1e-12)
    return Waves(
        autocorrelation=float(counts[:-BINS] @ counts[BINS:]) / total,
        dispersion=total / bins / mean,
        behind_ratio=ratio,
        behind_errors=errors,
    )
