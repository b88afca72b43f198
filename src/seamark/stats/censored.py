"""Quantiles of right-censored times: a request that timed out took at least that long.

A quantile is that of known times and bounds together, by nearest rank. No true time is less than its bound, so the
true quantile is not less either. If no bound lies below it, it is exact; else it is itself a lower bound.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.stats.histogram import Histogram, bucket_indexes
from seamark.stats.quantiles import rank

Times = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A statistic in the unit of its values; `lower_bound`: the true one is at least this."""

    value: float
    lower_bound: bool = False


def exact_quantile(known: Times, bounds: Times, probability: float) -> Estimate:
    """Return the quantile of at least one value, known or bound."""
    whole = np.concatenate([known, bounds]) if len(bounds) else known
    at = rank(probability, len(whole))
    value = int(np.partition(whole, at)[at])
    if not len(bounds):
        return Estimate(value=value)
    is_known = int(bounds.min()) >= value and at < int((known <= value).sum())
    return Estimate(value=value, lower_bound=not is_known)


def quantile(known: Histogram, bounds: Histogram, probability: float) -> Estimate | None:
    """Return the quantile of histograms within their relative error, None if both are empty. A bound in the bucket of
    the quantile makes it a lower bound, although the quantile may lie below that bound."""
    whole = known.merged(bounds)
    value = whole.quantile(probability)
    if value is None:
        return None
    if bounds.minimum is None:
        return Estimate(value=value)
    if bounds.minimum == 0 or value == 0:
        return Estimate(value=value, lower_bound=bounds.minimum == 0)
    least, own = bucket_indexes(np.array([bounds.minimum, max(1, round(value))]), known.relative_error)
    return Estimate(value=value, lower_bound=bool(least <= own))


def minimum(known: Histogram, bounds: Histogram) -> Estimate | None:
    """Return the minimum: a lower bound if it is a bound."""
    if bounds.minimum is not None and (known.minimum is None or bounds.minimum < known.minimum):
        return Estimate(value=bounds.minimum, lower_bound=True)
    return None if known.minimum is None else Estimate(value=known.minimum)


def maximum(known: Histogram, bounds: Histogram) -> Estimate | None:
    """Return the maximum: a lower bound if there is any bound."""
    greatest = [histogram.maximum for histogram in (known, bounds) if histogram.maximum is not None]
    return Estimate(value=max(greatest), lower_bound=bounds.count > 0) if greatest else None
