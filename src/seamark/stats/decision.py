"""Test of a mean or share of a stationary, autocorrelated series against a limit. Pure.

Successive requests of a queue are correlated, so their number overstates the information: the variance of a mean
comes from batch means, corrected for their remaining correlation (Alexopoulos and Seila, Handbook of Simulation,
1998, ch. 7).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from seamark.stats.compare import reachable_p
from seamark.stats.ranks import critical, rank_sum_ways, signed_rank_ways

Values = NDArray[np.float64]

BATCHES = 32
FEWEST_BATCHES = 8
FEWEST_VALUES = 20
MOST_CORRELATION = 0.9
MOST_GROWTH = 4.0


@dataclass(frozen=True, kw_only=True)
class Odds:
    """Evidence against each side of the limit.

    `above`: the one-sided p of the hypothesis that the truth is not above the limit; `below`: that it is not below.
    `estimate` is the observed mean or share. Both p are 1 with too few values.
    """

    estimate: float
    above: float
    below: float


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Variance of a mean over the pieces of a series, with its degrees of freedom."""

    variance: float
    freedom: float
    batches: int


def mean_odds(pieces: Sequence[Values], limit: float) -> Odds:
    """Test the mean of a series against `limit` by Student's t. `pieces` were observed separately."""
    from scipy.special import stdtr

    values = np.concatenate(pieces) if pieces else np.empty(0)
    estimate = float(values.mean()) if len(values) else math.nan
    spread = _spread(pieces)
    if spread is None:
        return Odds(estimate=estimate, above=1.0, below=1.0)
    if spread.variance <= 0:
        return Odds(estimate=estimate, above=float(estimate <= limit), below=float(estimate > limit))
    t = (estimate - limit) / math.sqrt(spread.variance) / _at_limit(estimate, limit)
    return Odds(estimate=estimate, above=float(stdtr(spread.freedom, -t)), below=float(stdtr(spread.freedom, t)))


def quantile_odds(pieces: Sequence[Values], probability: float, limit: float, alpha: float) -> Odds:
    """Test a quantile of a series against `limit`: whether more than 1 - `probability` of it lies above `limit`.

    `estimate` is that share. Binomial with the effective number of values (Korn and Graubard, Survey Methodology 24,
    1998): the correlation among the greatest values is that of the values above the observed quantile, so it is known
    before any exceeds the limit; `alpha` is the level at which its own uncertainty is allowed for.
    """
    from scipy.special import betainc

    values = np.concatenate(pieces) if pieces else np.empty(0)
    share, count = 1 - probability, len(values)
    estimate = float(np.mean(values > limit)) if count else math.nan
    if count < FEWEST_VALUES:
        return Odds(estimate=estimate, above=1.0, below=1.0)
    at_limit = _effective(pieces, limit, alpha)
    at_quantile = _effective(pieces, float(np.quantile(values, probability, method="inverted_cdf")), alpha)
    if at_limit is None or at_quantile is None:
        return Odds(estimate=estimate, above=1.0, below=1.0)
    hits, size = estimate * at_limit, at_limit
    above = betainc(hits, size - hits + 1, share) if hits > 0 else 1.0
    size = min(at_limit, at_quantile)
    hits = estimate * size
    below = betainc(max(size - hits, 1e-9), hits + 1, 1 - share)
    return Odds(estimate=estimate, above=float(above), below=float(below))


def _effective(pieces: Sequence[Values], edge: float, alpha: float) -> float | None:
    """Return the number of independent values with the same information about the share above `edge`; None if
    unknown."""
    from scipy.special import ndtri, stdtrit

    beyond = [np.asarray(piece > edge, dtype=float) for piece in pieces]
    count, seen = sum(map(len, pieces)), float(np.concatenate(beyond).mean())
    spread = _spread(beyond)
    if spread is None:
        return None
    if not 0 < seen < 1:
        return float(count)
    freedom = max(1.0, min(spread.freedom, spread.batches - 1))
    caution = (ndtri(alpha) / stdtrit(freedom, alpha)) ** 2
    return float(count / max(1.0, spread.variance / (seen * (1 - seen) / count)) * caution)


