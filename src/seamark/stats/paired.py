"""Scores of the same items by two methods: validated, summed by cluster, with tests and intervals of their mean
difference. Pure.

`base` and `new` are shape (items,) in the same order. Items may be clustered (several questions about one document):
`clusters` holds one label per item. Answers within a cluster are correlated, so the cluster is then the unit of
independence; without `clusters` the item is. A difference is new - base, its mean is that over items. All functions
raise ValueError for scores that are empty, of unequal lengths, or not finite, and for a label that is missing.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seamark.stats.ranks import Interval, Values

Scores = Sequence[float] | NDArray[np.generic]
Labels = Sequence[Hashable] | NDArray[np.generic]

ROUNDING = 1e-12
"""Sums that differ by at most this part of the largest score, per item, are equal."""
MOST_DRAWN = 2**20
"""Random numbers in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """Sum of differences, number of items and largest rounding error of the sum for each unit, shape (units,)."""

    sums: Values
    sizes: Values
    rounding: Values

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / self.sizes.sum())


def pairs(base: Scores, new: Scores) -> tuple[Values, Values]:
    """Return both scores as floats, shape (items,); ValueError if they are no finite pairs."""
    one, other = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(f"scores have shapes {one.shape} and {other.shape}; they must be pairs, item by item")
    if not len(one):
        raise ValueError("there are no scores")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise ValueError("scores must be finite: an item without a score needs a decision before the comparison")
    return one, other


def units_of(base: Scores, new: Scores, clusters: Labels | None) -> Units:
    """Return the differences new - base by cluster, or item by item without `clusters`.

    ValueError if scores are no finite pairs, or labels are missing.
    """
    one, other = pairs(base, new)
    at = cluster_numbers(clusters, len(one))
    sums, sizes = np.bincount(at, weights=other - one).astype(float), np.bincount(at).astype(float)
    scale = max(float(np.abs(one).max()), float(np.abs(other).max()))
    return Units(sums=sums, sizes=sizes, rounding=ROUNDING * scale * sizes)


def standard_error(units: Units) -> float | None:
    """Return the cluster-robust standard error of the mean: None for one unit, 0 if all units have the same mean."""
    count = len(units.sums)
    if count < 2:
        return None
    residuals = units.sums - units.sizes * units.mean
    if (np.abs(residuals) <= units.rounding).all():
        return 0.0
    return math.sqrt(count / (count - 1) * float(residuals @ residuals)) / float(units.sizes.sum())


def differing(units: Units) -> int:
    """Return how many units have another mean difference than the median unit."""
    means = units.sums / units.sizes
    return int((np.abs(means - np.median(means)) > 2 * units.rounding / units.sizes).sum())


def t_quantile(units: int, probability: float) -> float:
    """Return the quantile of Student's t with `units` - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(units - 1, probability))


def cluster_numbers(clusters: Labels | None, items: int) -> NDArray[np.int64]:
    """Return the number of each item's cluster, in order of first appearance; without `clusters` that of the item."""
    if clusters is None:
        return np.arange(items)
    if len(clusters) != items:
        raise ValueError(f"there are {len(clusters)} cluster labels for {items} items")
    numbers: dict[Hashable, int] = {}
    labels = clusters.tolist() if isinstance(clusters, np.ndarray) else clusters
    at = [numbers.setdefault(label, len(numbers)) for label in labels]
    if any(label is None or label != label for label in numbers):
        raise ValueError("a cluster label is None or NaN: each item needs one")
    return np.array(at)


