"""Change points of a short series of runs: E-divisive, the energy statistic with a permutation test. Pure.

Not to be confused with change.py, which asks of the seconds of one load whether they have a step or a trend, and
expects them to be autocorrelated. Here each value is a run of its own, such as one night's median.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SIGNIFICANCE = 0.01
PERMUTATIONS = 499
LEAST_SEGMENT = 3
"""Fewer values on one side differ by chance so often that no test could tell."""
MOST_NUMBERS = 1 << 15
"""Permuted distances in memory at a time, few enough for a processor's cache."""


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A change of the distribution: `at` is the index of the first value after it. `p` is that of the permutation
    test, 1 / (permutations + 1) at least; `q` is the statistic."""

    at: int
    p: float
    q: float


def e_divisive(
    values: Sequence[float],
    *,
    seed: int = 0,
    significance: float = SIGNIFICANCE,
    permutations: int = PERMUTATIONS,
    least: int = LEAST_SEGMENT,
) -> tuple[ChangePoint, ...]:
    """Return the change points of a series in the order of their places; each segment has `least` values or more.

    The method is that of Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
    Multivariate Data", Journal of the American Statistical Association 109, 2014, with alpha 1. The candidate is the
    place tau, with the end kappa of what comes after it, of the largest statistic

        q = n m / (n + m) (2 mean |x - y| - mean |x - x'| - mean |y - y'|)

    for the n values x before and the m values y after it, means over distinct pairs, in any segment between the
    change points so far. It is one if at most `significance` of the series with values permuted within these segments
    have as large a statistic: p is (b + 1) / (`permutations` + 1) for b of them. The search ends with the first
    candidate that is none.

    The statistic of a segment needs time in the square of its length, for each permutation. Values of one level in
    any order are a series without a change; a drift is reported as steps. ValueError for a value that is not finite,
    `least` below 2, `permutations` below 1, or a `significance` outside of (0, 1).
    """
    if least < 2 or permutations < 1 or not 0 < significance < 1:
        raise ValueError(f"least is {least}, permutations {permutations}, significance {significance}")
    series = np.asarray(values, dtype=np.float64)
    if not np.isfinite(series).all():
        raise ValueError("a value is not finite")
    rng = np.random.default_rng(seed)
    bounds, found = [0, len(series)], list[ChangePoint]()
    while True:
        segments = [series[start:end] for start, end in pairwise(bounds)]
        best = [_best_split(segment, least) for segment in segments]
        chosen = max(range(len(segments)), key=lambda index: best[index][0])
        q, place = best[chosen]
        if q <= 0 or not math.isfinite(q):
            break
        most = math.floor(significance * (permutations + 1) * (1 + 1e-9)) - 1
        as_large = _as_large(segments, q, rng, permutations, least, most)
        if as_large > most:
            break
        p = (as_large + 1) / (permutations + 1)
        at = bounds[chosen] + place
        found.append(ChangePoint(at=at, p=p, q=q))
        bounds = sorted([*bounds, at])
    return tuple(sorted(found, key=lambda point: point.at))


def _best_split(segment: Matrix, least: int) -> tuple[float, int]:
    """Return the largest statistic of a segment and its place tau; -inf for one that is too short."""
    if len(segment) < 2 * least:
        return -math.inf, 0
    statistics, places = _largest(np.abs(segment[:, None] - segment[None, :])[None], least)
    return float(statistics[0]), int(places[0])


def _as_large(
    segments: Sequence[Matrix], q: float, rng: np.random.Generator, number: int, least: int, most: int
) -> int:
    """Return how many of `number` permutations within the segments have a statistic as large as `q`, which is not
    searched further once they are more than `most`."""
    distances = [np.abs(segment[:, None] - segment[None, :]) for segment in segments if len(segment) >= 2 * least]
    at_once = max(1, MOST_NUMBERS // max(matrix.shape[0] for matrix in distances) ** 2)
    found = 0
    for start in range(0, number, at_once):
        largest = np.full(min(at_once, number - start), -math.inf)
        for matrix in distances:
            orders = np.argsort(rng.random((len(largest), matrix.shape[0])), axis=1)
            permuted = matrix[orders[:, :, None], orders[:, None, :]]
            np.maximum(largest, _largest(permuted, least)[0], out=largest)
        found += int((largest >= q * (1 - 1e-9)).sum())
        if found > most:
            break
    return found


def _largest(distances: Matrix, least: int) -> tuple[Matrix, NDArray[np.int64]]:
    """Return for each matrix of distances, shape (count, T, T), the largest statistic over tau and kappa, and tau.

    With S(i, j) the sum of the distances of the first i values to the first j, that within the first tau values is
    S(tau, tau), each pair twice; between them and those up to kappa it is S(tau, kappa) - S(tau, tau).
    """
    count, size, _ = distances.shape
    sums = np.zeros((count, size + 1, size + 1))
    sums[:, 1:, 1:] = distances.cumsum(axis=1).cumsum(axis=2)
    inside = np.einsum("cii->ci", sums)
    tau, kappa = np.triu_indices(size + 1, least)
    keep = tau >= least
    tau, kappa = tau[keep], kappa[keep]
    n, m = tau.astype(np.float64), (kappa - tau).astype(np.float64)
    first = inside[:, tau]
    between = sums[:, tau, kappa] - first
    second = inside[:, kappa] - first - 2 * between
    energy = 2 * between / (n * m) - first / (n * (n - 1)) - second / (m * (m - 1))
    statistics = n * m / (n + m) * energy
    best = statistics.argmax(axis=1)
    return statistics[np.arange(count), best], tau[best]
