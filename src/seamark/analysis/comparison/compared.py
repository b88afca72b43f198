"""The comparisons themselves: records with verdicts, reasons and remedies from contrasts and observations. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isfinite
from statistics import median

from seamark.analysis.comparison.contrasts import Contrast, factors_of, in_family
from seamark.analysis.comparison.items import PairedItems, paired_items, paired_judged, paired_record
from seamark.analysis.comparison.metric_names import ComparedMetric, default_metrics, metric_of
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.quality import quality_note, unequal_quality
from seamark.analysis.comparison.two_results import UNANSWERED, TwoResults, judged_apart
from seamark.analysis.comparison.units import Units, lower, units_of, upper
from seamark.model.objectives import SEARCH_FOUND
from seamark.model.origin import origin_of
from seamark.model.plurals import counted
from seamark.model.results.comparison import (
    EQUAL_RATIO,
    EXACT,
    Compared,
    ComparedSide,
    ComparedVerdict,
    Comparisons,
    Effect,
)
from seamark.model.scenario import Comparing, why_no_p
from seamark.model.service import Quality
from seamark.stats.compare import (
    ALPHA,
    Comparison,
    Margin,
    Method,
    compare_family,
    holm,
    of_both_ends,
    reachable_p,
)
from seamark.stats.decision import repetitions_for
from seamark.stats.paired_compare import paired_test
from seamark.stats.ranks import Interval

UNITS_DIFFER = "units differ"
RESTARTS = "`restarts: each` starts the server anew in each block, so that each level has as many starts as blocks."
NOT_IN_TURNS = (
    "no p (confounded_with_time): the two were not measured in turns, block by block. A change of the machine between"
    " them would look the same as an effect"
)
IN_TURNS = (
    "Measure both anew in one run, without an order that unrolls this factor: a copy of the scenario under another"
    " name has no finished trials."
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is compared. `primaries` has the primary metric of each workload, for treatments without declared metrics.
    `apart` is about two results, whose blocks have nothing in common. `qualities` are those of the recipes. `where`
    begins messages about metrics. Comparisons that nobody `declared` get no verdict where it can only be
    inconclusive."""

    contrasts: tuple[Contrast, ...]
    comparing: Comparing = field(default_factory=Comparing)
    primaries: Mapping[str, str] = field(default_factory=dict)
    apart: TwoResults | None = None
    qualities: Mapping[str, Quality] = field(default_factory=dict)
    where: str = ""
    alpha: float = ALPHA
    declared: bool = True

    @cached_property
    def factors(self) -> frozenset[str]:
        """The factors of all contrasts."""
        return factors_of(self.contrasts)


@dataclass(frozen=True, kw_only=True)
class _Test:
    """A comparison before its family is known: of trials by `units`, of answers by `items`. Neither: nothing can be
    compared. `largest` is the largest difference that two scores can have, None: any."""

    record: Compared
    path: str = ""
    units: Units | None = None
    items: PairedItems | None = None
    largest: float | None = None
    margin: Margin = field(default_factory=Margin)


