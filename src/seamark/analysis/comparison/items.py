"""Scores of the same items by two treatments, paired by the items' ids, and records of their comparison. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.scored import Item
from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, ComparedAnswers, Effect
from seamark.model.scenario import Comparing
from seamark.stats.paired_compare import PairedTest, is_not_worse, paired_verdict

RETRY = "`bench retry` measures such trials again."
OTHER_KEY = (
    "the two sides were scored by other references of the same items",
    "`bench collect` scores kept replies by the references of today; where the replies are gone, measure again.",
)


@dataclass(frozen=True, kw_only=True)
class PairedItems:
    """Scores of the same items, in one order; of several trials of a treatment the mean of each item.

    `clusters` is None where each item is one of its own. `left_out` counts the items that only the base, or only the
    other side has; `unusable` the trials of each side that lack answers; `blocks` the pairs of trials.
    """

    ids: tuple[str, ...]
    clusters: tuple[str, ...] | None
    base: tuple[float, ...]
    new: tuple[float, ...]
    left_out: tuple[int, int]
    unusable: tuple[int, int]
    blocks: int


def paired_items(
    base: Sequence[Observation], new: Sequence[Observation], score: str
) -> PairedItems | tuple[str, str] | None:
    """Return the scores of the items that both sides have; a reason and a remedy where they cannot be paired.

    None where a side has no scored answers: then means of trials are all there is. Trials of the same block are
    pairs, where there are any; others are left out. A trial with unanswered items has no quality and takes no part.
    """
    scored = [[trial for trial in side if trial.answers and score in trial.answers.scores] for side in (base, new)]
    if not all(scored):
        return None
    usable = [[trial for trial in side if trial.answers and not trial.answers.unanswered] for side in scored]
    lacking = len(scored[0]) - len(usable[0]), len(scored[1]) - len(usable[1])
    for name, side, every in zip(("the baseline", "the other side"), usable, scored, strict=True):
        if not side:
            which = (
                f"the trial of {name} lacks"
                if len(every) == 1
                else f"all {counted(len(every), 'trial')} of {name} lack"
            )
            return f"invalid for quality: {which} answers to some items", RETRY
    if why := _other_seeds(usable[0], usable[1]):
        return why
    shared = {trial.block for trial in usable[0]} & {trial.block for trial in usable[1]}
    used = [[trial for trial in side if trial.block in shared] for side in usable] if shared else usable
    one, other = (_means(side, score) for side in used)
    both = [item for item in one if item in other]
    if not both:
        return "the two sides have no item in common", "compare treatments that were given the same items."
    keys = [{trial.answers.key for trial in side if trial.answers and trial.answers.key} for side in used]
    if one.keys() == other.keys() and all(keys) and not keys[0] & keys[1]:
        return OTHER_KEY
    labels = [label for _, label in both]
    return PairedItems(
        ids=tuple(item for item, _ in both),
        clusters=None if None in labels else tuple(str(label) for label in labels),
        base=tuple(one[item] for item in both),
        new=tuple(other[item] for item in both),
        left_out=(len(one) - len(both), len(other) - len(both)),
        unusable=lacking,
        blocks=min(len(used[0]), len(used[1])),
    )


def item_means(side: Sequence[Observation], score: str) -> dict[Item, float]:
    """Return the mean score of each item over the usable trials of a treatment; nothing without any."""
    return item_values([trial for trial in side if trial.answers and score in trial.answers.scores], score)


def item_values(side: Sequence[Observation], column: str) -> dict[Item, float]:
    """Return the mean of any column of answers by item, over the trials of a treatment without unanswered items;
    nothing where some have no such column."""
    return _means([trial for trial in side if trial.answers and not trial.answers.unanswered], column)


def _means(side: Sequence[Observation], score: str) -> dict[Item, float]:
    """Return the mean score of each item that all trials have a value for."""
    read = [items for trial in side if trial.answers and (items := trial.answers.read()) is not None]
    tables = [items.get(score, {}) for items in read]
    if not tables or len(tables) < len(side):
        return {}
    return {item: fmean(table[item] for table in tables) for item in tables[0] if all(item in t for t in tables)}


def _other_seeds(base: Sequence[Observation], new: Sequence[Observation]) -> tuple[str, str] | None:
    """Return why items of other seeds are not the same items; None for equal seeds."""
    one, other = (
        {name: seed for trial in side if trial.answers for name, seed in trial.answers.seeds.items()}
        for side in (base, new)
    )
    for name in one:
        if one[name] != other.get(name):
            return f"items of other seeds: {name} is {one[name]} and {other.get(name)}", "measure both with one seed."
    return None


MORE_ITEMS = "more items narrow the interval; `bench plan` prints what a number of them can show."

MORE_CONTEXTS = "more clusters (contexts) narrow the interval, more items of one do not."


def paired_record(record: Compared, items: PairedItems, test: PairedTest, *, comparing: Comparing) -> Compared:
    """Return a record with the estimates of a comparison of answers, without p and verdict."""
    margin, interval = comparing.quality_margin, test.interval
    low, high = (interval.low, interval.high) if interval is not None else (None, None)
    return replace(
        record,
        unit_of_inference="cluster" if test.clustered else "item",
        method=test.method,
        pairs=test.items,
        shift=Effect(value=test.difference, low=low, high=high),
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
