"""Fronts of quality against a cost: levels of a factor on the same items, which no other level dominates, and whether
they cost less than their baseline. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.comparison.compared import Question, largest_difference
from seamark.analysis.comparison.contrasts import Contrast, in_family
from seamark.analysis.comparison.items import item_means, item_values
from seamark.analysis.comparison.metric_names import ComparedMetric, metric_of
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.scored import Item
from seamark.analysis.comparison.units import Units, lower, units_of
from seamark.model.origin import origin_of
from seamark.model.results.comparison import Front, FrontPoint
from seamark.model.service import Quality, Value
from seamark.stats.compare import ALPHA, compare_family, holm
from seamark.stats.paired import Labels, cluster_numbers, mean_difference, mean_limits, rows_of
from seamark.stats.paired_compare import is_not_worse, paired_test
from seamark.stats.ranks import Interval, Values

COSTS = (
    "ttft_ms.p50",
    "tpot_ms.p50",
    "quality.kv_bytes_read",
    "resource.gpu_mem_mb",
    "resource.server_rss_mb",
    "energy.per_request_j",
)
"""Costs that are looked for where none are named; a load without streams has the response time in place of them."""
UNSTREAMED = "latency_ms.p50"
MOST_FRONTS = 60
"""Fronts that a document has, beyond those of the first cost, which are all there: they decide what to take."""
NOT_ITS_SPEED = "its times are not those of the method (speed_not_of_method)"

Seen = Mapping[str, Sequence[Observation]]


@dataclass(frozen=True, kw_only=True)
class _Level:
    """One treatment with its scores by item, and its trials that count: with answers to all items."""

    treatment: str
    level: Value
    own: Mapping[str, Value]
    trials: Sequence[Observation]
    scores: Mapping[Item, float]


def fronts(question: Question, seen: Seen, family: int | None = None) -> tuple[Front, ...]:
    """Return the front of each factor and combination of the others, by the first score and each cost. Where the
    declared family names factors, it is about them alone.

    That a level is not worse is decided by the interval of the comparison in its `family`, None: of the levels alone.
    Levels without scored answers, or without an item that the others have, are in none. Raises UserError for an
    unknown cost.
    """
    groups: dict[tuple[str, str | None, str], list[Contrast]] = {}
    for contrast in question.contrasts:
        if in_family(contrast, question.comparing, question.factors):
            groups.setdefault((contrast.workload, contrast.factor, contrast.base), []).append(contrast)
    collected: list[Front] = []
    for group in groups.values():
        levels = _levels(group, seen)
        if len(levels) < 2:
            continue
        trials = [trial for level in levels for trial in level.trials]
        for name in question.comparing.costs or _default_costs(trials):
            cost = metric_of(name, trials, question.qualities, question.where)
            made = _front(question, group[0], levels, cost, family or len(levels) - 1)
            collected += [made] if made is not None else []
    return tuple(collected)


def within_limit(found: Sequence[Front]) -> tuple[tuple[Front, ...], int]:
    """Return the fronts that a document has, in their order, and how many are left out.

    Those of the first cost of each factor and combination come before those of the second, and so on.
    """
    seen: Counter[str] = Counter()
    ranks = []
    for candidate in found:
        key = repr((candidate.workload, candidate.factor, sorted(candidate.fixed.items())))
        ranks.append(seen[key])
        seen[key] += 1
    by_rank = sorted(range(len(found)), key=ranks.__getitem__)
    kept = sorted(by_rank[: max(MOST_FRONTS, len(seen))])
    return tuple(found[index] for index in kept), len(found) - len(kept)


def first_score(trials: Sequence[Observation]) -> str | None:
    """Return the first score of answers in the judge's order; None without any."""
    return next((trial.answers.scores[0] for trial in trials if trial.answers and trial.answers.scores), None)


def _levels(contrasts: Sequence[Contrast], seen: Seen) -> list[_Level]:
    """Return the baseline and the other levels that have items in common with it."""
    first = contrasts[0]
    named = [(first.base, first.base_level, first.base_own)]
    named += [(contrast.new, contrast.new_level, contrast.new_own) for contrast in contrasts]
    levels: list[_Level] = []
    for treatment, level, own in named:
        trials = [
            trial
            for trial in seen.get(treatment, ())
            if trial.counts and not (trial.answers and trial.answers.unanswered)
        ]
        score = first_score(trials)
        scores = item_means(trials, score) if score is not None else {}
        if scores and (not levels or scores.keys() & levels[0].scores.keys()):
            levels.append(_Level(treatment=treatment, level=level, own=own, trials=trials, scores=scores))
        elif not levels:
            return []
    return levels


def _default_costs(trials: Sequence[Observation]) -> tuple[str, ...]:
    known = {path for trial in trials for path in trial.figures}
    costs = tuple(path for path in COSTS if path in known)
    return costs if "ttft_ms.p50" in costs else (UNSTREAMED, *costs)