def compared(question: Question, seen: Mapping[str, Sequence[Observation]]) -> Comparisons:
    """Return every contrast by every metric. `seen` has the trials of each treatment of the contrasts.

    Holm's method is applied to all tests of the family that have two values on each side, or one value on each side
    of one start; a comparison between single starts has no p and is not counted. Scores of the same items are
    compared item by item, and are of the same family. Raises UserError for a metric that no trial has.
    """
    tests = [test for contrast in question.contrasts for test in _tests(question, contrast, seen)]
    family = {
        index: test
        for index, test in enumerate(tests)
        if test.units is not None and test.record.in_family and test.record.reason is None
        if test.units.kind != "result" and not test.record.exact
    }
    scored = {index: (test, test.items) for index, test in enumerate(tests) if test.items is not None}
    size = len(family) + sum(test.record.in_family for test, _ in scored.values())
    alpha = question.alpha
    paired = {
        index: paired_test(
            items.base,
            items.new,
            clusters=items.clusters,
            family=size if test.record.in_family else 1,
            alpha=alpha,
            largest_difference=test.largest,
        )
        for index, (test, items) in scored.items()
    }
    judged = [index for index in paired if tests[index].record.in_family]
    ps = [paired[index].p for index in judged]
    results = _by_both_ends(family, alpha, ps)
    adjusted = dict(zip(judged, holm([*ps, *(result.p for result in results.values())]), strict=False))
    records = []
    for index, test in enumerate(tests):
        if test.items is not None:
            of_items = paired_record(test.record, test.items, paired[index], comparing=question.comparing)
            if index in adjusted:
                of_items = paired_judged(of_items, paired[index], adjusted[index], size, question.comparing, alpha)
            records.append(of_items)
        elif index in results:
            records.append(_judged(test.record, results[index], size, test.margin, alpha))
        elif test.record.exact:
            records.append(_exact(test.record, test.margin))
        elif test.units is not None:
            alone = _by_both_ends({index: test}, alpha)[index]
            record = _estimated(test.record, alone)
            if question.apart is not None and test.units.kind == "result":
                record = replace(record, base=replace(record.base, units=1), new=replace(record.new, units=1))
                if record.in_family and record.reason is None:
                    record = judged_apart(record, test.margin, question.apart, test.path, alone.ends)
            records.append(record)
        else:
            records.append(test.record)
    if not question.declared:
        records = [_undeclared(record, size, alpha) for record in records]
        size = size if any(record.p is not None for record in records) else 0
    return Comparisons(
        declared=question.declared,
        alpha=alpha,
        margin=question.comparing.margin,
        quality_margin=question.comparing.quality_margin,
        family=size,
        comparisons=tuple(records),
    )


def _by_both_ends(tests: Mapping[int, _Test], alpha: float, beside: Sequence[float] = ()) -> dict[int, Comparison]:
    """Compare a family; one with ranges with its baselines at the lower and the other sides at the upper ends, and
    the reverse."""
    pairs = {index: test.units for index, test in tests.items() if test.units is not None}
    better = {index: test.record.better for index, test in tests.items()}
    margin = {index: test.margin for index, test in tests.items()}
    family = partial(compare_family, better=better, margin=margin, alpha=alpha, beside=beside)
    first: dict[int, Comparison] = family(
        {index: (lower(units.base), upper(units.new)) for index, units in pairs.items()}
    )
    ranges = [ends for units in pairs.values() for ends in (*units.base.values(), *units.new.values())]
    if all(ends.low == ends.most for ends in ranges):
        return first
    second = family({index: (upper(units.base), lower(units.new)) for index, units in pairs.items()})
    return {index: of_both_ends(first[index], second[index]) for index in pairs}


def _tests(question: Question, contrast: Contrast, seen: Mapping[str, Sequence[Observation]]) -> list[_Test]:
    base, new = seen.get(contrast.base, ()), seen.get(contrast.new, ())
    comparing = question.comparing
    both = [trial for trial in (*base, *new) if trial.counts]
    factors = question.factors
    declared = [name for name in comparing.family if name not in factors]
    primary = question.primaries.get(contrast.workload, "throughput")
    shown = comparing.metrics or default_metrics(primary, both)
    shown = tuple(dict.fromkeys((*shown, *declared)))
    family = tuple(declared) or comparing.metrics or shown[:1]
    tests = []
    for name in shown:
        metric = metric_of(name, [*base, *new], question.qualities, question.where)
        member = name in family and in_family(contrast, comparing, factors)
        tests.append(_test(question, contrast, metric, base, new, member))
    return tests