def rows_of(total: int, width: int) -> list[int]:
    """Return numbers of rows of `width` that add up to `total`, each with at most MOST_DRAWN elements."""
    most = max(1, MOST_DRAWN // width)
    return [min(most, total - start) for start in range(0, total, most)]


CONFIDENCE = 0.95
RESAMPLES = 9999
MOST_ENUMERATED = 16
"""Units above which signs are drawn at random instead of enumerated."""


@dataclass(frozen=True, kw_only=True)
class SignFlip:
    """Two-sided p of the mean difference under random signs of `units` clusters (or items).

    `arrangements` is the number of sign patterns that p comes from: all that differ (exact), or those drawn from
    `seed` (monte-carlo), where p is 1 / (arrangements + 1) at least.
    """

    p: float
    method: Literal["exact", "monte-carlo"]
    units: int
    arrangements: int


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """Mean difference over items in `units` clusters (or items), with its standard error and t interval.

    `standard_error` and `interval` are None with fewer than two units. If all units have the same mean difference,
    the error and the width are 0: the scores contain no information about rarer differences.
    """

    units: int
    difference: float
    standard_error: float | None
    interval: Interval | None


def mcnemar_p(base: Scores, new: Scores) -> float:
    """Return the two-sided p of the exact McNemar test of scores 0 and 1: binomial test of the discordant pairs.

    p is 1 without discordant pairs. The test assumes independent items: for clustered ones, use `sign_flip`, which
    is the same test without clusters (McNemar, Psychometrika 12, 1947). ValueError for other scores.
    """
    from scipy.special import bdtr

    one, other = pairs(base, new)
    if not np.isin(np.concatenate([one, other]), (0, 1)).all():
        raise ValueError("McNemar's test needs scores of 0 and 1 only")
    only_base, only_new = int((one > other).sum()), int((other > one).sum())
    return min(1.0, 2 * float(bdtr(min(only_base, only_new), only_base + only_new, 0.5)))


def sign_flip(
    base: Scores, new: Scores, *, seed: int, clusters: Labels | None = None, resamples: int = RESAMPLES
) -> SignFlip:
    """Return the permutation test of the mean difference by exchange of base and new in whole clusters.

    The hypothesis is that base and new are exchangeable in each cluster, so the sign of its sum of differences is
    random. All sign patterns are enumerated for up to 16 units with a difference (others cannot change the sum);
    above, m = `resamples` are drawn, and p is (b + 1) / (m + 1) for b with an absolute sum not below the observed one
    (Phipson and Smyth, Statistical Applications in Genetics 9, 2010). Sums that are equal but for rounding count as
    equal. ValueError for less than one resample.
    """
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; at least 1 is needed")
    units = units_of(base, new, clusters)
    sums = units.sums[np.abs(units.sums) > units.rounding]
    least = abs(float(sums.sum())) - float(units.rounding.sum())
    is_exact = len(sums) <= MOST_ENUMERATED
    if is_exact:
        p = float(np.mean(np.abs(_signed_sums(sums)) >= least))
    else:
        p = (_as_extreme(sums, least, resamples, np.random.default_rng(seed)) + 1) / (resamples + 1)
    return SignFlip(
        p=p,
        method="exact" if is_exact else "monte-carlo",
        units=len(units.sums),
        arrangements=2 ** len(sums) if is_exact else resamples,
    )


def mean_difference(
    base: Scores, new: Scores, *, clusters: Labels | None = None, confidence: float = CONFIDENCE
) -> MeanDifference:
    """Return the mean difference with a cluster-robust standard error and t interval of G - 1 degrees of freedom.

    The variance is G / (G - 1) times the sum over G clusters of their squared sum of residuals, over items squared
    (Liang and Zeger, Biometrika 73, 1986; Cameron and Miller, Journal of Human Resources 50, 2015). Without clusters
    that is the usual variance / items. The interval is too narrow for few clusters of very unequal size. ValueError
    for a `confidence` outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    units = units_of(base, new, clusters)
    error, difference = standard_error(units), units.mean
    interval = None
    if error is not None:
        reach = t_quantile(len(units.sums), (1 + confidence) / 2) * error
        interval = Interval(
            estimate=difference, low=difference - reach, high=difference + reach, confidence=confidence
        )
    return MeanDifference(
        units=len(units.sums),
        difference=difference,
        standard_error=error,
        interval=interval,
    )


def mean_limits(mean: float, error: float, units: int) -> Interval:
    """Return the interval of a mean of scores from 0 to 1 by its standard error over `units` clusters or items.

    That of Clopper and Pearson for as many independent right and wrong answers as have this error (Korn and Graubard,
    Survey Methodology 24, 1998). It reaches as far as a share 1 - (alpha / 2)**(1 / units) of other units with
    the score 0, or 1: the most that a sample of none allows (Hanley and Lippman-Hand, JAMA 249, 1983).
    """
    from scipy.special import betaincinv, ndtri

    tail = (1 - CONFIDENCE) / 2
    unseen = 1 - tail ** (1 / units)
    low, high = mean * (1 - unseen), mean + unseen * (1 - mean)
    if error > 0 and 0 < mean < 1:
        answers = mean * (1 - mean) / error**2 * (ndtri(tail) / t_quantile(units, tail)) ** 2
        low = min(low, float(betaincinv(answers * mean, answers * (1 - mean) + 1, tail)))
        high = max(high, float(betaincinv(answers * mean + 1, answers * (1 - mean), 1 - tail)))
    return Interval(estimate=mean, low=low, high=high, confidence=CONFIDENCE)


def _signed_sums(sums: Values) -> Values:
    """Return the sums under all sign patterns with a positive first sign; the others are their negatives."""
    signed = sums[:1] if len(sums) else np.zeros(1)
    for value in sums[1:]:
        signed = np.concatenate([signed + value, signed - value])
    return signed


def _as_extreme(sums: Values, least: float, resamples: int, rng: np.random.Generator) -> int:
    """Return how many of `resamples` random sign patterns have an absolute sum of `least` or more."""
    count = 0
    for rows in rows_of(resamples, len(sums)):
        positive = rng.integers(0, 2, size=(rows, len(sums)), dtype=np.bool_)
        count += int(np.count_nonzero(np.abs(2 * (positive @ sums) - sums.sum()) >= least))
    return count
