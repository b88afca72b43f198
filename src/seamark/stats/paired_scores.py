"""Scores of the same items by two methods: validation, and differences summed by cluster. Pure.

Tests and intervals of them are in paired.py.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.stats.ranks import Values

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