def _at_limit(estimate: float, limit: float) -> float:
    """Return the factor by which the standard error is assumed larger if the truth were at the limit.

    The standard error of a queue's mean time grows with the square of the mean (M/M/1 and M/D/1 at high utilisation),
    and a mean that came out low has a standard error that came out too low. At most MOST_GROWTH: a mean far below its
    limit is decided, even if much of it is one stall.
    """
    if estimate <= 0 or limit <= 0:
        return 1.0
    ratio = limit / estimate
    return min(ratio**2, MOST_GROWTH) if ratio > 1 else ratio


def _spread(pieces: Sequence[Values]) -> Spread | None:
    """Return the variance of the mean over all pieces; None with too few batches."""
    total = sum(map(len, pieces))
    size = max(1, total // BATCHES)
    means = [piece[: len(piece) // size * size].reshape(-1, size).mean(axis=1) for piece in pieces]
    count = sum(map(len, means))
    if total < FEWEST_VALUES or count < FEWEST_BATCHES:
        return None
    middle = float(np.concatenate(means).mean())
    apart = [mean - middle for mean in means]
    squares = sum(float(deviation @ deviation) for deviation in apart)
    if squares <= 0:
        return Spread(variance=0.0, freedom=count - 1.0, batches=0)
    products = sum(float(deviation[1:] @ deviation[:-1]) for deviation in apart)
    neighbours = sum(max(0, len(deviation) - 1) for deviation in apart)
    correlation = products / squares * count / neighbours + 1 / count
    correlation = min(max(0.0, correlation), MOST_CORRELATION)
    worse = (1 + correlation) / (1 - correlation)
    freedom = max(1.0, (count - 1) / worse)
    active = sum(int(np.count_nonzero(mean)) for mean in means)
    return Spread(variance=squares / (count - 1) / count * worse, freedom=freedom, batches=active)


DRAWS = 4000
LARGEST_SIMULATED = 30


def repetitions_for(alpha: float, comparisons: int = 1) -> int:
    """Return the fewest repetitions with which every one of `comparisons` Holm-adjusted p can reach `alpha`."""
    count = 2
    while comparisons * reachable_p("rank-sum", count, count) > alpha:
        count += 1
    return count


@cache
def detectable_shift(
    repetitions: int, alpha: float = 0.05, power: float = 0.8, *, paired: bool = False
) -> float | None:
    """Return the shift that the exact rank-sum test detects with that power, or with `paired` the signed-rank test of
    that many blocks, in standard deviations of a trial within its block. Without `paired` blocks do not differ: where
    they do, the shift is in those of block and trial together.

    By simulation with normal trials (4,000 seeded draws, accurate to about 3 %); above 30 repetitions by the normal
    approximation with the test's asymptotic efficiency of 3 / pi. None if no p can reach `alpha`.
    """
    if reachable_p("signed-rank" if paired else "rank-sum", repetitions, repetitions) > alpha:
        return None
    if repetitions > LARGEST_SIMULATED:
        return (
            (NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power))
            * math.sqrt(2 / repetitions)
            / math.sqrt(3 / math.pi)
        )
    statistic, ways = (_by_pairs if paired else _by_groups)(repetitions)
    edge = critical(ways, alpha)
    assert edge is not None
    low, high = 0.0, 8.0
    for _ in range(14):
        shift = (low + high) / 2
        values = statistic(shift)
        detected = np.mean((values <= edge) | (values >= len(ways) - 1 - edge))
        low, high = (low, shift) if detected >= power else (shift, high)
    return round(high, 2)


Drawn = tuple[Callable[[float], NDArray[np.int64]], tuple[int, ...]]
"""From a shift to the values of a test's statistic in all draws, and in how many ways it has each value."""


def _by_groups(size: int) -> Drawn:
    random = np.random.default_rng(0)
    gaps = random.standard_normal((DRAWS, size, 1)) - random.standard_normal((DRAWS, 1, size))
    return lambda shift: np.count_nonzero(gaps + shift > 0, axis=(1, 2)), rank_sum_ways(size, size)


def _by_pairs(pairs: int) -> Drawn:
    """Draw differences of pairs, which have twice the variance of a trial."""
    differences = np.random.default_rng(0).standard_normal((DRAWS, pairs)) * math.sqrt(2)

    def statistic(shift: float) -> NDArray[np.int64]:
        moved = differences + shift
        ranks = np.abs(moved).argsort(axis=1).argsort(axis=1) + 1
        return np.asarray((ranks * (moved > 0)).sum(axis=1))

    return statistic, signed_rank_ways(pairs)