def _test(
    question: Question,
    contrast: Contrast,
    metric: ComparedMetric,
    base: Sequence[Observation],
    new: Sequence[Observation],
    member: bool,
) -> _Test:
    one, other = ([trial for trial in side if trial.counts] for side in (base, new))
    units = {trial.unit for trial in (*one, *other)}
    unit = metric.unit if metric.path != "throughput.value" else next(iter(units)) if len(units) == 1 else ""
    record = Compared(
        workload=contrast.workload,
        factor=contrast.factor,
        fixed=contrast.fixed,
        metric=metric.name,
        unit=unit,
        better=metric.better,
        base=replace(_side(base, metric.path), level=contrast.base_level, own=contrast.base_own or None),
        new=replace(_side(new, metric.path), level=contrast.new_level, own=contrast.new_own or None),
        in_family=member,
        verdict="inconclusive" if member else None,
    )
    items = paired_items(one, other, metric.name) if metric.group == "quality" else None
    if isinstance(items, PairedItems):
        return _Test(record=record, items=items, largest=largest_difference(question.qualities.get(metric.name)))
    if why := items or _why_not(one, other, metric, units):
        return _Test(record=replace(record, reason=why[0], remedy=why[1]))
    record = replace(record, note=quality_note(one, other, metric) if member else None)
    unequal = unequal_quality(one, other, metric, question.comparing.quality_margin)
    values = units_of(one, other, metric.path, paired=question.apart is None)
    record = replace(
        record,
        unit_of_inference=values.kind,
        base=_of_units(record.base, values, 0),
        new=_of_units(record.new, values, 1),
    )
    if not values.base:
        return _Test(record=replace(record, reason=NOT_IN_TURNS, remedy=IN_TURNS))
    if all(trial.exact for trial in (*one, *other)):
        record = replace(record, method=EXACT)
    if unequal is not None:
        record = replace(record, reason=unequal[0], remedy=unequal[1])
    elif values.are_apart:
        record = replace(record, reason=NOT_IN_TURNS, remedy=IN_TURNS)
    elif not values.are_enough:
        # the plan's sentence on starts, without the smallest effect, which a result has not
        reason = why_no_p((str(contrast.factor),)).replace("no p and no smallest effect", "no p")
        record = replace(record, reason=reason, remedy=RESTARTS)
    return _Test(record=record, path=metric.path, units=values, margin=_margin(metric, question.comparing))


def _of_units(side: ComparedSide, units: Units, place: int) -> ComparedSide:
    return replace(
        side,
        units=len((units.base, units.new)[place]),
        starts=units.starts[place],
        unmatched=units.unmatched[place],
        apart=units.apart,
    )


def _margin(metric: ComparedMetric, comparing: Comparing) -> Margin:
    """Return within which two treatments are equivalent. Of a quality that is the declared `quality_margin`, in its
    own unit, else the share within which speeds are compared as those of equal quality."""
    if metric.group != "quality":
        return Margin(value=comparing.margin)
    if comparing.quality_margin is not None:
        return Margin(value=comparing.quality_margin, of="difference")
    return Margin(value=EQUAL_RATIO)


def largest_difference(quality: Quality | None) -> float | None:
    """Return the largest difference that two scores can have; None without a range."""
    low, high = (None, None) if quality is None else quality.range
    return None if low is None or high is None else high - low


def _side(trials: Sequence[Observation], path: str) -> ComparedSide:
    used = [trial for trial in trials if trial.counts]
    values = [figure.low for trial in used if (figure := trial.figure(path)) is not None]
    return ComparedSide(
        treatment=trials[0].treatment if trials else None,
        trials=len(used),
        excluded=len(trials) - len(used),
        suspect=sum(trial.verdict == "SUSPECT" for trial in used),
        suspect_reasons=Counter(code for trial in used if trial.verdict == "SUSPECT" for code in trial.suspect),
        starts=len({trial.start for trial in used}),
        median=median(values) if values else None,
        origin=origin_of(trials),
    )


def _why_not(
    base: Sequence[Observation], new: Sequence[Observation], metric: ComparedMetric, units: set[str]
) -> tuple[str, str] | None:
    """Return why a metric of two treatments is not compared, and a remedy; None if it is."""
    for name, side in (("the baseline", base), ("the other side", new)):
        if not side:
            return f"{name} has no trial with valid figures", "`bench submit` measures it, `bench retry` once more."
    if len(units) > 1 and metric.group in ("throughput", "energy"):
        words = " and ".join(sorted(unit.replace("_per_", "/") or "no unit" for unit in units))
        return f"{UNITS_DIFFER}: {words}", (
            "compare a metric in one unit: `--metric requests_per_s`, or `metrics: [requests_per_s]` in `compare`."
        )
    both = [*base, *new]
    lacking = sum(trial.figure(metric.path) is None for trial in both)
    if lacking == len(both) and metric.path == SEARCH_FOUND:
        return (
            "no trial searched for its largest load and found one",
            "a workload with `search` does; of others compare throughput or latency_ms.p99.",
        )
    if lacking:
        return (
            f"{metric.name} is withheld or not measured in {lacking} of {counted(len(both), 'trial')}",
            "a longer `duration_s` gives more samples; a p99 needs 1,000 in the measured window.",
        )
    return None


