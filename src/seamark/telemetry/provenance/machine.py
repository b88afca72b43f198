"""One node: its constant facts, and its state before and after a trial (load, free memory, clock, other users)."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from seamark.dispatch.identity import node
from seamark.model.results.trial_meta import Machine, NodeReport, NodeState, OtherUsers
from seamark.telemetry.kernel_files import ROOT, read_number, read_text
from seamark.telemetry.provenance.hardware import clock, gpus, meminfo, memory, network, processors
from seamark.telemetry.provenance.mounts import mount_table, mounts
from seamark.telemetry.provenance.software import os_name

FIRST_USER, NOBODY = 1000, 65534
"""Ids below FIRST_USER, and NOBODY, are system accounts, as in login.defs."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def now() -> str:
    """Return the current time in ISO 8601 with its zone."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def moment(root: Path = ROOT) -> NodeState:
    """Return the state of the node, recorded before and after a trial: load, free memory in bytes, clock."""
    sizes = meminfo(root)
    khz = read_number(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    return NodeState(
        at=now(),
        monotonic_ns=time.monotonic_ns(),
        load_average=tuple(float(word) for word in (read_text(root / "proc/loadavg") or "").split()[:3]),
        memory_available_bytes=sizes.get("MemAvailable"),
        swap_used_bytes=sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0),
        cpu_frequency_hz=None if khz is None else khz * 1000,
        processes=len(_pids(root)),
        others=others(os.getuid(), root),
    )


def others(uid: int, root: Path = ROOT) -> OtherUsers:
    """Return the activity of other users, without names: number of users except `uid` and the system's, of their
    processes, of those running now, and their total CPU time; or the reason if the kernel hides them."""
    if _hidden(root):
        return OtherUsers(reason="/proc shows the own processes only (hidepid)")
    processes = [(owner, pid) for pid in _pids(root) if _is_other(owner := _owner(root, pid), uid)]
    states = [state for _, pid in processes if (state := _state(root, pid)) is not None]
    return OtherUsers(
        users=len({owner for owner, _ in processes}),
        processes=len(processes),
        running=sum(letter == "R" for letter, _ in states),
        cpu_s=round(sum(cpu_s for _, cpu_s in states), 2),
    )


def _pids(root: Path) -> list[str]:
    try:
        return [entry.name for entry in (root / "proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _hidden(root: Path) -> bool:
    options = next((mount.options for mount in reversed(mount_table(root)) if mount.mount == "/proc"), None)
    set_to = [word.partition("=")[2] for word in (options or "").split(",") if word.startswith("hidepid=")]
    return any(value not in ("0", "off") for value in set_to)


def _is_other(owner: int | None, uid: int) -> bool:
    return owner is not None and owner != uid and owner >= FIRST_USER and owner != NOBODY


def _owner(root: Path, pid: str) -> int | None:
    for line in (read_text(root / "proc" / pid / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _state(root: Path, pid: str) -> tuple[str, float] | None:
    """Return state and CPU seconds of a process, None if it is gone."""
    fields = (read_text(root / "proc" / pid / "stat") or "").rpartition(")")[2].split()
    return (fields[0], (int(fields[11]) + int(fields[12])) / TICKS_PER_S) if len(fields) > 12 else None


def machine(paths: Mapping[str, Path] | None = None, root: Path = ROOT) -> Machine:
    """Return the facts that do not change during a trial. `paths` are those that it uses, by role."""
    cpu, pages = processors(root), memory(root)
    return Machine(
        hostname=node(),
        cpu_model=cpu.model,
        cpus_logical=cpu.threads,
        cpus_physical=cpu.cores,
        cpus_allowed=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=pages.total_bytes,
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        os=os_name(),
        governor=cpu.governor,
        transparent_hugepages=pages.transparent_hugepages,
        cgroup=read_text(root / "proc/self/cgroup"),
        cpu=cpu,
        memory=pages,
        clock=clock(root),
        gpu=gpus(root),
        network=network(root),
        mounts=mounts(paths or {}, root),
    )


def described(paths: Mapping[str, Path], *, whole: bool = True) -> NodeReport:
    """Return this node: name, state, and with `whole` its constant facts."""
    return NodeReport(node=node(), moment=moment(), machine=machine(paths) if whole else None)
