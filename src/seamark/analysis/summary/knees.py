"""Capacity of a scenario: results of its searches, and the knee of each sweep.

Finds the knee of each sweep of load in a scenario: a rate or a number of users varies, all else is fixed."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, median_high, median_low

from seamark.analysis.metrics.objectives import look_up
from seamark.analysis.summary.outcome import Document, Outcome
from seamark.analysis.summary.treatments import each, spread
from seamark.model.service import Value
from seamark.stats.knee import LEAST, full_from, knee

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


def point_of(workload: str, factors: Mapping[str, Value], outcomes: Sequence[Outcome]) -> Point:
    """Return the points of a treatment's good trials. An open loop is swept by its rate, a closed one by its
    users."""
    seen = {}
    conditional = False
    for outcome in outcomes:
        if not outcome.ok or outcome.metrics is None:
            continue
        rate, mean_ms = (look_up(outcome.metrics, path) for path in ("requests_per_s", "latency_ms.mean"))
        if rate and mean_ms:
            seen[outcome.trial.repetition] = (rate, mean_ms, bool(outcome.metrics.get("saturated")))
            conditional |= bool(look_up(outcome.metrics, "latency_ms.censored"))
    sweeps = USERS if outcomes[0].trial.load.closed else RATE
    return Point(workload=workload, factors=factors, sweeps=sweeps, seen=seen, conditional=conditional)


def knees(points: Sequence[Point]) -> list[Document]:
    """Return the knee of every sweep of at least four measured loads, on medians over repetitions.

    Each has `levels` and their `power` (requests/s over ms of mean response time); `knee`, the level of the greatest,
    None if that is the first or last level (`place`); `between`, the levels that enclose it; `agree`, the number of
    repetitions that have every level (`of`) and the same maximum; `saturated`, the levels at which most trials were,
    and in a closed loop those above the first that reaches 95 % of the greatest throughput.
    """
    found = [one for sweep in _sweeps(points) if (one := _knee(*sweep)) is not None]
    return sorted(found, key=_place)


def _place(found: Document) -> tuple[str, str, list[tuple[bool, float, str]]]:
    """Sort key of a knee: by workload, then by fixed settings, numbers by size."""
    fixed = [
        (not _is_number(value), float(value) if _is_number(value) else 0.0, str(value))
        for value in found["fixed"].values()
    ]
    return found["workload"], found["factor"], fixed


def _sweeps(points: Sequence[Point]) -> Iterator[tuple[str, Mapping[str, Value], list[Point]]]:
    """Yield factor, fixed settings, and the measured points in the order of their levels."""
    groups: dict[tuple[str, str, tuple[tuple[str, Value], ...]], list[Point]] = {}
    for point in points:
        if point.seen and _is_number(point.factors.get(point.sweeps)):
            fixed = tuple((name, value) for name, value in sorted(point.factors.items()) if name != point.sweeps)
            groups.setdefault((point.workload, point.sweeps, fixed), []).append(point)
    for (_, factor, fixed), own in groups.items():
        yield factor, dict(fixed), sorted(own, key=lambda point, name=factor: float(point.factors[name] or 0))  # type: ignore[misc]


def _knee(factor: str, fixed: Mapping[str, Value], points: Sequence[Point]) -> Document | None:
    if len(points) < LEAST:
        return None
    levels = [point.factors[factor] for point in points]
    rates = [median(rate for rate, _, _ in point.seen.values()) for point in points]
    means_ms = [median(mean_ms for _, mean_ms, _ in point.seen.values()) for point in points]
    found = knee(rates, means_ms)
    inside = found.place == "inside"
    whole = [n for n in points[0].seen if all(n in point.seen for point in points)]
    each = [knee([point.seen[n][0] for point in points], [point.seen[n][1] for point in points]) for n in whole]
    return {
        "workload": points[0].workload,
        "factor": factor,
        "fixed": dict(fixed),
        "levels": levels,
        "power": list(found.power),
        "place": found.place,
        "knee": levels[found.index] if inside else None,
        "between": [levels[found.index - 1], levels[found.index + 1]] if inside else None,
        "agree": sum(one.index == found.index for one in each),
        "of": len(each),
        "requests_per_s": rates[found.index],
        "latency_mean_ms": means_ms[found.index],
        "mean_conditional": points[found.index].conditional,
        "saturated": [levels[index] for index in _saturated(factor, points, rates)],
    }


def _saturated(factor: str, points: Sequence[Point], rates: Sequence[float]) -> list[int]:
    if factor == USERS:
        return list(range(full_from(rates) + 1, len(points)))
    return [
        index
        for index, point in enumerate(points)
        if 2 * sum(saturated for _, _, saturated in point.seen.values()) > len(point.seen)
    ]


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


FOUND = ("setting", "found", "bracket_low", "bracket_high", "confidence", "outcome", "confirmed", "probes")
"""Columns of a search in the tables of a summary."""


def row_of_search(search: Document) -> Document:
    """Return a trial's search as the columns of a table, without their prefix."""
    low, high = search["bracket"]
    values = {**search, "bracket_low": low, "bracket_high": high}
    return {name: values.get(name) for name in FOUND}


def found_by_search(outcomes: Sequence[Outcome]) -> Document | None:
    """Return the level that a treatment's searches found, with its spread, and how each ended; None where the load
    was given. A search that found nothing is among the outcomes, not in the spread."""
    searches = [
        outcome.metrics["search"] for outcome in outcomes if outcome.metrics and outcome.metrics.get("search")
    ]
    if not searches:
        return None
    return {
        "setting": searches[0]["setting"],
        "found": spread(each(searches, "found")),
        "bracket": _median_bracket([search["bracket"] for search in searches]),
        "confidence": min((search["confidence"] for search in searches if search.get("confidence")), default=None),
        "outcomes": dict(Counter(str(search["outcome"]) for search in searches)),
        "confirmed": sum(bool(search["confirmed"]) for search in searches),
        "of": len(searches),
    }


def _median_bracket(brackets: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the median of the low sides and that of the high sides, of an even number the outer one; an open side is
    infinitely far out. It misses the truth only where half of the repetitions do."""
    low = median_low(-math.inf if low is None else low for low, _ in brackets)
    high = median_high(math.inf if high is None else high for _, high in brackets)
    return [low if math.isfinite(low) else None, high if math.isfinite(high) else None]
