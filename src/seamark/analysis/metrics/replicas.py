"""Figures of the replicas of a server, from their own counters in the telemetry."""

from collections.abc import Mapping

from seamark.analysis.metrics.telemetry import Key, SeriesSummary
from seamark.model.results.replicas import PREFIX_HITS, PREFIX_QUERIES, REQUESTS, ReplicaFigures, Replicas


def replicas_of(telemetry: Mapping[Key, SeriesSummary]) -> Replicas | None:
    """Return the figures of each replica whose requests were counted; None without any."""
    names = sorted((source for source, series in telemetry if series == REQUESTS), key=_number)
    if not names:
        return None
    grew = {key: series.increase or 0.0 for key, series in telemetry.items()}
    requests = {name: grew[name, REQUESTS] for name in names}
    total = sum(requests.values())
    return Replicas(
        each=tuple(
            ReplicaFigures(
                name=name,
                requests=requests[name],
                share=requests[name] / total if total else None,
                prefix_hit_ratio=_ratio(grew, [name]),
            )
            for name in names
        ),
        counted_s=min(telemetry[name, REQUESTS].span_s or 0.0 for name in names),
        imbalance=max(requests.values()) * len(names) / total if total else None,
        prefix_hit_ratio=_ratio(grew, names),
    )


def _ratio(grew: Mapping[Key, float], names: list[str]) -> float | None:
    asked = sum(grew.get((name, PREFIX_QUERIES), 0.0) for name in names)
    return sum(grew.get((name, PREFIX_HITS), 0.0) for name in names) / asked if asked else None


def _number(name: str) -> tuple[str, int]:
    whole, _, number = name.rpartition("-")
    return (whole, int(number)) if number.isdigit() else (name, 0)
