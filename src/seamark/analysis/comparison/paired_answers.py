"""Records of comparisons of answers: the test of scores of the same items, its verdict, and what would help. Pure."""

from dataclasses import replace

from seamark.analysis.comparison.items import PairedItems
from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, ComparedAnswers, Effect
from seamark.model.scenario import Comparing
from seamark.stats.paired import Limits
from seamark.stats.paired_compare import PairedTest, is_not_worse, paired_test, paired_verdict

MORE_ITEMS = "more items narrow the interval; `bench plan` prints what a number of them can show."

MORE_CONTEXTS = "more clusters (contexts) narrow the interval, more items of one do not."


def answers_test(items: PairedItems, *, largest: float | None, family: int, alpha: float) -> PairedTest:
    """Return the test of scores of the same items, as one of `family` tests; `largest` as in `paired_test`."""
    return paired_test(
        items.base, items.new, clusters=items.clusters, family=family, alpha=alpha, largest_difference=largest
    )


def paired_record(record: Compared, items: PairedItems, test: PairedTest, *, comparing: Comparing) -> Compared:
    """Return a record with the estimates of a comparison of answers, without p and verdict."""
    margin = comparing.quality_margin
    interval = test.interval
    return replace(
        record,
        unit_of_inference="cluster" if test.clustered else "item",
        method=test.method,
        pairs=test.items,
        shift=_effect(test.difference, interval),
        confidence=None if interval is None else interval.confidence,
        base=replace(record.base, units=test.units),
        new=replace(record.new, units=test.units),
        answers=ComparedAnswers(
            items=test.items,
            units=test.units,
            base_mean=test.base_mean,
            new_mean=test.new_mean,
            higher=test.higher,
            lower=test.lower,
            left_out=items.left_out,
            unusable=items.unusable,
            blocks=items.blocks,
            not_worse=None if margin is None else is_not_worse(test, better=record.better, margin=margin),
            p_error=test.p_error,
        ),
    )


def paired_judged(
    record: Compared, test: PairedTest, p_adjusted: float, family: int, comparing: Comparing, alpha: float
) -> Compared:
    """Return a record of the family with its test; of an inconclusive one with the reason and a remedy."""
    margin = comparing.quality_margin
    verdict = paired_verdict(test, p_adjusted, better=record.better, margin=margin, alpha=alpha)
    record = replace(record, p=test.p, p_adjusted=p_adjusted, verdict=verdict)
    if verdict != "inconclusive":
        return record
    of_family = f" in a family of {counted(family, 'comparison')} (Holm)" if family > 1 else ""
    units = counted(test.units, "cluster" if test.clustered else "item")
    if margin is None:
        return replace(
            record,
            reason=f"no difference is shown by {units}{of_family}, and without a margin none is excluded",
            remedy="`compare: {quality_margin: 0.01}` states which difference does not matter.",
        )
    what = "gain" if record.answers is not None and record.answers.not_worse else "difference"
    return replace(
        record,
        reason=f"a {what} of more than {margin:g} is neither shown nor excluded by {units}{of_family}",
        remedy=MORE_CONTEXTS if test.clustered else MORE_ITEMS,
    )


def _effect(value: float, interval: Limits | None) -> Effect:
    return Effect(
        value=value,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
    )
