"""Capacity in a scenario: the knee of each sweep of load by rate or users, and the loads found by searches."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_high, median_low
from typing import TypeGuard

from seamark.analysis.summary.treatments import spread
from seamark.analysis.trial_view import TrialView, of_figures
from seamark.model.results.summary import Knee, SearchSummary
from seamark.model.service import Value
from seamark.stats.knee import LEAST, full_from
from seamark.stats.knee import knee as greatest_power

RATE, USERS = "rate_rps", "concurrency"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One treatment of a sweep. `sweeps` is the setting of its load; `seen` maps a repetition to its requests/s, its
    mean response time in ms and whether it was saturated; with `conditional`, requests without a reply are missing
    from a mean."""

    workload: str
    factors: Mapping[str, Value]
    sweeps: str
    seen: Mapping[int, tuple[float, float, bool]]
    conditional: bool = False


def point_of(workload: str, factors: Mapping[str, Value], views: Sequence[TrialView]) -> Point:
    """Return the point of a treatment's trials whose figures are summed up. An open loop is swept by its rate, a
    closed one by its users."""
    seen = {}
    conditional = False
    for view in of_figures(views):
        metrics = view.good
        if metrics and metrics.requests_per_s and metrics.latency_ms.mean:
            figures = metrics.requests_per_s, metrics.latency_ms.mean, bool(metrics.saturated)
            seen[view.trial.repetition] = figures
            conditional |= metrics.latency_ms.is_conditional
    sweeps = USERS if views[0].trial.load.closed else RATE
    return Point(workload=workload, factors=factors, sweeps=sweeps, seen=seen, conditional=conditional)


def knees(points: Sequence[Point]) -> tuple[Knee, ...]:
    """Return the knee of every sweep of at least four measured loads, on medians over repetitions.

    Power is requests/s over ms of mean response time. Saturated levels are those at which most trials were; in a
    closed loop those above the first that reaches 95 % of the greatest throughput.
    """
    all_knees = [knee for sweep in _sweeps(points) if (knee := _knee(*sweep)) is not None]
    return tuple(sorted(all_knees, key=_place))


def _place(found: Knee) -> tuple[str, str, list[tuple[bool, float, str]]]:
    """Sort key of a knee: by workload, then by fixed settings, numbers by size."""
    fixed = [
        (False, float(value), str(value)) if _is_number(value) else (True, 0.0, str(value))
        for value in found.fixed.values()
    ]
    return found.workload, found.factor, fixed


def _sweeps(points: Sequence[Point]) -> Iterator[tuple[str, Mapping[str, Value], list[Point]]]:
    """Yield factor, fixed settings, and the measured points in the order of their levels."""
    groups: dict[tuple[str, str, tuple[tuple[str, Value], ...]], list[Point]] = {}
    for point in points:
        if point.seen and _is_number(point.factors.get(point.sweeps)):
            fixed = tuple((name, value) for name, value in sorted(point.factors.items()) if name != point.sweeps)
            groups.setdefault((point.workload, point.sweeps, fixed), []).append(point)
    for (_, factor, fixed), group in groups.items():
        yield factor, dict(fixed), sorted(group, key=lambda point, name=factor: float(point.factors[name] or 0))  # type: ignore[misc]


def _knee(factor: str, fixed: Mapping[str, Value], points: Sequence[Point]) -> Knee | None:
    if len(points) < LEAST:
        return None
    levels = [point.factors[factor] for point in points]
    rates = [median(rate for rate, _, _ in point.seen.values()) for point in points]
    means_ms = [median(mean_ms for _, mean_ms, _ in point.seen.values()) for point in points]
    greatest = greatest_power(rates, means_ms)
    inside = greatest.place == "inside"
    whole = [n for n in points[0].seen if all(n in point.seen for point in points)]
    by_repetition = [greatest_power([p.seen[n][0] for p in points], [p.seen[n][1] for p in points]) for n in whole]
    return Knee(
        workload=points[0].workload,
        factor=factor,
        fixed=dict(fixed),
        levels=tuple(levels),
        power=tuple(greatest.power),
        place=greatest.place,
        knee=levels[greatest.index] if inside else None,
        between=(levels[greatest.index - 1], levels[greatest.index + 1]) if inside else None,
        agree=sum(power.index == greatest.index for power in by_repetition),
        of=len(by_repetition),
        requests_per_s=rates[greatest.index],
        latency_mean_ms=means_ms[greatest.index],
        mean_conditional=points[greatest.index].conditional,
        saturated=tuple(levels[index] for index in _saturated(factor, points, rates)),
    )


def _saturated(factor: str, points: Sequence[Point], rates: Sequence[float]) -> list[int]:
    if factor == USERS:
        return list(range(full_from(rates) + 1, len(points)))
    return [
        index
        for index, point in enumerate(points)
        if 2 * sum(saturated for _, _, saturated in point.seen.values()) > len(point.seen)
    ]


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def found_by_search(views: Sequence[TrialView]) -> SearchSummary | None:
    """Return the loads that a treatment's searches found; None where the load was given. A search that found nothing
    is among the outcomes, not in the spread."""
    searches = [view.metrics.search for view in views if view.metrics and view.metrics.search]
    if not searches:
        return None
    return SearchSummary(
        setting=searches[0].setting or "",
        found=spread([search.found for search in searches if search.found is not None]),
        bracket=_median_bracket([search.bracket for search in searches]),
        confidence=min((search.confidence for search in searches if search.confidence), default=None),
        outcomes=dict(Counter(str(search.outcome) for search in searches)),
        confirmed=sum(search.confirmed for search in searches),
        of=len(searches),
    )


def _median_bracket(brackets: Sequence[tuple[float | None, float | None]]) -> tuple[float | None, float | None]:
    """Return the median of the low sides and that of the high sides, of an even number the outer one; an open side is
    infinitely far out. It misses the truth only where half of the repetitions do."""
    low = median_low(-math.inf if low is None else low for low, _ in brackets)
    high = median_high(math.inf if high is None else high for _, high in brackets)
    return low if math.isfinite(low) else None, high if math.isfinite(high) else None
