"""Two groups of a few positive measurements: how far apart, how sure, and a verdict in words. Pure and seeded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seamark.stats.multiple import holm

Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
Values = NDArray[np.float64]

ALPHA = 0.05
THRESHOLD_RATIO = 0.05
RESAMPLES = 9999
MOST_ARRANGEMENTS = 50_000


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its bootstrap interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`new` against `base`. `shift` is new - base, `ratio` new / base, both Hodges-Lehmann; `p` is two-sided.

    `reachable_p` is the smallest p that groups of these sizes can give at all.
    """

    base_n: int
    new_n: int
    base_median: float
    new_median: float
    shift: Interval
    ratio: Interval | None
    p: float
    p_adjusted: float
    reachable_p: float
    verdict: Verdict


def compare(
    base: Sequence[float],
    new: Sequence[float],
    *,
    better: Literal["higher", "lower"],
    threshold_ratio: float = THRESHOLD_RATIO,
    alpha: float = ALPHA,
    seed: int = 0,
) -> Comparison:
    """Compare two groups as a family of one; ValueError when one is empty."""
    if not len(base) or not len(new):
        raise ValueError("each group needs at least one value")
    one, other = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
    positive = bool((one > 0).all() and (other > 0).all())
    p = rank_test(one, other)
    found = Comparison(
        base_n=len(one),
        new_n=len(other),
        base_median=float(np.median(one)),
        new_median=float(np.median(other)),
        shift=hodges_lehmann(one, other, seed=seed),
        ratio=_exponential(hodges_lehmann(np.log(one), np.log(other), seed=seed)) if positive else None,
        p=p,
        p_adjusted=p,
        reachable_p=2 / comb(len(one) + len(other), len(one)),
        verdict="inconclusive",
    )
    return _judged(found, 1, better, threshold_ratio, alpha)


def compare_family(
    pairs: Mapping[Any, tuple[Sequence[float], Sequence[float]]],
    *,
    better: Literal["higher", "lower"],
    threshold_ratio: float = THRESHOLD_RATIO,
    alpha: float = ALPHA,
    seed: int = 0,
) -> dict[Any, Comparison]:
    """Compare (base, new) pairs that were declared together: Holm's adjustment over all of them."""
    alone = {name: compare(base, new, better=better, seed=seed) for name, (base, new) in pairs.items()}
    adjusted = holm([found.p for found in alone.values()])
    return {
        name: _judged(replace(found, p_adjusted=p), len(alone), better, threshold_ratio, alpha)
        for (name, found), p in zip(alone.items(), adjusted, strict=True)
    }


def rank_test(one: Values, other: Values) -> float:
    """Return the two-sided p of the Wilcoxon-Mann-Whitney test.

    Exact without ties; with ties the same statistic over all arrangements of the mid-ranks, or over 9,999 random
    ones (seeded) where there are more than 50,000.
    """
    from scipy import stats

    if len(np.unique(np.concatenate([one, other]))) == len(one) + len(other):
        method = "exact" if max(len(one), len(other)) <= 100 else "asymptotic"
        return float(stats.mannwhitneyu(one, other, method=method).pvalue)
    ranks = stats.rankdata(np.concatenate([one, other]))
    few = comb(len(ranks), len(one)) <= MOST_ARRANGEMENTS
    result = stats.permutation_test(
        (ranks[: len(one)], ranks[len(one) :]),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True,
        n_resamples=np.inf if few else RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def hodges_lehmann(one: Values, other: Values, *, seed: int = 0, confidence: float = 1 - ALPHA) -> Interval:
    """Return the median of all differences other - one, with a percentile bootstrap interval over both groups."""
    from scipy import stats

    estimate = float(_median_difference(one, other))
    if len(one) < 2 or len(other) < 2:
        return Interval(estimate=estimate, low=float("-inf"), high=float("inf"))
    found = stats.bootstrap(
        (one, other),
        _median_difference,
        n_resamples=RESAMPLES,
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(estimate=estimate, low=float(found.low), high=float(found.high))


def _median_difference(one: Values, other: Values, axis: int = -1) -> Values:
    differences = np.moveaxis(other, axis, -1)[..., None, :] - np.moveaxis(one, axis, -1)[..., :, None]
    return np.asarray(np.median(differences.reshape(*differences.shape[:-2], -1), axis=-1))


def _exponential(log: Interval) -> Interval:
    with np.errstate(over="ignore"):
        low, high = np.exp([log.low, log.high])
    return Interval(estimate=float(np.exp(log.estimate)), low=float(low), high=float(high))


def _judged(
    found: Comparison, family: int, better: Literal["higher", "lower"], threshold_ratio: float, alpha: float
) -> Comparison:
    return replace(found, verdict=_verdict(found, family, better, threshold_ratio, alpha))


def _verdict(
    found: Comparison, family: int, better: Literal["higher", "lower"], threshold_ratio: float, alpha: float
) -> Verdict:
    """Better or worse: significant and by more than the threshold. Equivalent: the whole interval lies within the
    threshold, and the design could have shown a difference. All else is inconclusive."""
    ratio, limit = found.ratio, 1 + threshold_ratio
    if ratio is None or found.reachable_p * family > alpha:
        return "inconclusive"
    if 1 / limit <= ratio.low and ratio.high <= limit:
        return "equivalent"
    if found.p_adjusted >= alpha or 1 / limit < ratio.estimate < limit:
        return "inconclusive"
    return "better" if (ratio.estimate > 1) == (better == "higher") else "worse"
