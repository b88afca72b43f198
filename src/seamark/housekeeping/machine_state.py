"""The present state of this machine: what others use of it, frequency, swap and clock, and what of it is worth a
warning before a load. Read-only."""

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from seamark.platform.process_tree import descendants
from seamark.report.numbers import percent
from seamark.telemetry.host import spent_s
from seamark.telemetry.kernel_files import ROOT, read_text
from seamark.telemetry.provenance import hardware

Level = Literal["ok", "warning", "problem"]
BUSY, BUSY_PROCESS = 0.15, 0.05
"""Busy ratio of the machine from which on times vary; cores that a process uses from which on it is named."""
STEAL = 0.05
SWAPPED, SWAPPED_OF = 64 << 20, 0.05
"""Bytes in swap, and their ratio of it, below which some idle pages were moved there long ago."""
SHORT_S = 0.3
"""Time for which the machine is watched before a load: enough to see a process that computes."""
FEW_BYTES = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of one check, with the remedy for a warning or problem."""

    what: str
    level: Level
    seen: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """State of a machine; None for what it does not tell.

    `others_ratio` is the use of all processors by other processes than this one, `steal_ratio` that of other machines
    of a hypervisor; `busiest` are the cores that the busiest processes used, by name. They are None when the
    machine was not watched for a while. `turbo`: cores may exceed their base frequency.
    """

    others_ratio: float | None = None
    steal_ratio: float | None = None
    busiest: Mapping[str, float] | None = None
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    synchronised: bool | None = None


def state_of(root: Path = ROOT, *, interval_s: float = 0.0, own: Collection[int | None] = ()) -> MachineState:
    """Return the present state of this machine, watched for `interval_s`. `root` has the kernel's files; processes of
    `own`, and all below them, are no others."""
    others = steal = busiest = None
    if interval_s > 0:
        others, steal, busiest = _used(interval_s, own)
    sizes, kernel = hardware.meminfo(root), hardware.kernel_state()
    total, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    return MachineState(
        others_ratio=others,
        steal_ratio=steal,
        busiest=busiest,
        governors=_governors(root),
        turbo=hardware.turbo(root),
        swap_used_bytes=None if total is None or free is None else total - free,
        swap_total_bytes=total,
        synchronised=None if kernel is None else kernel.synchronised,
    )


def other_load(state: MachineState) -> Finding:
    """Check what other processes use now."""
    what = "other load"
    if state.others_ratio is None:
        return Finding(what=what, level="ok", seen="not watched")
    steal = state.steal_ratio or 0.0
    seen = f"other processes use {percent(state.others_ratio)} % of the processors now"
    if steal >= STEAL:
        seen += f", and a hypervisor gives {percent(steal)} % to other machines (steal)"
    if state.others_ratio <= BUSY and steal < STEAL:
        return Finding(what=what, level="ok", seen=seen)
    named = [f"{name} {cores:.1f} cores" for name, cores in (state.busiest or {}).items()]
    seen += f" ({', '.join(named)})" if named else ""
    return Finding(
        what=what, level="warning", seen=seen, remedy="Times vary with it. Measure when nothing else runs."
    )


def governor(state: MachineState) -> Finding:
    """Check that cores do not wait for a load before they become fast."""
    what = "CPU governor"
    if not state.governors:
        return Finding(what=what, level="ok", seen="not reported by this machine")
    seen = ", ".join(state.governors)
    if state.governors == ("performance",):
        return Finding(what=what, level="ok", seen=seen)
    remedy = "Cores change their frequency with the load: `cpupower frequency-set -g performance`."
    return Finding(what=what, level="warning", seen=seen, remedy=remedy)


def turbo(state: MachineState) -> Finding:
    """Check whether the frequency depends on temperature and on the number of busy cores. Never a warning: nearly
    every machine has it on, and whether it matters shows in the repetitions."""
    if state.turbo is None:
        return Finding(what="turbo", level="ok", seen="not reported by this machine")
    seen = "on: frequency depends on temperature and on busy cores" if state.turbo else "off"
    return Finding(what="turbo", level="ok", seen=seen)


def swap(state: MachineState) -> Finding:
    """Check that no considerable part of memory lies in swap."""
    used, total = state.swap_used_bytes, state.swap_total_bytes
    if used is None or total is None:
        return Finding(what="swap", level="ok", seen="not reported by this machine")
    if not total:
        return Finding(what="swap", level="ok", seen="none")
    seen = f"{used / 1e6:,.0f} of {total / 1e6:,.0f} MB in use"
    if used < max(SWAPPED, SWAPPED_OF * total):
        return Finding(what="swap", level="ok", seen=seen)
    remedy = "Pages come back from a disk in the middle of a load: free some memory first."
    return Finding(what="swap", level="warning", seen=seen, remedy=remedy)


def synchronised(state: MachineState) -> Finding:
    """Check that something synchronises the clock."""
    if state.synchronised is None:
        return Finding(what="clock sync", level="ok", seen="not reported by this machine")
    if state.synchronised:
        return Finding(what="clock sync", level="ok", seen="synchronised")
    remedy = "Times of several machines cannot be compared: start chrony, ntpd or systemd-timesyncd."
    return Finding(what="clock sync", level="warning", seen="not synchronised", remedy=remedy)


def free_space(folder: Path) -> Finding:
    """Check that results fit: a warning below 2 GB."""
    while not folder.exists():
        folder = folder.parent
    free = psutil.disk_usage(str(folder)).free
    level: Level = "warning" if free < FEW_BYTES else "ok"
    return Finding(what="disk space", level=level, seen=f"{free / 1e9:.1f} GB free", remedy="Free some space.")


def warnings_before_load(
    state: MachineState, *, several_machines: bool = False, results: Path | None = None
) -> tuple[str, ...]:
    """Return a line for each thing that would spoil the numbers of a load here; usually none.

    Left out is what nearly every machine has and no user changes for one measurement: turbo, the length of queues,
    the number of ports. The clock's synchronisation matters to loads on several machines only.
    """
    findings = [other_load(state), governor(state), swap(state)]
    findings += [synchronised(state)] if several_machines else []
    findings += [free_space(results)] if results is not None else []
    return tuple(
        f"Warning: {finding.what}: {finding.seen}. {finding.remedy}" for finding in findings if finding.level != "ok"
    )


def _used(interval_s: float, own: Collection[int | None]) -> tuple[float | None, float | None, dict[str, float]]:
    """Watch all processes for a while: the ratios of others and of steal, and the busiest processes."""
    before, times, began_s = _cpu_s_by_process(), psutil.cpu_times(), time.monotonic()
    time.sleep(interval_s)
    now, after, took_s = _cpu_s_by_process(), psutil.cpu_times(), time.monotonic() - began_s
    spent = spent_s(times, after)
    total_s = sum(spent.values())
    if total_s <= 0:
        return None, None, {}
    used = {pid: (name, max(0.0, cpu_s - before[pid][1])) for pid, (name, cpu_s) in now.items() if pid in before}
    trees = {os.getpid(), *(pid for root in own if root is not None for pid in (root, *descendants(root)))}
    own_s = sum(used.pop(pid, ("", 0.0))[1] for pid in trees)
    steal_s = spent.get("steal", 0.0)
    busy_s = total_s - spent["idle"] - spent.get("iowait", 0.0) - steal_s - own_s
    busiest = sorted(used.values(), key=lambda process: -process[1])[:2]
    cores = {name: cpu_s / took_s for name, cpu_s in busiest if cpu_s / took_s >= BUSY_PROCESS}
    return max(0.0, busy_s) / total_s, steal_s / total_s, cores


def _cpu_s_by_process() -> dict[int, tuple[str, float]]:
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        if (times := process.info["cpu_times"]) is not None:
            found[process.pid] = process.info["name"], times.user + times.system
    return found


def _governors(root: Path) -> tuple[str, ...]:
    """Return the governors of all cores, each once."""
    files = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    return tuple(sorted({text for file in files if (text := read_text(file))}))
