"""Change-point test of a series: a step at any place or a linear trend, distinguished from autocorrelated noise."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]

LEAST_POINTS = 20
EDGE_RATIO, EDGE_POINTS = 0.025, 3
"""A step leaves at least this much of the series on each side."""
OUTLIER = 4.0
"""A point further from the median than this many robust standard deviations, with neighbours that are not, is an
outlier, not a step: it is replaced by the mean of its neighbours."""
NEVER_SIGNIFICANT = 9.0
"""Independent points exceed it in one series of twenty, autocorrelated ones more often."""
ERRORS, MORE_ERRORS = 1.0, 1.25
"""The autocorrelation r is assumed 1 + 1.25 r of its standard errors above its estimate, since an estimate that is
too small makes noise significant. tests/stats/test_change.py shows the resulting rate of false alarms."""
BEYOND_DOUBT = 1000.0
"""Fewer than 1 in 200 noise series of 40 to 100 points have a monotone statistic above this, for any autocorrelation
up to 0.9 (0.96 with 100 points)."""
MONOTONE_P = 0.001
LARGEST = 0.98
SIMULATED = 4000


@dataclass(frozen=True, kw_only=True)
class Change:
    """Most likely change of a series: its p, and the medians of the points before and after it.

    `at` is the first point after a step; a trend is given by the medians of the first and last third. The p is
    relative to a series without change and the same autocorrelation; it is 1 from 0.05 up.
    """

    p: float
    kind: Literal["step", "trend"] = "step"
    at: int = 0
    before: float = 0.0
    after: float = 0.0


def change(series: Series) -> Change:
    """Return the most likely step or linear trend of `series`; none with fewer than 20 points, or equal ones.

    The statistic is the largest share of the variance that a step or the line explains, over the rest of it, divided
    by (1 + r) / (1 - r) for a lag-one autocorrelation r of the residuals (a CUSUM test with a long-run variance;
    Csorgo and Horvath, Limit Theorems in Change-Point Analysis, 1997). Its p comes from simulated first-order
    autoregressive series of the same length (a parametric bootstrap). A smooth curve leaves so much autocorrelation
    that the test concludes nothing, so a monotone curve that explains nearly everything is a trend of p 0.001 as
    well.
    """
    size = len(series)
    middle = float(np.median(series)) if size else 0.0
    if size < LEAST_POINTS or float(np.ptp(series)) <= 1e-12 * max(1.0, abs(middle)):
        return Change(p=1.0)
    points = _without_outliers(series, middle)
    statistics, correlations, places = _statistics(points[np.newaxis, :])
    statistic, place = float(statistics[0]), int(places[0])
    p = 1.0
    if statistic >= NEVER_SIGNIFICANT:
        chance = _of_noise(size, _autocorrelation(float(correlations[0]), size))
        p = float(1 + np.searchsorted(-chance, -statistic, side="right")) / (1 + SIMULATED)
    if p > MONOTONE_P and _monotone(points) > BEYOND_DOUBT:
        return _trend(series, MONOTONE_P)
    edge = _edge(size)
    if place == size - 2 * edge + 1:  # the last shape is the line
        return _trend(series, p)
    at = edge + place
    return Change(p=p, at=at, before=float(np.median(series[:at])), after=float(np.median(series[at:])))


def _without_outliers(series: Series, middle: float) -> Series:
    limit = OUTLIER * 1.4826 * float(np.median(np.abs(series - middle)))
    far = np.abs(series - middle) > limit
    padded, around = np.pad(far, 1), np.pad(series, 1, mode="reflect")
    alone = far & ~padded[:-2] & ~padded[2:] & (limit > 0)
    return np.where(alone, (around[:-2] + around[2:]) / 2, series)


def _trend(series: Series, p: float) -> Change:
    third = len(series) // 3
    before, after = np.median(series[:third]), np.median(series[-third:])
    return Change(p=p, kind="trend", before=float(before), after=float(after))


def _monotone(points: Series) -> float:
    """Return the statistic of the best monotone curve."""
    centred = points - points.mean()
    curve = max((_rising(centred), -_rising(-centred)), key=lambda fitted: float((fitted**2).sum()))
    rest = centred - curve
    squares = max(float((rest**2).sum()), 1e-12 * float((centred**2).sum()))
    kept = min(LARGEST, max(0.0, float((rest[1:] * rest[:-1]).sum()) / squares))
    return float((curve**2).sum()) / (squares / (len(points) - 2)) * (1 - kept) / (1 + kept)


def _rising(points: Series) -> Series:
    """Return the least-squares non-decreasing curve: at i the largest over a <= i of the least mean of a..b, b >= i
    (Barlow and others, Statistical Inference under Order Restrictions, 1972)."""
    sums, numbers = np.concatenate([[0.0], np.cumsum(points)]), np.arange(len(points))
    lengths = numbers + 1 - numbers[:, np.newaxis]
    means = np.where(lengths > 0, (sums[1:] - sums[:-1, np.newaxis]) / np.maximum(lengths, 1), np.inf)
    least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(np.where(lengths > 0, least, -np.inf).max(axis=0))


def _edge(size: int) -> int:
    return max(EDGE_POINTS, round(EDGE_RATIO * size))


@lru_cache(maxsize=8)
def _shapes(size: int) -> NDArray[np.float64]:
    """Return every step and, last, the line, each as a row of mean 0 and length 1."""
    edge = _edge(size)
    steps = np.array(
        [np.where(np.arange(size) < at, -1 / at, 1 / (size - at)) for at in range(edge, size - edge + 1)]
    )
    rows = np.vstack([steps, np.arange(size) - (size - 1) / 2])
    return np.asarray(rows / np.sqrt((rows**2).sum(axis=1, keepdims=True)))


def _statistics(rows: NDArray[np.float64]) -> tuple[Series, Series, NDArray[np.int64]]:
    """Return for each row the statistic, the autocorrelation of the residuals of the best shape, and the shape's
    number."""
    shapes, each = _shapes(rows.shape[1]), np.arange(len(rows))
    centred = rows - rows.mean(axis=1, keepdims=True)
    explained = centred @ shapes.T
    best = (explained**2).argmax(axis=1)
    share = explained[each, best]
    rest = centred - share[:, np.newaxis] * shapes[best]
    squares = np.maximum((rest**2).sum(axis=1), 1e-12 * (centred**2).sum(axis=1))
    correlation = (rest[:, 1:] * rest[:, :-1]).sum(axis=1) / squares
    kept = np.clip(correlation, 0.0, LARGEST)
    statistic = share**2 / (squares / (rows.shape[1] - 2)) * (1 - kept) / (1 + kept)
    return statistic, correlation, best


def _autocorrelation(measured: float, size: int) -> float:
    """Return the autocorrelation to simulate, in steps of 0.01.

    Residuals of a series of `size` points have on average r - (4 + 8 r) / size, as simulation shows: more than the (1
    + 3 r) / size of Kendall (1954), as a change was fitted besides a mean.
    """
    errors = ERRORS + MORE_ERRORS * max(0.0, measured)
    bound = measured + errors * math.sqrt((1 - min(1.0, measured**2)) / size)
    return round(min(LARGEST, max(0.0, (bound + 4 / size) / (1 - 8 / size))), 2)


@lru_cache(maxsize=64)
def _of_noise(size: int, correlation: float) -> Series:
    """Return the statistics of simulated series without change, the largest first."""
    rng = np.random.default_rng(size)
    shocks = rng.standard_normal((SIMULATED, size))
    shocks[:, 0] /= math.sqrt(1 - correlation**2)
    for at in range(1, size):
        shocks[:, at] += correlation * shocks[:, at - 1]
    return -np.sort(-_statistics(shocks)[0])
