"""Comparison of two small groups of measurements: effect size, confidence, verdict. Pure.

A group is its values, or its values by block. Trials of one block share the machine's state at that time, so blocks
in both groups are compared pair by pair (Wilcoxon's signed-rank test). That needs six blocks for p = 0.05. Where it
cannot reach alpha in the family at hand, the groups are compared without blocks (Mann-Whitney): differences between
blocks make that test less powerful, but not wrong, if both groups have the same blocks. The number of blocks decides,
before any value is used.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, inf, nan
from typing import Any, Literal

import numpy as np

from seamark.stats.ranks import Interval, Values, paired_interval, unpaired_interval

Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
Direction = Literal["higher", "lower"]
Method = Literal["signed-rank", "rank-sum"]
Group = Sequence[float] | Mapping[Hashable, float]

ALPHA = 0.05
MARGIN = 0.05
"""Two groups are equivalent if their ratio lies between 1 / (1 + MARGIN) and 1 + MARGIN."""
RESAMPLES = 9999
MOST_ARRANGEMENTS = 50_000
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Margin:
    """Within which two groups are equivalent: `of` their ratio, between 1 / (1 + value) and 1 + value, or their
    difference, from -value to value."""

    value: float = MARGIN
    of: Literal["ratio", "difference"] = "ratio"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`new` against `base`. `shift` is new - base, `ratio` new / base (None unless all values are positive):
    Hodges-Lehmann estimates with the interval of the same test as `p`, which is two-sided, at the level that the
    family needs.

    `pairs` is the number of common blocks. `reachable_p` is the smallest unadjusted p of `method` for groups of these
    sizes. Positive values are tested by their logarithms, as effects of a machine are ratios. `ends` are the two
    ratios (shifts without a ratio) of values that are ranges, which `agree` where both give one verdict.
    """

    method: Method
    base_n: int
    new_n: int
    pairs: int
    base_median: float
    new_median: float
    shift: Interval
    ratio: Interval | None
    p: float
    p_adjusted: float
    reachable_p: float
    verdict: Verdict
    ends: tuple[float, float] | None = None
    agree: bool = True

    @property
    def effect(self) -> float:
        """How much more `new` has: its ratio less 1, the shift where there is no ratio."""
        return self.shift.estimate if self.ratio is None else self.ratio.estimate - 1


def compare(
    base: Group, new: Group, *, better: Direction, margin: float = MARGIN, alpha: float = ALPHA
) -> Comparison:
    """Compare two groups as a family of one; ValueError if one is empty."""
    return compare_family({None: (base, new)}, better=better, margin=Margin(value=margin), alpha=alpha)[None]


def compare_family(
    pairs: Mapping[Any, tuple[Group, Group]],
    *,
    better: Direction | Mapping[Any, Direction],
    margin: Margin | Mapping[Any, Margin] = Margin(),
    alpha: float = ALPHA,
    beside: Sequence[float] = (),
) -> dict[Any, Comparison]:
    """Compare (base, new) pairs that form one family; `beside` are p values of other tests of the same family.

    `better` and `margin` are those of all of them, or of each. With a probability of at most `alpha` a family in
    which nothing differs has any better or worse: p is adjusted by Holm's method. With a probability of at most
    `alpha` a family has any equivalent pair that differs by more than the margin: two one-sided tests by inclusion of
    the interval (Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15, 1987), each at alpha / pairs.
    """
    size = len(pairs) + len(beside)
    margins = {name: margin if isinstance(margin, Margin) else margin[name] for name in pairs}
    unadjusted = {name: _compared(base, new, size, alpha) for name, (base, new) in pairs.items()}
    adjusted = holm([*(comparison.p for comparison in unadjusted.values()), *beside])
    comparisons = {}
    for (name, comparison), p in zip(unadjusted.items(), adjusted[: len(pairs)], strict=True):
        comparison = replace(comparison, p_adjusted=p)
        direction = better if isinstance(better, str) else better[name]
        comparisons[name] = replace(comparison, verdict=_verdict(comparison, size, direction, margins[name], alpha))
    return comparisons


def of_both_ends(one: Comparison, other: Comparison) -> Comparison:
    """Return what comparisons of a pair of groups give together: `one` of the lower ends of the base's ranges and the
    upper ones of the new values', `other` the reverse. A verdict that both give, the larger p, intervals around both.
    """
    agree = one.verdict == other.verdict
    effects = [found.shift.estimate if found.ratio is None else found.ratio.estimate for found in (one, other)]
    return replace(
        one,
        new_median=other.new_median,
        shift=_around(one.shift, other.shift),
        ratio=None if one.ratio is None or other.ratio is None else _around(one.ratio, other.ratio, least=0.0),
        p=max(one.p, other.p),
        p_adjusted=max(one.p_adjusted, other.p_adjusted),
        verdict=one.verdict if agree else "inconclusive",
        ends=(min(effects), max(effects)),
        agree=agree,
    )


