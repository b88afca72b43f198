"""The verdict between two results that were not measured in turns: one result a side, so no p. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, stdev

from seamark.model.results.comparison import Between, Compared
from seamark.stats.compare import Margin
from seamark.stats.paired import t_quantile

ASSUMED_SD = 0.05
FEWEST_RESULTS = 5
"""Results of a history whose spread is used instead of an assumption."""
IN_TURNS = "measure both in turns, as levels of one factor in one scenario: then smaller differences have a p."
UNANSWERED = "the notes `percentile_lower_bound` and `percentile_withheld` of the trials say why, and what helps."
REPEAT = "`repetitions: 4` or more give an interval within each result."


@dataclass(frozen=True, kw_only=True)
class TwoResults:
    """`between` returns the spread between results of a treatment by the path of a metric, not yet with its limit.
    Results that differ by machine cannot be measured in turns."""

    between: Callable[[Compared, str], Between]
    can_alternate: bool = True


def spread_of(values: Sequence[float], assumed_sd: float = ASSUMED_SD) -> Between:
    """Return the standard deviation of the logarithms of a figure of earlier results; with fewer than five, or a
    value that has no logarithm, the assumed one."""
    if len(values) < FEWEST_RESULTS or min(values) <= 0:
        return Between(sd=assumed_sd)
    return Between(sd=stdev(map(math.log, values)), results=len(values))


def widening(spread: Between) -> float:
    """Return by how much the logarithms of two results differ in 5 % of cases though nothing changed.

    t(n - 1, 97.5 %) x sqrt(2) x SD, a prediction interval of normal values; of an assumed SD the normal quantile."""
    quantile = NormalDist().inv_cdf(0.975) if spread.results is None else t_quantile(spread.results, 0.975)
    return quantile * math.sqrt(2) * spread.sd


def judged_apart(
    record: Compared, margin: Margin, apart: TwoResults, path: str, ends: tuple[float, float] | None
) -> Compared:
    """Return the record of a family with its verdict: better or worse if the whole interval within the results lies
    beyond the margin and the widening, equivalent if it lies within the margin by the widening.

    Without an interval, one trial a side, the estimate, of ranges both its `ends`, is judged by a spread of the
    history, as that has the noise of trials in it. A margin that is a difference is widened in proportion to the
    baseline.
    """
    of_ratio, spread = margin.of == "ratio", apart.between(record, path)
    effect, wide = (record.ratio if of_ratio else record.shift), widening(spread)
    if effect is None:
        same = record.shift is not None and (record.shift.value, record.shift.low, record.shift.high) == (0, 0, 0)
        why = None if same else f"{record.metric} has values of 0 or less, whose spread between results has no ratio"
        return replace(record, verdict="equivalent" if same else "inconclusive", reason=why)
    own, more = math.log1p(margin.value), wide
    if not of_ratio:
        own, more = margin.value, abs(record.base.median or 0.0) * math.expm1(wide)
    limit = math.exp(own + more) if of_ratio else own + more
    record = replace(record, between=replace(spread, limit=limit))
    low, high = effect.low, effect.high
    if low is None and high is None:
        if spread.results is None:
            return replace(record, reason="one trial a side has no interval", remedy=REPEAT)
        low, high = ends or (effect.value, effect.value)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if of_ratio:
        low, high = math.log(low) if low > 0 else -math.inf, math.log(high)
    if more - own <= low and high <= own - more:
        return replace(record, verdict="equivalent")
    if low > own + more or high < -own - more:
        better = (low > 0) == (record.better == "higher")
        return replace(record, verdict="better" if better else "worse")
    if math.isinf(low) or math.isinf(high):
        return replace(
            record, reason="requests without an answer leave the effect without a limit", remedy=UNANSWERED
        )
    reason = "two results that were not measured in turns may differ by so much without a cause"
    return replace(record, reason=reason, remedy=IN_TURNS if apart.can_alternate else None)
