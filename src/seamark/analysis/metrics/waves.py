"""Whether the requests of a load start in waves: many at once, and again one latency later."""

from dataclasses import dataclass

import numpy as np

from seamark.analysis.metrics.samples import Samples
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
    """

    autocorrelation: float
    dispersion: float


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
    counts = np.zeros(bins)
    for batch in samples.batches():
        sent = batch.sent[batch.was_sent & (batch.sent >= window.start_ns)] - window.start_ns
        at = (sent / width_ns).astype(np.int64)
        counts += np.bincount(at[at < bins], minlength=bins)
    mean = float(counts.mean())
    counts -= mean
    total = float(counts @ counts)
    if total == 0:
        return None
    return Waves(autocorrelation=float(counts[:-BINS] @ counts[BINS:]) / total, dispersion=total / bins / mean)
