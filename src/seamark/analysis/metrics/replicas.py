"""Figures of the replicas of a server, from their own counters in the telemetry."""

from collections.abc import Mapping, Sequence

from seamark.analysis.metrics.telemetry import Key, SeriesSummary
from seamark.model.results.replicas import ANSWERS, PREFIX_HITS, PREFIX_QUERIES, REQUESTS, ReplicaFigures, Replicas

SAME_SPAN = 0.9
"""Least ratio of the shortest to the longest time in which replicas were counted, for their requests to be shares."""


def replica_figures(telemetry: Mapping[Key, SeriesSummary]) -> Replicas | None:
    """Return the figures of each replica that counters were asked of; None without any."""
    names = sorted((source for source, series in telemetry if series == ANSWERS), key=_number)
    if not names:
        return None
    grew = {key: series.increase for key, series in telemetry.items() if series.increase is not None}
    requests = {name: grew[name, REQUESTS] for name in names if (name, REQUESTS) in grew}
    spans = [telemetry[name, REQUESTS].span_s or 0.0 for name in requests]
    whole = len(requests) == len(names) and min(spans) >= SAME_SPAN * max(spans)
    total = sum(requests.values()) if whole else 0.0
    return Replicas(
        by_replica={
            name: ReplicaFigures(
                requests=requests.get(name),
                share=requests[name] / total if total else None,
                prefix_hit_ratio=_ratio(grew, [name]),
            )
            for name in names
        },
        counted_s=min(spans, default=None),
        imbalance=max(requests.values()) * len(names) / total if total else None,
        prefix_hit_ratio=_ratio(grew, names) if whole else None,
    )


def _ratio(grew: Mapping[Key, float], names: Sequence[str]) -> float | None:
    asked = sum(grew.get((name, PREFIX_QUERIES), 0.0) for name in names)
    return sum(grew.get((name, PREFIX_HITS), 0.0) for name in names) / asked if asked else None


def _number(name: str) -> tuple[str, int]:
    whole, _, number = name.rpartition("-")
    return (whole, int(number)) if number.isdigit() else (name, 0)