def _around(one: Interval, other: Interval, *, least: float = -inf) -> Interval:
    """Return the interval around two, with the estimate in their middle, or the one that is limited: an end without a
    limit makes an estimate infinite, or `least`. NaN where neither is."""
    known = [found.estimate for found in (one, other) if least < found.estimate < inf]
    return replace(
        one,
        estimate=sum(known) / len(known) if known else nan,
        low=min(one.low, other.low),
        high=max(one.high, other.high),
    )


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down method: the family-wise error rate, under any dependence."""
    adjusted = [0.0] * len(ps)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = highest
    return adjusted


def reachable_p(method: Method, base_n: int, new_n: int) -> float:
    """Return the smallest two-sided p of the exact test for two groups of these sizes."""
    ways = 2**base_n if method == "signed-rank" else comb(base_n + new_n, base_n)
    return min(1.0, 2 / ways)


def rank_sum_p(one: Values, other: Values) -> float:
    """Return the two-sided p of the Wilcoxon-Mann-Whitney test.

    Exact without ties; with ties the same statistic over all arrangements of the mid-ranks, or over 9,999 random
    ones (seeded) where there are more than 50,000.
    """
    from scipy import stats

    if len(np.unique(np.concatenate([one, other]))) == len(one) + len(other):
        method = "exact" if max(len(one), len(other)) <= 100 else "asymptotic"
        return float(stats.mannwhitneyu(one, other, method=method).pvalue)
    ranks = stats.rankdata(np.concatenate([one, other]))
    if min(len(one), len(other)) == 1:
        single = ranks[0] if len(one) == 1 else ranks[-1]
        return min(1.0, 2 * float(min(np.mean(ranks <= single), np.mean(ranks >= single))))
    few = comb(len(ranks), len(one)) <= MOST_ARRANGEMENTS
    result = stats.permutation_test(
        (ranks[: len(one)], ranks[len(one) :]),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        vectorized=True,
        n_resamples=np.inf if few else RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def signed_rank_p(differences: Values) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test of the differences of pairs.

    Exact for up to 50 pairs without ties; with ties or differences of 0 (which count for neither side) the same
    statistic over all signs, or over 9,999 random ones (seeded) where there are more than 50,000.
    """
    from scipy import stats

    sizes = np.abs(differences)
    if not sizes.any():
        return 1.0
    if sizes.all() and len(np.unique(sizes)) == len(sizes):
        return float(stats.wilcoxon(differences, method="exact" if len(sizes) <= 50 else "approx").pvalue)
    few = 2 ** len(sizes) <= MOST_ARRANGEMENTS
    method = stats.PermutationMethod(
        n_resamples=MOST_ARRANGEMENTS if few else RESAMPLES, rng=np.random.default_rng(0)
    )
    return float(stats.wilcoxon(differences, zero_method="pratt", method=method).pvalue)


def _compared(base: Group, new: Group, family: int, alpha: float) -> Comparison:
    one, other = _values(base), _values(new)
    if not len(one) or not len(other):
        raise ValueError("each group needs at least one value")
    blocks = _blocks_of_both(base, new)
    method = method_of(len(blocks), family, alpha)
    positive = bool((one > 0).all() and (other > 0).all())
    medians = float(np.median(one)), float(np.median(other))
    if method == "signed-rank":
        assert isinstance(base, Mapping)
        assert isinstance(new, Mapping)
        one, other = (np.array([group[block] for block in blocks], dtype=float) for group in (base, new))
    confidence = _confidence(family, alpha)
    shift = _interval(method, one, other, confidence)
    logs = (np.log(one), np.log(other)) if positive else (one, other)
    ratio = _exponential(_interval(method, logs[0], logs[1], confidence)) if positive else None
    p = signed_rank_p(logs[1] - logs[0]) if method == "signed-rank" else rank_sum_p(logs[0], logs[1])
    return Comparison(
        method=method,
        base_n=len(one),
        new_n=len(other),
        pairs=len(blocks),
        base_median=medians[0],
        new_median=medians[1],
        shift=shift,
        ratio=ratio,
        p=p,
        p_adjusted=p,
        reachable_p=reachable_p(method, len(one), len(other)),
        verdict="inconclusive",
    )


def _confidence(family: int, alpha: float) -> float:
    """Return the confidence of intervals: no test of a family is at less than what two one-sided ones need."""
    return max(1 - alpha, 1 - 2 * alpha / family)


def _values(group: Group) -> Values:
    return np.asarray(list(group.values()) if isinstance(group, Mapping) else group, dtype=float)


def _blocks_of_both(base: Group, new: Group) -> list[Hashable]:
    if not isinstance(base, Mapping) or not isinstance(new, Mapping):
        return []
    return [block for block in base if block in new]


def method_of(pairs: int, family: int, alpha: float) -> Method:
    """Return the paired test if it can reach alpha in the family, else that without blocks. Depends on the numbers of
    trials only, never on values."""
    return "signed-rank" if pairs and family * reachable_p("signed-rank", pairs, pairs) <= alpha else "rank-sum"


def _interval(method: Method, one: Values, other: Values, confidence: float) -> Interval:
    if method == "signed-rank":
        return paired_interval(other - one, confidence)
    return unpaired_interval(one, other, confidence)


def _exponential(log: Interval) -> Interval:
    with np.errstate(over="ignore"):
        estimate, low, high = (float(np.exp(value)) for value in (log.estimate, log.low, log.high))
    return replace(log, estimate=estimate, low=low, high=high)


def _verdict(comparison: Comparison, family: int, better: Direction, margin: Margin, alpha: float) -> Verdict:
    """Return equivalent if the whole interval lies within the margin, else better or worse for a significant
    difference, else inconclusive. A design that can show no difference shows no equivalence either, nor do so few
    values that their interval has less confidence than the family needs.

    Without a ratio a margin of it has no meaning: only values without any difference are equivalent then.
    """
    if margin.of == "difference":
        least, most = -margin.value, margin.value
    else:
        least, most = (0.0, 0.0) if comparison.ratio is None else (1 / (1 + margin.value), 1 + margin.value)
    within = comparison.shift if comparison.ratio is None or margin.of == "difference" else comparison.ratio
    can_show = comparison.reachable_p * family <= alpha
    is_sure = within.confidence >= _confidence(family, alpha) - ROUNDING
    if can_show and is_sure and least <= within.low and within.high <= most:
        return "equivalent"
    if comparison.p_adjusted > alpha or comparison.effect == 0:
        return "inconclusive"
    return "better" if (comparison.effect > 0) == (better == "higher") else "worse"
