"""Exact null distributions of two rank statistics, and confidence intervals by inversion of their tests. Pure.

Methods: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods (2014), sections 3.1 to 3.3 and 4.1 to 4.3.
"""

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LARGEST_EXACT = 60
"""Group size above which critical values use the normal approximation."""

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A Hodges-Lehmann estimate with limits. `confidence` is the attained level.

    Rank statistics are discrete, so it is at least the requested level where that can be attained. With too few
    values it cannot: the limits are then the widest that these values give, at a lower `confidence`.
    """

    estimate: float
    low: float
    high: float
    confidence: float


@cache
def rank_sum_ways(one: int, other: int) -> tuple[int, ...]:
    """Return the number of orders of two groups of these sizes with Mann-Whitney's U = 0, 1, 2 ... (Gaussian
    binomial)."""
    ways = np.zeros(one * other + 1, dtype=object)
    ways[0] = 1
    for i in range(1, min(one, other) + 1):
        factor = max(one, other) + i
        if factor < len(ways):
            ways[factor:] = ways[factor:] - ways[:-factor]
        for start in range(i):
            ways[start::i] = np.cumsum(ways[start::i])
    return tuple(ways.tolist())


@cache
def signed_rank_ways(pairs: int) -> tuple[int, ...]:
    """Return the number of sign patterns of `pairs` pairs with Wilcoxon's sum of positive ranks = 0, 1, 2 ..."""
    ways = np.zeros(pairs * (pairs + 1) // 2 + 1, dtype=object)
    ways[0] = 1
    for i in range(1, pairs + 1):
        ways[i:] = ways[i:] + ways[:-i]
    return tuple(ways.tolist())


def critical(ways: tuple[int, ...], alpha: float) -> int | None:
    """Return the largest value of a symmetric statistic with a two-sided p of at most `alpha`; None without one."""
    total, below = sum(ways), 0
    for value, count in enumerate(ways):
        below += count
        if 2 * below > alpha * total:
            return value - 1 if value else None
    return len(ways) - 1


def unpaired_interval(one: Values, other: Values, confidence: float) -> Interval:
    """Return the median of all differences other - one, with the limits that the exact rank-sum test does not reject.

    Unbounded, at confidence 0, for an empty group.
    """
    differences = np.sort(np.subtract.outer(other, one).ravel())
    n, m = len(one), len(other)
    if max(n, m) > LARGEST_EXACT:
        cut = _approximate(n * m / 2, math.sqrt(n * m * (n + m + 1) / 12), confidence)
        return _between(differences, cut, confidence)
    return _inverted(differences, rank_sum_ways(n, m), confidence)


def paired_interval(differences: Values, confidence: float) -> Interval:
    """Return the median of all means of two differences (Walsh averages), with the limits that the exact signed-rank
    test does not reject."""
    n = len(differences)
    first, second = np.triu_indices(n)
    averages = np.sort((differences[first] + differences[second]) / 2)
    if n > LARGEST_EXACT:
        cut = _approximate(n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24), confidence)
        return _between(averages, cut, confidence)
    return _inverted(averages, signed_rank_ways(n), confidence)


def _inverted(ordered: Values, ways: tuple[int, ...], confidence: float) -> Interval:
    cut = critical(ways, 1 - confidence) or 0
    return _between(ordered, cut, float(1 - 2 * sum(ways[: cut + 1]) / sum(ways)))


def _between(ordered: Values, cut: int, attained: float) -> Interval:
    estimate = float(np.median(ordered))
    if attained <= 0:
        return Interval(estimate=estimate, low=-math.inf, high=math.inf, confidence=0.0)
    return Interval(
        estimate=estimate, low=float(ordered[cut]), high=float(ordered[len(ordered) - 1 - cut]), confidence=attained
    )


def _approximate(mean: float, deviation: float, confidence: float) -> int:
    return max(0, math.floor(mean - NormalDist().inv_cdf((1 + confidence) / 2) * deviation - 0.5))
