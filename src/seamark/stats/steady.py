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
    """A monotonic trend: its two-sided p, and last third less first third as a share of the mean."""

    p: float
    change_ratio: float


def trend(series: Series) -> Trend:
    """Return the Mann-Kendall trend of `series`, of means of it when it is longer than 200 points.

    The p is that of independent points. Windows of one run are not quite that, so slow swings count as trends: what
    was measured then depends on when one looked. Fewer than eight points have no trend.
    """
    points = condensed(series, MOST_POINTS)
    size = len(points)
    if size < 8:
        return Trend(p=1.0, change_ratio=0.0)
    earlier, later = np.triu_indices(size, 1)
    score = float(np.sign(points[later] - points[earlier]).sum())
    _, ties = np.unique(points, return_counts=True)
    variance = (size * (size - 1) * (2 * size + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    if variance <= 0:
        return Trend(p=1.0, change_ratio=0.0)
    z = max(0.0, abs(score) - 1) / math.sqrt(variance)
    third, middle = size // 3, abs(float(points.mean()))
    change = float(points[-third:].mean() - points[:third].mean())
    return Trend(p=math.erfc(z / math.sqrt(2)), change_ratio=change / middle if middle else 0.0)


def condensed(series: Series, most: int) -> Series:
    """Return `series` as at most `most` means of equally many neighbours; a rest at the end is left out."""
    width = -(-len(series) // most)
    if width <= 1:
        return series
    whole = len(series) // width * width
    return np.asarray(series[:whole].reshape(-1, width).mean(axis=1))
