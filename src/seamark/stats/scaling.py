"""Scaling of throughput with the number of workers: Amdahl's law, the Universal Scalability Law, speed-up, intervals.

A block holds one throughput of every level, measured in one repetition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seamark.stats.scaling_law import Estimate, Fit, Law

LEAST = 3
LEAST_USL = 4
LEAST_BLOCKS = 5
DRAWS = 2000

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Speed-up over the first level and efficiency (speed-up over the ratio of workers), one of each a level."""

    speedup: tuple[Estimate, ...]
    efficiency: tuple[Estimate, ...]
    fits: tuple[Fit, ...]


def scaling(levels: Sequence[float], blocks: Sequence[Sequence[float]], seed: int = 0) -> Curve:
    """Return speed-up, efficiency and the laws' fits of at least one block over increasing levels, all above 0.

    n / X is linear in the laws' parameters (Gunther, Guerrilla Capacity Planning, 2007), so each fit is the least
    squares of relative errors with no parameter below 0 and `contention` at most 1. Speed-ups are geometric means of
    the ratios within blocks. Intervals resample whole blocks: percentiles expanded for few blocks (Hesterberg, The
    American Statistician 69, 2015), which fewer than 5 blocks cannot reach (1 resample in n^n holds one block alone).
    With fewer than 3 levels there is no fit, and none of `usl` with fewer than 4: three parameters go through any
    three points. Raises ValueError for sequences of different length and values that are not positive.
    """
    workers, rates = np.asarray(levels, dtype=np.float64), np.asarray(blocks, dtype=np.float64)
    if rates.ndim != 2 or rates.shape[1] != len(workers) or min(rates.min(), workers.min()) <= 0:
        raise ValueError("every block needs a throughput above 0 of each level")
    weights = _resamples(len(rates), seed)
    ratios = np.log(rates / rates[:, :1])
    speedup = _estimates(lambda weight: np.exp(weight @ ratios / weight.sum()), len(rates), weights)
    shares = workers / workers[0]
    least: Mapping[Law, int] = {"amdahl": LEAST, "usl": LEAST_USL}
    return Curve(
        speedup=tuple(speedup),
        efficiency=tuple(_over(one, share) for one, share in zip(speedup, shares.tolist(), strict=True)),
        fits=tuple(_fit(law, workers, rates, weights) for law, many in least.items() if len(workers) >= many),
    )


def _fit(law: Law, workers: Values, rates: Values, weights: Values | None) -> Fit:
    columns = [np.ones_like(workers), workers, *([workers * (workers - 1)] if law == "usl" else [])]
    # a row a measurement, in relative errors of n / X
    rows = np.stack(columns, axis=1)[None] * (rates / workers)[:, :, None]

    def parameters(weight: Values) -> Values:
        from scipy.optimize import nnls

        scale = np.sqrt(weight)[:, None]
        share, per_worker, *per_pair = nnls(
            (rows * scale[:, :, None]).reshape(-1, len(columns)), np.broadcast_to(scale, rates.shape).ravel()
        )[0]
        first = share + per_worker
        return np.array([1 / first, per_worker / first, *(quadratic / first for quadratic in per_pair)])

    rate, contention, *coherency = _estimates(parameters, len(rates), weights)
    fit = Fit(law=law, rate=rate, contention=contention, coherency=coherency[0] if coherency else None, misfit=0.0)
    curve = np.array([fit.throughput(n) for n in workers])
    misfit = float(np.abs(np.exp(np.log(rates).mean(axis=0)) / curve - 1).max())
    return replace(fit, misfit=misfit)


def _resamples(blocks: int, seed: int) -> Values | None:
    """Return how often each block is in each resample (draws, blocks), None with too few blocks."""
    if blocks < LEAST_BLOCKS:
        return None
    return np.random.default_rng(seed).multinomial(blocks, np.full(blocks, 1 / blocks), DRAWS).astype(np.float64)


def _estimates(of: Callable[[Values], Values], blocks: int, weights: Values | None) -> list[Estimate]:
    """Return a statistic of all blocks, which is given the weight of each, with its interval over resamples."""
    values = of(np.ones(blocks))
    if weights is None:
        return [Estimate(value=float(value)) for value in values]
    from scipy.special import ndtr, stdtrit

    distinct, index = np.unique(weights, axis=0, return_inverse=True)
    drawn = np.stack([of(weight) for weight in distinct])[index.ravel()]
    tail = ndtr(np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 0.025))
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    ends = zip(values, low, high, strict=True)
    return [Estimate(value=float(value), low=float(least), high=float(most)) for value, least, most in ends]


def _over(speedup: Estimate, share: float) -> Estimate:
    ends = {"low": speedup.low, "high": speedup.high}
    return Estimate(
        value=speedup.value / share, **{name: None if end is None else end / share for name, end in ends.items()}
    )
