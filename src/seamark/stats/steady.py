"""Where a series of equally long windows settles: MSER-5 truncation and a Mann-Kendall trend test."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]

BATCH = 5
MOST_POINTS = 200


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """How many leading observations MSER would cut, and whether what is cut differs from what is kept.

    `differs` asks for more than `least` of the kept mean and for more than three standard errors, so that a
    series of pure noise is left whole. `at_limit`: the best cut is the latest allowed one, half of the series,
    so the series has not settled.
    """

    cut: int
    at_limit: bool
    differs: bool


def mser(series: Series, batch: int = BATCH, least: float = 0.05) -> Truncation:
    """Return where the Marginal Standard Error Rule on means of `batch` observations truncates `series`.

    MSER(d) = sum over i > d of (y_i - mean_d)^2 / (n - d)^2, least for d in 0..n/2 (White, Cobb, Spratt 2000).
    Fewer than four batches are left whole.
    """
    size = len(series) // batch
    if size < 4:
        return Truncation(cut=0, at_limit=False, differs=False)
    means = series[: size * batch].reshape(size, batch).mean(axis=1)
    left = np.arange(size, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means - means.mean())[::-1] ** 2)[::-1]
    centred = np.cumsum((means - means.mean())[::-1])[::-1]
    spread = np.maximum(squares - centred**2 / left, 0)
    limit = size // 2
    cut = int(np.argmin((spread / left**2)[: limit + 1]))
    if cut == 0:
        return Truncation(cut=0, at_limit=False, differs=False)
    kept = sums[cut] / left[cut]
    deviation = math.sqrt(spread[cut] / max(1, left[cut] - 1))
    difference = abs(means[:cut].mean() - kept)
    noise = 3 * deviation * math.sqrt(1 / cut + 1 / left[cut])
    return Truncation(
        cut=cut * batch, at_limit=cut == limit, differs=bool(difference > max(least * abs(kept), noise))
    )


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A monotonic trend: its two-sided p, and the change over the whole series as a share of its median."""

    p: float
    change_ratio: float


def trend(series: Series) -> Trend:
    """Return the Mann-Kendall trend of `series`, of means of it when it is longer than 200 points.

    Windows of one run are autocorrelated; the variance is widened by (1 + r) / (1 - r), r the lag-1
    autocorrelation of what is left after the Theil-Sen line is taken off (Yue and Wang 2004).
    """
    points = condensed(series, MOST_POINTS)
    size = len(points)
    if size < 8:
        return Trend(p=1.0, change_ratio=0.0)
    later, earlier = np.triu_indices(size, 1)[::-1]
    steps = points[later] - points[earlier]
    slope = float(np.median(steps / (later - earlier)))
    score = float(np.sign(steps).sum())
    _, ties = np.unique(points, return_counts=True)
    variance = (size * (size - 1) * (2 * size + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    variance *= _inflation(points - slope * np.arange(size))
    if variance <= 0:
        return Trend(p=1.0, change_ratio=0.0)
    z = (score - math.copysign(min(1.0, abs(score)), score)) / math.sqrt(variance)
    middle = abs(float(np.median(points)))
    change = slope * (size - 1)
    return Trend(p=math.erfc(abs(z) / math.sqrt(2)), change_ratio=change / middle if middle else 0.0)


def condensed(series: Series, most: int) -> Series:
    """Return `series` as at most `most` means of equally many neighbours; a rest at the end is left out."""
    width = -(-len(series) // most)
    if width <= 1:
        return series
    whole = len(series) // width * width
    return np.asarray(series[:whole].reshape(-1, width).mean(axis=1))


def _inflation(residuals: Series) -> float:
    centred = residuals - residuals.mean()
    power = float((centred**2).sum())
    if power <= 0:
        return 1.0
    r = min(0.95, max(0.0, float((centred[1:] * centred[:-1]).sum()) / power))
    return (1 + r) / (1 - r)
