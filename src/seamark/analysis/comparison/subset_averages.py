"""Macro and micro averages of scores over a factor whose levels have other items, such as the subsets of a benchmark.
Pure."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from seamark.analysis.comparison.contrasts import Levels, key_of
from seamark.analysis.comparison.front import first_score
from seamark.analysis.comparison.items import item_means
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.scored import Item
from seamark.model.results.comparison import SubsetAverage
from seamark.model.service import Value


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
        score = next(
            (first for of_treatment in trials.values() if (first := first_score(of_treatment)) is not None), None
        )
        if score is None:
            continue
        means = {name: item_means(of_treatment, score) for name, of_treatment in trials.items()}
        varying = {
            name: {str(levels[treatment].get(name)) for treatment in treatments} for name in levels[treatments[0]]
        }
        factors = [name for name, values in varying.items() if len(values) > 1]
        for factor in factors:
            if _is_of_subsets(factor, treatments, levels, means):
                others = [name for name in factors if name != factor]
                all_averages += _over(workload, factor, others, treatments, levels, means, score)
    return tuple(all_averages)


def _is_of_subsets(
    factor: str, treatments: Sequence[str], levels: Mapping[str, Levels], means: Mapping[str, Mapping[Item, float]]
) -> bool:
    items: dict[str, set[Item]] = {}
    for name in treatments:
        items.setdefault(str(levels[name].get(factor)), set()).update(means[name])
    apart = not any(subset & other for subset, other in combinations(items.values(), 2))
    return apart and sum(map(bool, items.values())) > 1


def _over(
    workload: str,
    factor: str,
    others: Sequence[str],
    treatments: Sequence[str],
    levels: Mapping[str, Levels],
    means: Mapping[str, Mapping[Item, float]],
    score: str,
) -> list[SubsetAverage]:
    subsets = list(dict.fromkeys(str(levels[name].get(factor)) for name in treatments))
    rows: dict[object, tuple[dict[str, Value], dict[str, Sequence[float] | None]]] = {}
    for name in treatments:
        fixed = {other: levels[name].get(other) for other in others}
        _, row = rows.setdefault(key_of(levels[name], others), (fixed, dict.fromkeys(subsets)))
        row[str(levels[name].get(factor))] = list(means[name].values())
    return [
        SubsetAverage(workload=workload, factor=factor, fixed=fixed, quality=score, **averages(scores))
        for fixed, scores in rows.values()
    ]


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