def _front(
    question: Question, contrast: Contrast, levels: Sequence[_Level], cost: ComparedMetric, family: int
) -> Front | None:
    score = first_score(levels[0].trials)
    assert score is not None
    quality, margin = question.qualities.get(score, Quality()), question.comparing.quality_margin
    base = levels[0]
    common = [item for item in base.scores if all(item in level.scores for level in levels)]
    known = {level.treatment: _costs(level, cost) for level in levels}
    spent = _in_blocks({name: costs for name, costs in known.items() if not isinstance(costs, str)})
    placed = [level for level in levels if level.treatment in spent]
    if not common or not placed:
        return None
    labels = [label for _, label in common]
    clusters = None if None in labels else labels
    sign, toll = (1 if quality.better == "higher" else -1), (1 if cost.better == "lower" else -1)
    places = front(
        [[sign * level.scores[item] for item in common] for level in placed],
        [[toll * value for value in spent[level.treatment]] for level in placed],
        clusters=clusters,
    )
    others = {level.treatment: level.trials for level in placed if level is not base}
    saved = savings(base.trials, others, cost) if base in placed else {}
    first = median(spent[base.treatment]) if base in placed else None
    points = []
    for level in levels:
        at = placed.index(level) if level in placed else None
        why, values, shown = known[level.treatment], spent.get(level.treatment), saved.get(level.treatment)
        ratio = median(values) / first if values and first and level is not base else None
        limits = _limits([level.scores[item] for item in common], clusters, quality)
        kept = None
        if margin is not None and level is not base:
            test = paired_test(
                [base.scores[item] for item in common],
                [level.scores[item] for item in common],
                clusters=clusters,
                family=family,
                largest_difference=largest_difference(quality),
            )
            kept = is_not_worse(test, better=quality.better, margin=margin)
        points.append(
            FrontPoint(
                treatment=level.treatment,
                level=level.level,
                own=level.own or None,
                quality=fmean(level.scores[item] for item in common),
                quality_low=limits.low if limits else None,
                quality_high=limits.high if limits else None,
                cost=median(values) if values else None,
                trials=len(level.trials),
                on_front=at is not None and bool(places.on_front[at]),
                probability=None if at is None else float(places.probability[at]),
                not_worse=kept,
                ratio=ratio,
                cheaper=None if isinstance(shown, str) else shown,
                untested=shown if isinstance(shown, str) else None,
                origin=origin_of(level.trials),
                reason=why if isinstance(why, str) else None,
            )
        )
    return Front(
        workload=contrast.workload,
        factor=str(contrast.factor),
        fixed=contrast.fixed,
        base=contrast.base_level,
        quality=score,
        better=quality.better,
        cost=cost.name,
        cost_unit=cost.unit,
        cost_better=cost.better,
        margin=margin,
        items=len(common),
        clusters=places.clusters,
        blocks=places.blocks,
        resamples=RESAMPLES,
        seed=SEED,
        points=tuple(points),
    )


def _limits(scores: Sequence[float], clusters: Sequence[str | None] | None, quality: Quality) -> Interval | None:
    """Return the interval of a mean score, that of other items like these; None with one cluster of them alone."""
    labels = None if clusters is None else [str(label) for label in clusters]
    mean = mean_difference(np.zeros(len(scores)), np.array(scores), clusters=labels)
    if mean.standard_error is None or quality.range != (0, 1):
        return mean.interval
    return mean_limits(mean.difference, mean.standard_error, mean.units)


def _costs(level: _Level, cost: ComparedMetric) -> dict[int, float] | str:
    """Return the cost of each block, or why the level has no place on a front."""
    if not all(trial.speed_of_method for trial in level.trials):
        return NOT_ITS_SPEED
    figures = {trial.block: trial.figure(cost.path) for trial in level.trials}
    known = {block: figure for block, figure in figures.items() if figure is not None}
    if len(known) < len(figures):
        return f"{cost.name} is withheld or not measured in {len(figures) - len(known)} of its trials"
    if wide := [figure for figure in known.values() if not figure.is_narrow]:
        return f"{cost.name} is known as a range alone in {len(wide)} of its trials, such as {wide[0].text}"
    return {block: figure.low for block, figure in known.items()}


def _in_blocks(costs: Mapping[str, Mapping[int, float]]) -> dict[str, list[float]]:
    """Return the costs of the blocks that all levels have; the median of each where they have none in common."""
    blocks = [set(by_block) for by_block in costs.values()]
    shared = blocks[0].intersection(*blocks[1:]) if blocks else set()
    if not shared:
        return {name: [median(by_block.values())] for name, by_block in costs.items()}
    return {name: [by_block[block] for block in sorted(shared)] for name, by_block in costs.items()}


APART = "it and the baseline were not measured in turns"
NO_BLOCK = "it and the baseline have no block of trials in common"
ONE_START = "the trials of a side are on one start of the server"

Trials = Sequence[Observation]


