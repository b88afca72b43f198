"""Comparison of two small groups of measurements: effect size, confidence, verdict. Pure.

A group is its values, or its values by block. Trials of one block share the machine's state at that time, so blocks
in both groups are compared pair by pair (Wilcoxon's signed-rank test). That needs six blocks for p = 0.05. Where it
cannot reach alpha in the family at hand, the groups are compared without blocks (Mann-Whitney): differences between
blocks make that test less powerful, but not wrong, if both groups have the same blocks. The number of blocks decides,
before any value is used.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, erfc, inf, nan, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seamark.stats.ranks import LARGEST_EXACT, Interval, Values, paired_interval, unpaired_interval

Verdict = Literal["better", "worse", "equivalent", "inconclusive"]
Direction = Literal["higher", "lower"]
Method = Literal["signed-rank", "rank-sum"]
Group = Sequence[float] | Mapping[Hashable, float]

ALPHA = 0.05
MARGIN = 0.05
"""Two groups are equivalent if their ratio lies between 1 / (1 + MARGIN) and 1 + MARGIN."""
RESAMPLES = 9999
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
    effects = [end.shift.estimate if end.ratio is None else end.ratio.estimate for end in (one, other)]
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
    known = [interval.estimate for interval in (one, other) if least < interval.estimate < inf]
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
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = highest
    return adjusted


def reachable_p(method: Method, base_n: int, new_n: int) -> float:
    """Return the smallest two-sided p of the exact test for two groups of these sizes."""
    ways = 2**base_n if method == "signed-rank" else comb(base_n + new_n, base_n)
    return min(1.0, 2 / ways)


def rank_sum_p(one: Values, other: Values) -> float:
    """Return the two-sided p of the Wilcoxon-Mann-Whitney test.

    Exact, over all arrangements of the ranks (of mid-ranks with ties), for groups as large as 60 and 60; else by the
    normal approximation with the variance of these ranks, or where most values are equal, which it misses by far,
    over 9,999 random arrangements (seeded).
    """
    ranks, few = _doubled_ranks(np.concatenate([one, other])), min(len(one), len(other))
    seen = int(ranks[: len(one)].sum() if len(one) == few else ranks[len(one) :].sum())
    if few * len(ranks) > 2 * LARGEST_EXACT**2:
        if _most_are_equal(ranks):
            rng = np.random.default_rng(0)
            return _drawn_p(np.array([rng.permutation(ranks)[:few].sum() for _ in range(RESAMPLES)]), seen)
        share = few * (len(ranks) - few) / (len(ranks) - 1)
        return _normal_p(seen, few * float(ranks.mean()), share * float(ranks.var()), step=1.0)
    most = int(np.sort(ranks)[-few:].sum())
    ways = np.zeros((few + 1, most + 1))  # of so many values with such a sum of ranks
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    return _tails_p(ways[-1], seen)


def signed_rank_p(differences: Values) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test of the differences of pairs.

    Exact, over all signs, for up to 60 pairs; else by the normal approximation, or where most differences are equal
    over 9,999 random signs (seeded). Differences of 0 have a rank and count for neither side (Pratt).
    """
    signed = differences != 0
    ranks = _doubled_ranks(np.abs(differences))[signed]
    if not len(ranks):
        return 1.0
    seen = int(ranks[differences[signed] > 0].sum())
    if len(ranks) > LARGEST_EXACT:
        if _most_are_equal(ranks):
            signs = np.random.default_rng(0).integers(0, 2, (RESAMPLES, len(ranks)))
            return _drawn_p(signs @ ranks, seen)
        return _normal_p(seen, float(ranks.sum()) / 2, float((ranks**2).sum()) / 4)
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[:-rank]
    return _tails_p(ways, seen)


def _doubled_ranks(values: Values) -> NDArray[np.int64]:
    """Return twice the rank of each value, whole numbers also where equal values share the middle of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (2 * np.cumsum(counts) - counts + 1)[place]


def _most_are_equal(ranks: NDArray[np.int64]) -> bool:
    return bool(2 * np.unique(ranks, return_counts=True)[1].max() > len(ranks))


def _tails_p(ways: Values, seen: int) -> float:
    """Return twice the smaller tail of a statistic, at most 1; `ways` has how often each of its values occurs."""
    return min(1.0, 2 * float(min(ways[: seen + 1].sum(), ways[seen:].sum()) / ways.sum()))


def _drawn_p(drawn: NDArray[np.int64], seen: int) -> float:
    """Return twice the smaller tail of a statistic among drawn ones and itself, at most 1."""
    tail = min(np.count_nonzero(drawn <= seen), np.count_nonzero(drawn >= seen))
    return min(1.0, 2 * (1 + tail) / (1 + len(drawn)))


def _normal_p(seen: float, mean: float, variance: float, step: float = 0.0) -> float:
    """Return the two-sided p of a statistic by the normal approximation; `step` is its correction for continuity."""
    return min(1.0, erfc(max(0.0, abs(seen - mean) - step) / sqrt(2 * variance))) if variance else 1.0


def _compared(base: Group, new: Group, family: int, alpha: float) -> Comparison:
    one, other = _values(base), _values(new)
    if not len(one) or not len(other):
        raise ValueError("each group needs at least one value")
    paired = isinstance(base, Mapping) and isinstance(new, Mapping)
    blocks = [block for block in base if block in new] if paired else []
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
