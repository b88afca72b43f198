"""Bootstrap interval of the ratio of two medians, beside the one that inverts a rank test. Pure."""

from collections.abc import Hashable, Mapping

import numpy as np

from seamark.stats.ranks import Interval

RESAMPLES = 10_000
CONFIDENCE = 0.95


def ratio_of_medians(
    base: Mapping[Hashable, float], new: Mapping[Hashable, float], *, seed: int = 0
) -> Interval | None:
    """Return the median of `new` over that of `base`, between the 2.5 and 97.5 % percentiles of RESAMPLES resamples
    (Efron and Tibshirani, An Introduction to the Bootstrap, 13.3): of pairs, where all keys are in both, else of each
    group apart. None with less than two values in a group, or where one is not positive."""
    one, other = (np.fromiter(group.values(), dtype=float) for group in (base, new))
    if min(len(one), len(other)) < 2 or not (np.isfinite(one) & (one > 0)).all() or not (other > 0).all():
        return None
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(one), (RESAMPLES, len(one)))
    if base.keys() == new.keys():
        other, beside = np.array([new[key] for key in base]), at
    else:
        beside = rng.integers(0, len(other), (RESAMPLES, len(other)))
    drawn = np.median(other[beside], axis=1) / np.median(one[at], axis=1)
    low, high = np.percentile(drawn, [50 - 50 * CONFIDENCE, 50 + 50 * CONFIDENCE])
    estimate = float(np.median(other) / np.median(one))
    return Interval(estimate=estimate, low=float(low), high=float(high), confidence=CONFIDENCE)
