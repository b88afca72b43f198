"""Figures over the trials of a treatment: spread, medians, telemetry."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

Document = dict[str, Any]


def each(trials: Sequence[Mapping[str, Any]], *path: str) -> list[float]:
    """Return the number at `path` of every trial that has one."""
    found = []
    for trial in trials:
        value: Any = trial
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, (int, float)):
            found.append(float(value))
    return found


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return median, extremes, mean and coefficient of variation (sample deviation over mean; None below two)."""
    if not values:
        return dict.fromkeys(("median", "min", "max", "mean", "cv"))
    mean = fmean(values)
    cv = stdev(values) / mean if len(values) > 1 and mean else None
    return {"median": median(values), "min": min(values), "max": max(values), "mean": mean, "cv": cv}


def known(values: dict[str, float | None]) -> dict[str, float | None] | None:
    """Return a spread, or None for that of nothing."""
    return None if values["median"] is None else values


def medians(trials: Sequence[Mapping[str, Any]], group: str) -> dict[str, float | None]:
    """Return the median of every figure of a group; None where no trial knows it."""
    names = dict.fromkeys(name for trial in trials for name in trial.get(group) or {})
    found = {name: each(trials, group, name) for name in names}
    return {name: median(values) if values else None for name, values in found.items()}


def telemetry(trials: Sequence[Mapping[str, Any]]) -> dict[str, Document]:
    """Return each watched series over all trials: least, mean by number of readings, greatest; the median of the
    trials' medians and of their p95s, named so."""
    names = dict.fromkeys(name for trial in trials for name in trial.get("telemetry") or {})
    summed = {}
    for name in names:
        seen = [trial["telemetry"][name] for trial in trials if name in (trial.get("telemetry") or {})]
        readings = sum(one["n"] for one in seen)
        summed[name] = {
            "unit": seen[0]["unit"],
            "n": readings,
            "min": min(one["min"] for one in seen),
            "mean": sum(one["mean"] * one["n"] for one in seen) / readings if readings else None,
            "max": max(one["max"] for one in seen),
            "median_of_p50": median(one["p50"] for one in seen),
            "median_of_p95": median(one["p95"] for one in seen),
        }
    return summed
