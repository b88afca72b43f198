"""What can be known of energy while a load runs, and why the rest cannot: the entry `energy` of load.json."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seamark.model.results.load_record import EnergyRecord, PackageCounters
from seamark.telemetry.rapl import ROOT, domains, why_unreadable
from seamark.telemetry.slurm_energy import Consumed, consumed, spent


def before_load() -> Consumed:
    """Look at what has to be asked for before a load and after it."""
    return consumed(os.environ)


def after_load(before: Consumed, root: Path = ROOT, idle_w: Mapping[str, float] | None = None) -> EnergyRecord:
    """Return the counters that telemetry has of this node's packages, and the node's energy as Slurm counts it.

    A scope without figures has a `reason`. `idle_w` is the idle power by scope, where it is known.
    """
    reason = why_unreadable(root)
    counters = [] if reason else [domain.name for domain in domains(root)]
    return EnergyRecord(
        package=PackageCounters(counters=tuple(counters), reason=reason),
        node=spent(before, consumed(os.environ)),
        idle_w=idle_w or {},
    )


def idle_power_w(telemetry: Path, between_unix_s: Sequence[float] | None) -> dict[str, float]:
    """Return mean power in watts by scope (gpu, package) over that time of a deployment's telemetry: of energy
    counters where there are, else of readings of power. Empty where nothing is known."""
    if not between_unix_s:
        return {}
    from seamark.telemetry.cut import cut

    began_s, end_s = between_unix_s
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in cut([telemetry], began_s, end_s - began_s).to_pylist():
        if row["name"] in ("energy_j", "power_w"):
            series.setdefault((row["source"], row["name"]), []).append((row["at_s"], row["value"]))
    found: dict[str, float] = {}
    for source in sorted({source for source, _ in series}):
        power_w = _mean_power_w(series.get((source, "energy_j"), []), series.get((source, "power_w"), []))
        if power_w is not None:
            scope = "gpu" if source.startswith("gpu") else "package"
            found[scope] = found.get(scope, 0.0) + power_w
    return found


def _mean_power_w(energy: list[tuple[float, float]], power: list[tuple[float, float]]) -> float | None:
    if len(energy) > 2:
        (began_s, first_j), (end_s, last_j) = energy[0], energy[-1]
        if last_j > first_j and end_s > began_s:
            return (last_j - first_j) / (end_s - began_s)
    return sum(value for _, value in power) / len(power) if power else None
