"""Truncation of the initial transient of a series of equal windows by MSER-5."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]

BATCH = 5


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """Number of leading observations that MSER cuts, and whether they differ from the rest.

    `differs` requires a difference of more than `least` of the kept mean and more than three standard errors, so that
    pure noise is not cut. `at_limit`: the best cut is the latest allowed, half of the series, so the series has not
    settled.
    """

    cut: int
    at_limit: bool
    differs: bool


def mser(series: Series, batch: int = BATCH, least: float = 0.05) -> Truncation:
    """Return where the Marginal Standard Error Rule on means of `batch` observations truncates `series`.

    MSER(d) = sum over i > d of (y_i - mean_d)^2 / (n - d)^2, least for d in 0..n/2 (White, Cobb, Spratt 2000). Fewer
    than four batches are not cut.
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
