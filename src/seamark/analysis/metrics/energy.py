"""Energy of one trial: counters, interval and scope. Nothing is estimated; missing parts have a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from seamark.analysis.metrics.telemetry import Key, SeriesSummary
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.model.results.load_record import LoadRecord, PackageCounters
from seamark.model.results.trial_metrics import EnergyFigures

Scope = Literal["gpu", "package", "node"]
COVERED = 0.9
"""Ratio of the window that must lie between the first and the last reading of a counter."""
LEAST_STEPS = 4
"""Counters move in steps and are read at intervals: with fewer steps, their edges dominate the result."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Energy of one scope over `window_s`; `requests` are the good replies of that time, `units` theirs."""

    scope: Scope
    method: str
    value_j: float
    window_s: float
    requests: float
    units: float


def energy_of(
    counts: WindowCounts,
    telemetry: Mapping[Key, SeriesSummary],
    load: LoadRecord,
    *,
    gpus: int | None = None,
    nodes: int | None = None,
) -> EnergyFigures | str:
    """Return the energy of a trial, or why nothing is known of it. `gpus` and `nodes` are those of its deployment,
    None if unknown.

    The reported scope is the one closest to the service: its GPUs, else the processors and their memory, else the
    node. Counters of GPUs and packages are read at the edges of the measured window, on all nodes of the deployment;
    Slurm's before and after the whole load, so its requests are the good ones of the whole load.
    """
    nodes = nodes or 1
    outcomes = (
        _gpus(counts, telemetry, gpus),
        _packages(counts, telemetry, load.energy.package, nodes),
        _node(counts, load, nodes),
    )
    parts = [part for part in outcomes if isinstance(part, Part)]
    if not parts:
        return "; ".join(map(str, outcomes))
    chosen = parts[0]
    return EnergyFigures(
        value_j=chosen.value_j,
        window_s=chosen.window_s,
        per_request_j=chosen.value_j / chosen.requests if chosen.requests else None,
        per_unit_j=chosen.value_j / chosen.units if chosen.units else None,
        power_w=chosen.value_j / chosen.window_s,
        idle_power_w=load.energy.idle_w.get(chosen.scope),
        **{f"{part.scope}_j": part.value_j for part in parts},
        scope=chosen.scope,
        method=chosen.method,
    )


def is_gpu(source: str) -> bool:
    """Return whether telemetry of that source is a GPU's: gpu0, or gpu0@n2 on another node."""
    name, _, number = source.partition("@")[0].partition("gpu")
    return not name and number.isdigit()


def _gpus(counts: WindowCounts, telemetry: Mapping[Key, SeriesSummary], count: int | None) -> Part | str:
    sources = sorted({source for source, _ in telemetry if is_gpu(source)})
    if not sources:
        return "gpu: the deployment has none" if count == 0 else "gpu: none was watched"
    if count is not None and len(sources) < count:
        return f"gpu: {len(sources)} of {count} were watched"
    counters, methods = {}, set()
    for source in sources:
        counter = telemetry.get((source, "energy_j"))
        has_counter = counter is not None and counter.increase
        counters[source] = counter if has_counter else telemetry.get((source, "power_w"))
        methods.add("NVML energy counter" if has_counter else "NVML power, integrated")
    return _part("gpu", " and ".join(sorted(methods)), counters, counts)


def _packages(
    counts: WindowCounts, telemetry: Mapping[Key, SeriesSummary], counted: PackageCounters, nodes: int
) -> Part | str:
    if counted.reason:
        return f"package: {counted.reason}"
    names = counted.counters
    if not names:
        return "package: not watched"
    where = {"", *(f"@{source.partition('@')[2]}" for source, _ in telemetry if source.partition("@")[0] in names)}
    places = sorted(where - {"@"})
    if len(places) < nodes:
        return f"package: counters of {len(places)} of {nodes} nodes were watched"
    sources = (f"{name}{suffix}" for suffix in places for name in names)
    counters = {source: telemetry.get((source, "energy_j")) for source in sources}
    over = f" of {nodes} nodes" if nodes > 1 else ""
    return _part("package", f"RAPL: {', '.join(names)}{over}", counters, counts)


def _fault(seen: SeriesSummary | None, length_s: float) -> str | None:
    """Return the reason why a series does not cover a window of that length; None if it does."""
    if seen is None or seen.increase is None or seen.span_s is None:
        return "no readings over the window, or a counter that was set back in it"
    if seen.span_s < COVERED * length_s:
        return f"readings cover {seen.span_s:.3g} s of a window of {length_s:.3g} s"
    if seen.n < LEAST_STEPS:
        return f"{seen.n} readings are too few for a window of {length_s:.3g} s"
    return None if seen.increase > 0 else "the counter stands still"


def _part(
    scope: Scope, method: str, counters: Mapping[str, SeriesSummary | None], counts: WindowCounts
) -> Part | str:
    """Sum up, or return which counter does not cover the window; if readings cover slightly less than the window, its
    requests are scaled accordingly."""
    known = []
    for source, counter in counters.items():
        if fault := _fault(counter, counts.window.length_s):
            return f"{scope}: {source}: {fault}"
        assert counter is not None
        known.append(counter)
    window_s = min(counter.span_s or 0.0 for counter in known)
    watts = sum((counter.increase or 0.0) / (counter.span_s or 1.0) for counter in known)
    share = window_s / counts.window.length_s
    return Part(
        scope=scope,
        method=method,
        value_j=watts * window_s,
        window_s=window_s,
        requests=counts.replies * share,
        units=counts.arrived_units * share if counts.counts_units else 0.0,
    )


def _node(counts: WindowCounts, load: LoadRecord, nodes: int) -> Part | str:
    if nodes > 1:
        return f"node: the energy of the load's own step covers one node, and the deployment has {nodes}"
    node = load.energy.node
    if not node.value_j or not node.window_s:
        return f"node: {node.reason or 'not asked for'}"
    return Part(
        scope="node",
        method=f"Slurm ConsumedEnergyRaw of step {node.step}, over the whole load",
        value_j=float(node.value_j),
        window_s=float(node.window_s),
        requests=float(counts.whole_good),
        units=float(counts.whole_units) if counts.counts_units else 0.0,
    )
