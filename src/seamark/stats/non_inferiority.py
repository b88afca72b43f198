"""Test by paired scores that a new method is not worse than the base by more than a stated margin. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seamark.stats.paired_scores import ROUNDING, Labels, Scores, Units, pairs, standard_error, t_quantile, units_of
from seamark.stats.ranks import Values

Verdict = Literal["non-inferior", "inferior", "inconclusive"]

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class NonInferiority:
    """Verdict at `margin`. `low` and `high` are one-sided limits of the mean difference, each at confidence 1 -
    `alpha`, so together an interval at 1 - 2 `alpha`; None if the scores give none."""

    difference: float
    low: float | None
    high: float | None
    margin: float
    alpha: float
    verdict: Verdict


def non_inferiority(
    base: Scores,
    new: Scores,
    *,
    margin: float,
    better: Literal["higher", "lower"],
    clusters: Labels | None = None,
    alpha: float = ALPHA,
    largest_difference: float | None = None,
) -> NonInferiority:
    """Test whether `new` is worse than `base` by `margin`, in units of the score, by one-sided t limits.

    The gain is the mean difference if higher scores are better, else its negative. Verdicts: non-inferior if the
    lower limit of the gain is above -`margin`; inferior if its upper limit is below -`margin`; else inconclusive,
    also with a limit exactly at -`margin` or without limits. At a true gain of -`margin`, each of the first two is
    reached with a probability of about `alpha`. With a margin of 0, non-inferior means better.

    The limits use the standard error of `paired.mean_difference` and t with units - 1 degrees of freedom. They are
    approximate, and too narrow if few units have a difference. Without at least two units there are none.

    t does not apply if all units have the same mean difference: their spread is unknown, not 0. There are then limits
    only if `largest_difference` is given, the largest absolute difference that an item can have (1 for scores from 0
    to 1). They allow for a share 1 - alpha**(1 / units) of other units with that difference, the most that is
    compatible with a sample of none ('rule of three': Hanley and Lippman-Hand, JAMA 249, 1983), and assume clusters
    of similar size.

    ValueError as in `paired`, and for a negative or infinite `margin`, `alpha` outside (0, 0.5), and a
    `largest_difference` below an observed one.
    """
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin is {margin}; it must be finite and not negative")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha is {alpha}; it must lie between 0 and 0.5")
    units = units_of(base, new, clusters)
    if largest_difference is not None:
        _check_largest(largest_difference, *pairs(base, new))
    low, high = _one_sided(units, alpha, largest_difference)
    return NonInferiority(
        difference=units.mean,
        low=low,
        high=high,
        margin=margin,
        alpha=alpha,
        verdict=_verdict(low, high, margin, better),
    )


def _one_sided(units: Units, alpha: float, largest: float | None) -> tuple[float | None, float | None]:
    error, difference, count = standard_error(units), units.mean, len(units.sums)
    if error is None or (error == 0 and largest is None):
        return None, None
    if error == 0 and largest is not None:
        unseen = 1 - alpha ** (1 / count)
        return difference - unseen * (largest + difference), difference + unseen * (largest - difference)
    reach = t_quantile(count, 1 - alpha) * error
    return difference - reach, difference + reach


def _verdict(low: float | None, high: float | None, margin: float, better: Literal["higher", "lower"]) -> Verdict:
    if low is None or high is None:
        return "inconclusive"
    worst, best = (low, high) if better == "higher" else (-high, -low)
    if worst > -margin:
        return "non-inferior"
    return "inferior" if best < -margin else "inconclusive"


def _check_largest(largest: float, one: Values, other: Values) -> None:
    observed = float(np.abs(other - one).max())
    if not observed <= largest * (1 + ROUNDING) < math.inf:
        raise ValueError(f"largest_difference is {largest}, but a difference of {observed:g} was observed")
