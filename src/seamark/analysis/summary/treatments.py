"""Groups trials by treatment, and sums up figures over the trials of a group."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any

from seamark.model.service import Value
from seamark.model.trial import Plan, Trial

RESOURCES = ("nodes", "gpus", "cpus_per_task", "mem_gb")


def group_of(trial: Trial) -> str:
    """Return the name of what a treatment is compared within: its workload in the scenario."""
    return trial.group


def levels_of(plan: Plan) -> Mapping[str, Mapping[str, Value]]:
    """Return the level of every factor for each treatment. A factor is what varies within a treatment's group."""
    deployments = {deployment.id: deployment for deployment in plan.deployments}
    everything: dict[str, dict[str, Value]] = {}
    groups: dict[str, list[str]] = {}
    for trial in plan.trials:
        if trial.treatment in everything:
            continue
        deployment = deployments.get(trial.deployment)
        asked = {name: getattr(deployment, name) for name in RESOURCES} if deployment else {}
        everything[trial.treatment] = {**trial.settings, **asked}
        groups.setdefault(group_of(trial), []).append(trial.treatment)
    levels: dict[str, Mapping[str, Value]] = {}
    for members in groups.values():
        names = _varying([everything[treatment] for treatment in members])
        levels |= {treatment: {name: everything[treatment].get(name) for name in names} for treatment in members}
    return levels


def _varying(all_settings: list[dict[str, Value]]) -> list[str]:
    names = dict.fromkeys(name for settings in all_settings for name in settings)
    return [name for name in names if len({_level(settings.get(name)) for settings in all_settings}) > 1]


def _level(value: Value) -> tuple[str, Value]:
    """Keeps True apart from 1."""
    return type(value).__name__, value


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
