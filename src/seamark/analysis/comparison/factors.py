"""The factors of one scenario compared: for its summary, and for `bench compare` with other options. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import Any

from seamark.analysis.comparison.carry_over import carried_over
from seamark.analysis.comparison.compared import Question, compared
from seamark.analysis.comparison.contrasts import Levels, contrasts_of, key_of, primaries, treatments_of
from seamark.analysis.comparison.front import first_score, fronts, within_limit
from seamark.analysis.comparison.items import item_means
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.scored import Item
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.results.comparison import Comparisons, SubsetAverage
from seamark.model.scenario import Comparing
from seamark.model.service import Quality
from seamark.model.trial import Plan, levels_of

MOST_CONTRASTS = 500
"""Contrasts that a summary has; `bench compare` has no limit."""


def compared_factors(
    plan: Plan,
    seen: Mapping[str, Sequence[Observation]],
    comparing: Comparing,
    qualities: Mapping[str, Quality],
    where: str = "",
    declared: bool = True,
) -> Comparisons | None:
    """Return the comparisons of a plan's factors; None where nothing varies. Raises UserError for a metric that no
    trial has, which begins with `where`. Those that nobody `declared` have a verdict only where one can be given."""
    levels = levels_of(plan)
    if not any(levels.values()):
        return None
    contrasts = contrasts_of(plan, comparing.baseline)
    question = Question(
        contrasts=contrasts,
        comparing=comparing,
        primaries=primaries(plan),
        qualities=qualities,
        where=where,
        declared=declared,
    )
    treatments = {trial.treatment for trial in plan.measured}
    compared_ones = {name for contrast in contrasts for name in (contrast.base, contrast.new)}
    unmatched = len(treatments - compared_ones) if compared_ones else 0
    notes: tuple[str, ...] = (
        (f"{counted(unmatched, 'treatment')} without a counterpart at a baseline: not compared",) if unmatched else ()
    )
    comparisons = compared(question, seen)
    family = comparisons.family if any(judged.answers for judged in comparisons.judged) else None
    made, cut = within_limit(fronts(question, seen, family))
    if cut:
        notes += (
            f"{counted(cut, 'front')} of further costs are left out: `compare: costs` chooses which come first",
        )
    means = subset_averages(treatments_of(plan), levels, seen)
    carried = carried_over(plan, seen, comparing, qualities, where)
    return replace(comparisons, scenario=plan.scenario, notes=notes, fronts=made, averages=means, carry_over=carried)


def comparisons_of_summary(plan: Plan, seen: Mapping[str, Sequence[Observation]]) -> Comparisons | None:
    """Return the declared or default comparisons of a scenario; without any where there are too many, or where the
    declared metrics were not measured: then a note says so."""
    comparing = plan.compare or Comparing()
    plain = Comparisons(scenario=plan.scenario, margin=comparing.margin)
    if (count := len(contrasts_of(plan, comparing.baseline))) > MOST_CONTRASTS:
        text = f"{count:,} comparisons of treatments are more than a summary holds: `bench compare` prints them"
        return replace(plain, notes=(text,))
    try:
        return compared_factors(plan, seen, comparing, plan.qualities, declared=plan.compare is not None)
    except UserError as unknown:
        return replace(plain, notes=(f"not compared: {unknown}",))


def subset_averages(
    groups: Mapping[str, Sequence[str]], levels: Mapping[str, Levels], seen: Mapping[str, Sequence[Observation]]
) -> tuple[SubsetAverage, ...]:
    """Return both averages for each combination of the other factors.

    `groups` has the treatments of each workload. A factor is averaged over if no two of its levels have an item in
    common. A treatment without usable answers, or a combination that was not planned, is a missing subset.
    """
    all_averages: list[SubsetAverage] = []
    for workload, treatments in groups.items():
        trials = {name: [trial for trial in seen.get(name, ()) if trial.counts] for name in treatments}
        score = first_score([trial for of_treatment in trials.values() for trial in of_treatment])
        if score is None:
            continue
        means = {name: item_means(of_treatment, score) for name, of_treatment in trials.items()}
        own = {name: levels[name] for name in treatments}
        factors = [name for name in own[treatments[0]] if len({str(at.get(name)) for at in own.values()}) > 1]
        for factor in factors:
            subset_of = {name: str(at.get(factor)) for name, at in own.items()}
            if not _have_other_items(subset_of, means):
                continue
            others = [name for name in factors if name != factor]
            rows: dict[object, tuple[Levels, dict[str, Sequence[float] | None]]] = {}
            for name, at in own.items():
                fixed = {other: at.get(other) for other in others}
                _, row = rows.setdefault(key_of(at, others), (fixed, dict.fromkeys(subset_of.values())))
                row[subset_of[name]] = list(means[name].values())
            all_averages += [
                SubsetAverage(workload=workload, factor=factor, fixed=fixed, quality=score, **averages(scores))
                for fixed, scores in rows.values()
            ]
    return tuple(all_averages)


def _have_other_items(subset_of: Mapping[str, str], means: Mapping[str, Mapping[Item, float]]) -> bool:
    """Return whether the subsets, by treatment, have items, and no two of them the same."""
    items: dict[str, set[Item]] = {}
    for name, subset in subset_of.items():
        items.setdefault(subset, set()).update(means[name])
    apart = not any(subset & other for subset, other in combinations(items.values(), 2))
    return apart and sum(map(bool, items.values())) > 1


def averages(subsets: Mapping[str, Sequence[float] | None]) -> dict[str, Any]:
    """Return both averages over subsets, given the scores of each; None or nothing: it has none.

    `macro` is the mean of the subsets' means, `micro` the mean of all items. An average over the rest would be of
    another benchmark, so there is none where a subset is missing.
    """
    known = {name: list(scores) for name, scores in subsets.items() if scores is not None and len(scores)}
    missing = tuple(name for name in subsets if name not in known)
    whole = known and not missing
    return {
        "macro": fmean(fmean(scores) for scores in known.values()) if whole else None,
        "micro": fmean(score for scores in known.values() for score in scores) if whole else None,
        "subsets": len(subsets),
        "items": sum(map(len, known.values())),
        "missing": missing,
    }
