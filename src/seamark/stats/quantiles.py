"""Ranks of quantiles, and the sample size that they need. Estimates are in histogram.py."""

import math
from functools import lru_cache

BEYOND = 10
"""Samples required beyond a percentile before it is printed: p50 needs 20, p99 1,000, p99.9 10,000."""


FEWEST = 60
"""Samples from which on an interval stands for a percentile with fewer than BEYOND samples beyond it."""
CONFIDENCE = 0.95
"""Of that interval, two-sided."""
Ranks = tuple[int, int | None]
"""0-based ranks of the two ends of a quantile; None: no order statistic is its upper end."""


def samples_needed(probability: float) -> int:
    """Return the number of samples for the quantile of that probability, with ten beyond it on each side.

    From 10 / min(q, 1 - q), so p1 needs as many as p99.
    """
    return math.ceil(round(BEYOND / min(probability, 1 - probability), 6))


def rank(probability: float, count: int) -> int:
    """Return the 0-based nearest rank, ceil(q n) - 1: the quantile is always an observed value."""
    return min(count - 1, max(0, math.ceil(round(probability * count, 6)) - 1))


@lru_cache(maxsize=1024)
def ranks_of(probability: float, count: int) -> Ranks | None:
    """Return the ranks of a quantile of `count` samples: equal with BEYOND samples beyond it; from FEWEST on those of
    its order-statistic interval (David and Nagaraja, Order Statistics, 7.1), else None.

    The upper end is None if not even the largest sample is surely above, as of p99 below 368.
    """
    if count >= samples_needed(probability):
        at = rank(probability, count)
        return at, at
    return None if count < FEWEST else interval_ranks(probability, count)


def interval_ranks(probability: float, count: int) -> Ranks:
    """Return the ranks of the order-statistic interval of a quantile of `count` samples, as of a median.

    The number of samples below the true quantile is binomial (count, probability): each end is wrong with at most
    (1 - CONFIDENCE) / 2. The upper one is None if not even the largest sample is surely above.
    """
    tail, cdf, low = (1 - CONFIDENCE) / 2, 0.0, 0
    log_odds, log_pmf = math.log(probability / (1 - probability)), count * math.log1p(-probability)
    for below in range(count):
        cdf += math.exp(log_pmf)
        if cdf <= tail:
            low = below
        if cdf >= 1 - tail:
            return low, below
        log_pmf += math.log((count - below) / (below + 1)) + log_odds
    return low, None
