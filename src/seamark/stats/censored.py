"""Quantiles of right-censored times: a request without an answer took at least as long as was waited, and at most
any time.

A quantile rises with every value, so its ends are the quantiles with each unknown time at its lower bound, and at
infinity.
"""

import numpy as np
from numpy.typing import NDArray

from seamark.stats.histogram import Histogram
from seamark.stats.quantiles import Ranks
from seamark.stats.range import Range

Times = NDArray[np.int64]


def exact_quantile(known: Times, bounds: Times, ranks: Ranks) -> Range:
    """Return the values at `ranks` of at least one time, known or bounded."""
    at, last = ranks
    whole = np.concatenate([known, bounds]) if len(bounds) else known
    low = int(np.partition(whole, at)[at])
    if last is None or last >= len(known):
        return Range(low=low, high=None)
    return Range(low=low, high=int(np.partition(known, last)[last]))


def quantile(known: Histogram, bounds: Histogram, ranks: Ranks) -> Range:
    """Return the values at `ranks` of histograms, not both empty, within their relative error."""
    at, last = ranks
    low = known.merged(bounds).at(at)
    if last is None or last >= known.count:
        return Range(low=low, high=None)
    return Range(low=low, high=max(low, known.at(last)))


def mean(known: Histogram, bounds: Histogram) -> Range | None:
    """Return the mean over all, known or bounded; None for none."""
    count = known.count + bounds.count
    if not count:
        return None
    low = (known.total + bounds.total) / count
    return Range(low=low, high=None if bounds.count else low)


def minimum(known: Histogram, bounds: Histogram) -> Range | None:
    """Return the minimum; None for no time."""
    least = [histogram.minimum for histogram in (known, bounds) if histogram.minimum is not None]
    return Range(low=min(least), high=known.minimum) if least else None


def maximum(known: Histogram, bounds: Histogram) -> Range | None:
    """Return the maximum, which has no upper end if there is any bound; None for no time."""
    greatest = [histogram.maximum for histogram in (known, bounds) if histogram.maximum is not None]
    return Range(low=max(greatest), high=None if bounds.count else known.maximum) if greatest else None
