"""Right and wrong answers to the same items by two methods: the interval of their difference, and what a number of
items can show. Pure.

A pair is discordant if one method is right and the other wrong. Items are independent; for clustered ones see
paired.py.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
POWER = 0.8
PRECISION = 1e-4
"""Detectable differences are exact to this."""
MOST_PAIRS = 1_000_000


def score_limits(pairs: int, only_base: int, only_new: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the score interval of the difference of two paired proportions, new - base.

    It holds all differences that the score test does not reject, with the variance under that difference (Tango,
    Statistics in Medicine 17, 1998). Unlike that of Wald it has a width without discordant pairs, and keeps its level
    with few of them. ValueError for counts that are no part of `pairs`, and for a `confidence` outside (0, 1).
    """
    if pairs < 1 or min(only_base, only_new) < 0 or only_base + only_new > pairs:
        raise ValueError(f"{only_base} and {only_new} discordant pairs are no part of {pairs}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie between 0 and 1")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    estimate = (only_new - only_base) / pairs
    low = -1.0 if only_base == pairs else _root(pairs, only_base, only_new, z, -1.0, estimate)
    high = 1.0 if only_new == pairs else _root(pairs, only_base, only_new, -z, estimate, 1.0)
    return low, high


def _root(pairs: int, only_base: int, only_new: int, z: float, low: float, high: float) -> float:
    """Return the difference at which the score statistic, which falls as the difference grows, is `z`."""
    for _ in range(60):
        middle = (low + high) / 2
        if _statistic(pairs, only_base, only_new, middle) > z:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _statistic(pairs: int, only_base: int, only_new: int, difference: float) -> float:
    """Return Tango's statistic: the deviation from `difference` over its error under that difference.

    `rare` is the restricted maximum likelihood estimate of the probability that only base is right.
    """
    a = 2 * pairs
    b = (2 * pairs - only_new + only_base) * difference - only_new - only_base
    c = -only_base * difference * (1 - difference)
    rare = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = pairs * (2 * rare + difference * (1 - difference))
    deviation = only_new - only_base - pairs * difference
    if variance <= 0:
        return math.copysign(math.inf, deviation) if deviation else 0.0
    return deviation / math.sqrt(variance)


def mcnemar_power(pairs: int, difference: float, discordant: float, alpha: float = ALPHA) -> float:
    """Return the probability that the exact McNemar test rejects at `alpha`.

    `discordant` is the share of items that exactly one method has right, `difference` that of the better method less
    that of the other. The number of discordant pairs is binomial, and so is the better method's part of them: their
    distributions are summed, so the power is exact, without an approximation by normal distributions (Connor,
    Biometrics 43, 1987, gives the approximate form). ValueError unless 0 <= `difference` <= `discordant` <= 1.
    """
    if not 0 <= difference <= discordant <= 1:
        raise ValueError(f"a difference of {difference} needs discordant items of at least that share, up to 1")
    if not 1 <= pairs <= MOST_PAIRS:
        raise ValueError(f"pairs is {pairs}; it must be 1 to {MOST_PAIRS:,}")
    if discordant == 0:
        return 0.0
    counts, weights = _binomial(pairs, discordant)
    return float(weights @ _rejected(counts, (1 + difference / discordant) / 2, alpha))


def detectable_difference(
    pairs: int, discordant: float, *, alpha: float = ALPHA, power: float = POWER
) -> float | None:
    """Return the smallest difference that the exact McNemar test finds with that power, None if none is found.

    A difference is at most the share of `discordant` items. See `mcnemar_power`.
    """
    if mcnemar_power(pairs, discordant, discordant, alpha) < power:
        return None
    low, high = 0.0, discordant
    while high - low > PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if mcnemar_power(pairs, middle, discordant, alpha) >= power else (middle, high)
    return high


def _binomial(count: int, probability: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers of successes that have a weight, and their probabilities; tails below 1e-15 are left out."""
    from scipy.special import gammaln, xlog1py, xlogy

    reach = 9 * math.sqrt(count * probability * (1 - probability)) + 20
    low, high = max(0, int(count * probability - reach)), min(count, int(count * probability + reach))
    k = np.arange(low, high + 1, dtype=float)
    logs = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    return k, np.exp(logs + xlogy(k, probability) + xlog1py(count - k, -probability))


def _rejected(discordant: NDArray[np.float64], share: float, alpha: float) -> NDArray[np.float64]:
    """Return the probability of rejection for each number of discordant pairs, of which `share` favour one method."""
    from scipy.special import bdtr, bdtrik

    counts = discordant.astype(np.int64)
    edge = np.floor(np.nan_to_num(bdtrik(alpha / 2, discordant, 0.5), nan=-1.0))
    edge += bdtr(edge + 1, counts, 0.5) <= alpha / 2
    edge -= (edge >= 0) & (bdtr(np.maximum(edge, 0), counts, 0.5) > alpha / 2)
    at = np.maximum(edge, 0)
    both = bdtr(at, counts, share) + bdtr(at, counts, 1 - share)
    return np.where(edge >= 0, np.minimum(both, 1.0), 0.0)
