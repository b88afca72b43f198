"""Fronts of quality against a cost as text: the level to take, and what speaks for it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from seamark.model.plurals import in_percent
from seamark.model.results.comparison import Front, FrontPoint
from seamark.report.numbers import levels_text, side_name, unit_of, unit_words, with_unit

METHOD = "method"
"""The factor that an evaluation chooses among, whatever else varies beside it."""
MOST_LISTED = 5
Standing = Literal["saves", "unsure", "costs", "loses"]
ONE_BLOCK = "alone (one block of trials has no spread of cost)"


def as_printed(front: Front) -> Front:
    """Return a front with its cost in the unit in which it is printed."""
    unit, factor = unit_of([point.cost for point in front.points], unit_words(front.cost_unit))
    points = tuple(replace(point, cost=None if point.cost is None else factor * point.cost) for point in front.points)
    return replace(front, cost_unit=unit, points=points)


def front_title(front: Front, several: bool) -> str:
    """Return `score against ttft_ms.p50 (task passkey)`."""
    fixed = levels_text(front.fixed)
    title = f"{front.quality} against {front.cost}{f' ({fixed})' if fixed else ''}"
    return f"{front.workload}: {title}" if several else title


def front_place(front: Front, several: bool) -> str:
    """Return where a front is without what it shows: `short: task passkey`; `several` workloads are named."""
    return ": ".join(filter(None, (front.workload if several else "", levels_text(front.fixed)))) or front.workload


def best_of(front: Front) -> FrontPoint | None:
    """Return the point of the least cost among those that are not worse than the baseline and cost less."""
    sign = 1 if front.cost_better == "lower" else -1
    saving = [point for point in front.points[1:] if point.not_worse and _costs_less(front, point)]
    return min(saving, key=lambda point: sign * float(point.cost or 0.0), default=None)


def _costs_less(front: Front, point: FrontPoint) -> bool:
    """Return whether the median cost of a level is known to be lower than that of the baseline."""
    sign = 1 if front.cost_better == "lower" else -1
    return point.cost is not None and point.ratio is not None and sign * (point.ratio - 1) < 0


def front_sentence(front: Front) -> str:
    """Return the level of the least cost that is not worse than the baseline by more than the margin, how sure its
    saving is, or why none can be named."""
    base = side_name(front.points[0], front.factor)
    if not _has_skill(front):
        lost = "any" if not front.margin else f"more than {front.margin:g}"
        scored = f"{base} itself has {front.quality} {front.points[0].quality or 0:.3g}"
        return f"{scored}, so no {front.factor} can lose {lost} ({_items(front)})."
    if front.margin is None:
        return (
            f"Which {front.factor} is as good as {base} cannot be said: `compare: quality_margin` states no loss that"
            " does not matter."
        )
    kept = f"not worse than {base} in {front.quality} by more than {front.margin:g}"
    within = [point for point in front.points[1:] if point.not_worse]
    if not within:
        near = f"within {front.margin:g} of {base}"
        return f"No other {front.factor} is shown to keep {front.quality} {near} ({_items(front)})."
    best = best_of(front)
    shown = ", ".join(side_name(point, front.factor) for point in within)
    if front.points[0].cost is None:
        return f"Shown to be {kept}: {shown}. {base} has no {front.cost} to compare with: {front.points[0].reason}."
    if best is None:
        return f"Shown to be {kept}: {shown}. None of them has a lower {front.cost} than {base}."
    name = side_name(best, front.factor)
    cost = f"{front.cost} {with_unit(best.cost, unit_words(front.cost_unit))}"
    facts = f"{cost}, {best.ratio:.2f} x that of {base}"
    if best.cheaper:
        return (
            f"The {front.factor} with the least {front.cost} that is {kept}: {name} ({facts}; on the front in"
            f" {share(best.probability)} of resamples; {_items(front)})."
        )
    if best.cheaper is not None:
        why = "no test shows it"
    elif best.untested is not None:
        why = f"no test can show it, as {best.untested}"
    elif best.trials > 1:
        why = f"{best.trials} a side cannot reach p = 0.05, whatever they show"
    else:
        why = "one trial a side allows no test"
    return f"{name} is {kept} ({_items(front)}). That its cost is lower ({facts}) is not shown: {why}."


def choice_sentence(fronts: Sequence[Front]) -> str | None:
    """Return a level that saves cost, on how many fronts on the first cost, and the sentence of the first of them.

    Only fronts of one factor count: of `method` where there is one, else of the first. The level that keeps the
    quality and costs less on the most fronts comes first, then the one with the least cost on most. It is to be taken
    if it does so on all of them and tests show it; the others are named. Without such a level the baseline is to be
    kept, and why is the sentence of the first front. None without a front whose baseline has more quality than the
    margin.
    """
    first, without = _of_one_factor(fronts)
    if not first:
        return None
    several = len({candidate.workload for candidate in first}) > 1
    named = [(candidate, best) for candidate in first if (best := best_of(candidate)) is not None]
    if not named:
        answered = all(front.margin is not None and front.points[0].cost is not None for front in first)
        keep = f"Keep {first[0].factor} = {side_name(first[0].points[0], first[0].factor)}. " if answered else ""
        return f"{keep}{front_title(first[0], several)}: {front_sentence(first[0])}"
    counts = Counter(side_name(best, front.factor) for front, best in named)
    standings = {name: [_standing(candidate, name) for candidate in first] for name in counts}

    def failures(name: str) -> tuple[int, int, int]:
        loses, costs, unsure = (standings[name].count(standing) for standing in ("loses", "costs", "unsure"))
        return loses + costs, unsure, -counts[name]

    name = min(counts, key=failures)
    front = next(front for front, best in named if side_name(best, front.factor) == name)
    where = f" (the least {front.cost} in {counts[name]} of {len(first)} comparisons; {front_title(front, several)})"
    verb = "Take " if set(standings[name]) == {"saves"} and not without else ""
    said = f"{verb}{front.factor} = {name}{where if len(first) > 1 else ''}: {front_sentence(front)}"
    reservations = _reservations(first, standings[name], name, told=front)
    if without:
        places = _listed(levels_text(combination.fixed) or combination.workload for combination in without)
        reservations.append(f"No {front.cost} is compared in: {places}.")
    return " ".join([said, *reservations])


def _of_one_factor(fronts: Sequence[Front]) -> tuple[list[Front], list[Front]]:
    """Return the fronts that decide what to take: of one factor, by its first cost, with a baseline that knows more
    than the margin. Then those of combinations that have no front of this cost, one of each."""
    factors = [front.factor for front in fronts]
    groups: dict[str, list[Front]] = {}
    for front in fronts:
        if front.factor == (METHOD if METHOD in factors else factors[0]) and front.points and _has_skill(front):
            groups.setdefault(repr((front.workload, sorted(front.fixed.items()))), []).append(front)
    [(cost, _)] = Counter(group[0].cost for group in groups.values()).most_common(1) or [("", 0)]
    first = {name: next((front for front in group if front.cost == cost), None) for name, group in groups.items()}
    return (
        [front for front in first.values() if front is not None],
        [groups[name][0] for name, front in first.items() if front is None],
    )


def _standing(front: Front, name: str) -> Standing:
    """Return how the level of that name stands against the baseline, which itself saves as much as it should: `loses`
    where it is not shown to keep the quality, `costs` where it does and costs no less."""
    points = [point for point in front.points if side_name(point, front.factor) == name]
    if any(point is front.points[0] for point in points):
        return "saves"
    if not points or not points[0].not_worse:
        return "loses"
    if not _costs_less(front, points[0]):
        return "costs"
    return "saves" if points[0].cheaper else "unsure"


def _reservations(fronts: Sequence[Front], standings: Sequence[Standing], name: str, told: Front) -> list[str]:
    """Return where a level is not to be taken, a sentence for each reason; `told` is the front that has its own."""
    several = len({front.workload for front in fronts}) > 1
    reasons: Mapping[Standing, str] = {
        "loses": f"But {name} is not shown to be so good in",
        "costs": f"But {name} has no lower {told.cost} than {side_name(told.points[0], told.factor)} in",
        "unsure": f"That its {told.cost} is lower is not shown in",
    }
    said = []
    for standing, reason in reasons.items():
        of = [front for front, own in zip(fronts, standings, strict=True) if own == standing and front is not told]
        ratios = [f": {_ratio_text(front, name)}" if standing == "costs" else "" for front in of]
        places = [f"{front_title(front, several)}{ratio}" for front, ratio in zip(of, ratios, strict=True)]
        said += [f"{reason}: {_listed(places)}."] if places else []
    return said


def _listed(texts: Iterable[str]) -> str:
    """Return the first of some texts, and how many more there are."""
    every = list(texts)
    more = f"; and {len(every) - MOST_LISTED} more" if len(every) > MOST_LISTED else ""
    return "; ".join(every[:MOST_LISTED]) + more


def _ratio_text(front: Front, name: str) -> str:
    [ratio] = [point.ratio for point in front.points if side_name(point, front.factor) == name]
    return "no cost to compare" if ratio is None else f"{ratio:.2f} x"


def _has_skill(front: Front) -> bool:
    """Return whether the baseline can lose more than the margin: its score is above it."""
    return front.better == "lower" or (front.points[0].quality or 0.0) > (front.margin or 0.0)


def share(probability: float | None) -> str:
    """Return a probability from resamples; never 100 % or 0 % for one that only nearly all or none had."""
    if probability is None:
        return "-"
    if 0.995 <= probability < 1:
        return "over 99 %"
    if 0 < probability < 0.005:
        return "under 1 %"
    return in_percent(probability)


def front_lines(fronts: Sequence[Front]) -> list[str]:
    """Return the sentence of each front, in a line each."""
    several = len({front.workload for front in fronts}) > 1
    return [f"{front_title(front, several)}: {front_sentence(front)}" for front in fronts]


def front_note(front: Front) -> str:
    """Return what the probabilities rest on."""
    clusters = f"{front.clusters} clusters" if front.clusters != front.items else f"{front.items} items"
    blocks = f"and {front.blocks} blocks of trials" if front.blocks > 1 else ONE_BLOCK
    return (
        f"Probability: share of {front.resamples:,} resamples (seeded) of {clusters} {blocks}, the same ones for all"
        f" points, in which no other point has at least its {front.quality} at no more {front.cost}."
    )


def _items(front: Front) -> str:
    clusters = f" in {front.clusters} clusters" if front.clusters != front.items else ""
    return f"{front.items} items{clusters}"
