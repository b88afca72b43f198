"""Energy of a load: RAPL counters of processors and memory, Slurm's consumed energy of a node, and why a scope is
unknown."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamark.dispatch.identity import job_step
from seamark.dispatch.slurm.commands import query
from seamark.model.results.load_record import EnergyRecord, NodeEnergy, PackageCounters
from seamark.telemetry.kernel_files import ROOT, read_number, read_text
from seamark.telemetry.sampler import Reading

CLASS = "sys/class/powercap"
MOST_W = 1000.0
"""No package draws more: a counter that may have wrapped around twice since the last read has no value."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One RAPL counter of Linux's powercap, for Intel and AMD. `name` is package0, package1, dram0, ...; it wraps
    around at `range_j`."""

    name: str
    file: Path
    range_j: float


def domains(root: Path = ROOT) -> list[Domain]:
    """Return the packages, and the memory domains that no package counter includes.

    Cores and graphics are parts of a package, and the platform domain (psys) includes packages: all of these are
    excluded, so that nothing is counted twice.
    """
    rapl_domains = []
    for zone in sorted((root / CLASS).glob("intel-rapl:*")):
        name = read_text(zone / "name") or ""
        if name == "dram":
            above = zone.with_name(zone.name.rpartition(":")[0])
            name = "dram" + (read_text(above / "name") or "").removeprefix("package")
        elif not name.startswith("package"):
            continue
        range_uj = read_number(zone / "max_energy_range_uj")
        if range_uj:
            plain = re.sub(r"[^a-z0-9]", "", name)
            rapl_domains.append(Domain(name=plain, file=zone / "energy_uj", range_j=range_uj / 1e6))
    return rapl_domains


def why_unreadable(root: Path = ROOT) -> str | None:
    """Return why RAPL is unavailable here, with the remedy if there is one; None if it is available."""
    rapl_domains = domains(root)
    if not rapl_domains:
        return f"no RAPL counters in /{CLASS}: a virtual machine, or the module intel_rapl_msr is not loaded"
    for domain in rapl_domains:
        try:
            int(domain.file.read_text())
        except PermissionError:
            return f"{domain.file} is not readable: ask the site to let users read it"
        except (OSError, ValueError) as cause:
            return f"{domain.file}: {cause}"
    return None


class Counter:
    """Joules since the first read, of a counter that wraps around."""

    def __init__(self, range_j: float) -> None:
        self._range_j = range_j
        self._offset_j = 0.0
        self._before: tuple[float, float] | None = None

    def total_j(self, raw_j: float, at_s: float) -> float:
        """Return the total at `at_s` of a monotonic clock. It restarts at 0 after a gap so long that the counter may
        have wrapped around more than once: what was missed is unknown."""
        if self._before is not None:
            before_j, before_s = self._before
            if (at_s - before_s) * MOST_W >= self._range_j:
                self._offset_j = -raw_j
            elif raw_j < before_j:
                self._offset_j += self._range_j
        else:
            self._offset_j = -raw_j
        self._before = raw_j, at_s
        return raw_j + self._offset_j


class Rapl:
    """Energy of each package and of its memory since the first read."""

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._domains = [] if why_unreadable(root) else domains(root)
        self._counters = {domain.name: Counter(domain.range_j) for domain in self._domains}

    def read(self) -> Iterator[Reading]:
        """Yield energy_j of package0, dram0, ..."""
        for domain in self._domains:
            raw_j = int(domain.file.read_text()) / 1e6
            total_j = self._counters[domain.name].total_j(raw_j, self._clock())
            yield Reading(source=domain.name, name="energy_j", value=total_j, unit="J")


WAIT_S = 10.0
LEAST_LOOKS = 4
FIELDS = "ConsumedEnergyRaw"


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """Energy that a Slurm step had used at a time of the monotonic clock; `reason` says why it is unknown.

    `every_s` is the interval in which Slurm reads the node's meter.
    """

    at_s: float
    joules: float | None = None
    step: str | None = None
    every_s: float = 0.0
    reason: str | None = None


def consumed(environment: Mapping[str, str] = os.environ) -> Consumed:
    """Return the energy used by this step (ConsumedEnergyRaw, joules), by sstat, else by sacct. Runs no command
    outside of a job."""
    at_s = time.monotonic()
    step = job_step(environment)
    if step is None:
        return Consumed(at_s=at_s, reason="not in a Slurm job")
    config = query("scontrol", "show", "config", within_s=WAIT_S)
    if config is None:
        return Consumed(at_s=at_s, reason="scontrol does not answer")
    kind = _setting(config, "AcctGatherEnergyType")
    if kind is None or kind.rpartition("/")[2] in ("none", "(null)"):
        return Consumed(at_s=at_s, reason="Slurm gathers no energy here (AcctGatherEnergyType is none)")
    every_s = float((_setting(config, "AcctGatherNodeFreq") or "0").split()[0])
    job = step.partition(".")[0]
    for ask in (
        ("sstat", "--allsteps", f"--jobs={job}", f"--format=JobID,{FIELDS}"),
        ("sacct", f"--jobs={job}", f"--format=JobIDRaw,{FIELDS}"),
    ):
        joules = _of_step(query(*ask, "--noheader", "--parsable2", within_s=WAIT_S) or "", step)
        if joules is not None:
            return Consumed(at_s=time.monotonic(), joules=joules, step=step, every_s=every_s)
    return Consumed(at_s=at_s, reason=f"neither sstat nor sacct has {FIELDS} of step {step}")


def spent(before: Consumed, after: Consumed) -> NodeEnergy:
    """Return the energy used between two readings, as in load.json: value_j, window_s, step, reason."""
    step = after.step
    if before.joules is None or after.joules is None:
        return NodeEnergy(step=step, reason=before.reason or after.reason)
    window_s, value_j = after.at_s - before.at_s, after.joules - before.joules
    if value_j <= 0:
        return NodeEnergy(step=step, reason=f"{FIELDS} of step {step} did not grow while the load ran")
    if window_s < LEAST_LOOKS * after.every_s:
        reason = f"Slurm reads the meter every {after.every_s:g} s, and the load took {window_s:.3g} s only"
        return NodeEnergy(step=step, reason=reason)
    return NodeEnergy(value_j=value_j, window_s=round(window_s, 3), step=step)


def _setting(config: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*=\s*(\S.*?)\s*$", config, re.MULTILINE)
    return match.group(1) if match else None


def _of_step(output: str, step: str) -> float | None:
    """Return the figure of a step; None without one, or for the 0 of a meter that was never read."""
    for line in output.splitlines():
        name, _, value = line.partition("|")
        if name == step and value.strip().isdigit() and int(value) > 0:
            return float(value)
    return None


def after_load(before: Consumed, root: Path = ROOT) -> EnergyRecord:
    """Return the entry `energy` of load.json: RAPL counters in telemetry, and the energy of the node by Slurm.

    A scope without data has a `reason`.
    """
    reason = why_unreadable(root)
    counters = () if reason else tuple(domain.name for domain in domains(root))
    package = PackageCounters(counters=counters, reason=reason)
    return EnergyRecord(package=package, node=spent(before, consumed()))


def idle_power_w(telemetry: Path, between_unix_s: Sequence[float] | None) -> dict[str, float]:
    """Return the mean power in watts by scope (gpu, package) over that time of a deployment's telemetry: from energy
    counters if available, else from power readings. Empty if neither is."""
    if not between_unix_s:
        return {}
    from seamark.telemetry.cut import cut

    began_s, end_s = between_unix_s
    series: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in cut([telemetry], began_s, end_s - began_s).to_pylist():
        if row["name"] in ("energy_j", "power_w"):
            series.setdefault((row["source"], row["name"]), []).append((row["at_s"], row["value"]))
    power_by_scope_w: dict[str, float] = {}
    for source in sorted({source for source, _ in series}):
        power_w = _mean_power_w(series.get((source, "energy_j"), []), series.get((source, "power_w"), []))
        if power_w is not None:
            scope = "gpu" if source.startswith("gpu") else "package"
            power_by_scope_w[scope] = power_by_scope_w.get(scope, 0.0) + power_w
    return power_by_scope_w


def _mean_power_w(energy: list[tuple[float, float]], power: list[tuple[float, float]]) -> float | None:
    if len(energy) > 2:
        (began_s, first_j), (end_s, last_j) = energy[0], energy[-1]
        if last_j > first_j and end_s > began_s:
            return (last_j - first_j) / (end_s - began_s)
    return sum(value for _, value in power) / len(power) if power else None