def _judged(record: Compared, found: Comparison, family: int, margin: Margin, alpha: float) -> Compared:
    """Return a record of the family with its test; of an inconclusive one with the reason and a remedy."""
    record = replace(_estimated(record, found), p=found.p, p_adjusted=found.p_adjusted, verdict=found.verdict)
    if found.verdict != "inconclusive":
        return record
    if not found.agree and found.ends is not None:
        return replace(
            record,
            reason="the verdict depends on requests without an answer, or on few samples: the effect is"
            f" {found.ends[0]:.3g} or {found.ends[1]:.3g}",
            remedy=UNANSWERED,
        )
    needed = repetitions_for(alpha, family)
    of_family = f" in a family of {counted(family, 'comparison')} (Holm)" if family > 1 else ""
    words = f"{margin.value:g}" if margin.of == "difference" else f"{100 * margin.value:g} %"
    if found.reachable_p * family > alpha:
        number = min(found.base_n, found.new_n)
        noun = "start" if record.unit_of_inference == "start" else "repetition"
        of = f" in a family of {counted(family, 'comparison')}" if family > 1 else ""
        return replace(
            record,
            reason=f"{counted(number, noun)} {'is' if number == 1 else 'are'} too few to compare levels{of}",
            remedy=f"Use `repetitions: {needed}`{', or ask fewer questions' if family > 1 else ''}.",
        )
    return replace(
        record,
        reason=f"a difference of more than {words} is neither shown nor excluded{of_family}",
        remedy="more repetitions narrow the interval; `bench plan` prints what a number of them can show.",
    )


def _exact(record: Compared, margin: Margin) -> Compared:
    """Return a record of two exact values: within the margin they are equivalent, else one is better."""
    base, new = record.base.median, record.new.median
    assert base is not None
    assert new is not None
    ratio = new / base if base > 0 and new > 0 else None
    if margin.of == "difference" or ratio is None:
        within = abs(new - base) <= (margin.value if margin.of == "difference" else 0.0)
    else:
        within = 1 / (1 + margin.value) <= ratio <= 1 + margin.value
    verdict: ComparedVerdict = "better" if (new > base) == (record.better == "higher") else "worse"
    if record.reason is not None:
        verdict = "inconclusive"
    elif within:
        verdict = "equivalent"
    return replace(
        record,
        ratio=None if ratio is None else Effect(value=ratio),
        shift=Effect(value=new - base),
        verdict=verdict if record.in_family else None,
    )


def _undeclared(record: Compared, family: int, alpha: float) -> Compared:
    """Return a record without its verdict where none could be given, whatever was measured."""
    method: Method = "signed-rank" if record.method == "signed-rank" else "rank-sum"
    reachable = record.p is not None and reachable_p(method, record.base.units, record.new.units) * family <= alpha
    if record.verdict != "inconclusive" or record.answers is not None or reachable:
        return record
    return replace(record, in_family=False, verdict=None, p=None, p_adjusted=None)


def _estimated(record: Compared, found: Comparison) -> Compared:
    """Return a record with its estimates; the medians are those of the values that were tested."""
    return replace(
        record,
        method=found.method,
        pairs=found.pairs,
        ratio=_effect(found.ratio),
        shift=_effect(found.shift),
        confidence=(found.ratio or found.shift).confidence,
        base=replace(record.base, median=found.base_median, units=found.base_n),
        new=replace(record.new, median=found.new_median, units=found.new_n),
    )


def _effect(interval: Interval | None) -> Effect | None:
    """Return an estimate with its limits, of which one value a side has none; None where nothing limits it."""
    if interval is None or not isfinite(interval.estimate):
        return None
    low, high = (end if interval.confidence > 0 and isfinite(end) else None for end in (interval.low, interval.high))
    return Effect(value=interval.estimate, low=low, high=high)