def savings(base: Trials, others: Mapping[str, Trials], cost: ComparedMetric) -> dict[str, bool | str]:
    """Return for each level whether tests, one family, show a lower cost than that of the baseline, or why no test
    can; without those that have too few trials for one.

    A cost that every answer has, and that no clock gave, is compared by item; others by trial. Every trial has a
    value.
    """
    by_item = _by_item(base, others, cost)
    if by_item is not None:
        return {**by_item}
    units = {name: units_of(base, trials, cost.path, paired=True) for name, trials in others.items()}
    shown: dict[str, bool | str] = {
        name: why
        for name, of_level in units.items()
        if (why := _why_untested(of_level, max(len(base), len(others[name]))))
    }
    pairs = {
        name: (lower(of_level.base), lower(of_level.new))
        for name, of_level in units.items()
        if name not in shown and of_level.are_enough
    }
    tests = compare_family(pairs, better=cost.better)
    sign = 1 if cost.better == "lower" else -1  # however small the difference: there is no margin of a saving
    return shown | {
        name: test.p_adjusted <= ALPHA and sign * test.effect < 0
        for name, test in tests.items()
        if test.reachable_p * len(tests) <= ALPHA
    }


def _why_untested(units: Units, trials: int) -> str | None:
    """Return why no test is possible, None where it is only a matter of more trials; `trials` is their number."""
    if units.are_apart:
        return APART
    if not units.base or not units.new:
        return NO_BLOCK
    return ONE_START if units.kind == "start" and min(units.starts) < 2 and trials > 1 else None


def _by_item(base: Trials, others: Mapping[str, Trials], cost: ComparedMetric) -> dict[str, bool] | None:
    """Return the same by costs of the same items, clusters whole; None where the answers do not have this cost."""
    name = cost.path.removeprefix("quality.")
    if name == cost.path or not others:
        return None
    first = item_values(base, name)
    known = {of: item_values(trials, name) for of, trials in others.items()}
    if not first or not all(known.values()):
        return None
    tests = {}
    for of, values in known.items():
        items = [item for item in first if item in values]
        if not items:
            return None
        labels = [label for _, label in items]
        one, other = ([side[item] for item in items] for side in (first, values))
        tests[of] = paired_test(one, other, clusters=None if None in labels else labels)
    sign = 1 if cost.better == "lower" else -1
    adjusted = holm([test.p for test in tests.values()])
    return {
        of: p <= ALPHA and sign * test.difference < 0 for (of, test), p in zip(tests.items(), adjusted, strict=True)
    }


RESAMPLES = 2000
SEED = 0


@dataclass(frozen=True, kw_only=True)
class FrontPlaces:
    """For each point: whether it is on the front, and in which share of resamples."""

    on_front: NDArray[np.bool_]
    probability: Values
    clusters: int
    blocks: int


def undominated(quality: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points no other dominates: has at least the quality and at most the cost, and differs in one.

    `quality` and `cost` have shape (..., points); more quality and less cost is better. Equal points are both on it.
    """
    better = quality[..., None, :] >= quality[..., :, None]
    cheaper = cost[..., None, :] <= cost[..., :, None]
    strictly = (quality[..., None, :] > quality[..., :, None]) | (cost[..., None, :] < cost[..., :, None])
    dominated = np.asarray((better & cheaper & strictly).any(axis=-1))
    return np.asarray(~dominated)


def front(
    scores: Sequence[Sequence[float]],
    costs: Sequence[Sequence[float]],
    *,
    clusters: Labels | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> FrontPlaces:
    """Return the front of points with `scores`, shape (points, items), and `costs`, shape (points, blocks).

    Higher scores and lower costs are better. A resample draws as many clusters of items (items without `clusters`) as
    there are, with replacement, and as many blocks; the same ones for all points, as they were measured on the same
    items and in the same blocks (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
    With one block, costs do not vary between resamples: the probability is then that of the quality alone.
    ValueError for tables of other shapes, or values that are not finite.
    """
    table, cost = np.asarray(scores, dtype=float), np.asarray(costs, dtype=float)
    if table.ndim != 2 or cost.ndim != 2 or len(table) != len(cost) or not table.size or not cost.size:
        raise ValueError(
            f"scores and costs have shapes {table.shape} and {cost.shape}; both need a row for each point"
        )
    if not (np.isfinite(table).all() and np.isfinite(cost).all()):
        raise ValueError("scores and costs must be finite")
    groups = cluster_numbers(clusters, table.shape[1])
    sizes = np.bincount(groups).astype(float)
    sums = np.array([np.bincount(groups, weights=row) for row in table])
    rng = np.random.default_rng(seed)
    held = np.zeros(len(table))
    for rows in rows_of(resamples, max(len(sizes), len(table) ** 2)):
        picked = rng.integers(0, len(sizes), size=(rows, len(sizes)))
        blocks = rng.integers(0, cost.shape[1], size=(rows, cost.shape[1]))
        quality = np.stack([row[picked].sum(axis=1) for row in sums], axis=1) / sizes[picked].sum(axis=1)[:, None]
        spent = np.stack([np.median(row[blocks], axis=1) for row in cost], axis=1)
        held += undominated(quality.round(12), spent).sum(axis=0)
    quality, spent = table.mean(axis=1), np.median(cost, axis=1)
    return FrontPlaces(
        on_front=undominated(quality.round(12), spent),
        probability=held / resamples,
        clusters=len(sizes),
        blocks=cost.shape[1],
    )
