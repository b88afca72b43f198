"""Nearest-rank quantiles of exact values, and the sample size that they need. Estimates are in histogram.py."""

import math

import numpy as np
from numpy.typing import NDArray

BEYOND = 10
"""Samples required beyond a percentile before it is printed: p50 needs 20, p99 1,000, p99.9 10,000."""


def samples_needed(probability: float) -> int:
    """Return the number of samples for the quantile of that probability, with ten beyond it on each side.

    From 10 / min(q, 1 - q), so p1 needs as many as p99.
    """
    return math.ceil(round(BEYOND / min(probability, 1 - probability), 6))


def rank(probability: float, count: int) -> int:
    """Return the 0-based nearest rank, ceil(q n) - 1: the quantile is always an observed value."""
    return min(count - 1, max(0, math.ceil(round(probability * count, 6)) - 1))


def quantiles(values: NDArray[np.int64], probabilities: tuple[float, ...]) -> list[int]:
    """Return the nearest-rank quantiles of non-empty `values` (inverse of the empirical distribution, type 1)."""
    ranks = [rank(probability, len(values)) for probability in probabilities]
    parted = np.partition(values, sorted(set(ranks)))
    return [int(parted[position]) for position in ranks]
