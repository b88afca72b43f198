"""What changes on a node while trials run: load, free memory, clock, and who else works there."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.memory import meminfo
from seamark.telemetry.provenance.mounts import mount_table
from seamark.telemetry.provenance.text import ROOT, number, text

Facts = dict[str, Any]
FIRST_USER, NOBODY = 1000, 65534
"""Below and at these are accounts of the system, as login.defs has them."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def now() -> str:
    """Return this moment as ISO 8601 with its zone."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def moment(root: Path = ROOT) -> Facts:
    """Return what does change: load, free memory in bytes, clock; taken before and after a trial."""
    sizes = meminfo(root)
    khz = number(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    return {
        "at": now(),
        "monotonic_ns": time.monotonic_ns(),
        "load_average": [float(word) for word in (text(root / "proc/loadavg") or "").split()[:3]],
        "memory_available_bytes": sizes.get("MemAvailable"),
        "swap_used_bytes": sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0),
        "cpu_frequency_hz": None if khz is None else khz * 1000,
        "processes": len(_pids(root)),
        "others": others(os.getuid(), root),
    }


def others(uid: int, root: Path = ROOT) -> Facts:
    """Return how many users other than `uid` and those of the system have processes here, how many processes, how
    many of these run at this moment, and the CPU time that all of them have used; with the reason where the kernel
    hides them. Nobody is named."""
    found: Facts = {"reason": None, "users": None, "processes": None, "running": None, "cpu_s": None}
    if _hidden(root):
        return found | {"reason": "/proc shows the own processes only (hidepid)"}
    seen = [(owner, pid) for pid in _pids(root) if _is_other(owner := _owner(root, pid), uid)]
    states = [state for _, pid in seen if (state := _state(root, pid)) is not None]
    return found | {
        "users": len({owner for owner, _ in seen}),
        "processes": len(seen),
        "running": sum(letter == "R" for letter, _ in states),
        "cpu_s": round(sum(cpu_s for _, cpu_s in states), 2),
    }


def _pids(root: Path) -> list[str]:
    try:
        return [entry.name for entry in (root / "proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _hidden(root: Path) -> bool:
    options = next((mount.options for mount in reversed(mount_table(root)) if str(mount.point) == "/proc"), "")
    set_to = [word.partition("=")[2] for word in options.split(",") if word.startswith("hidepid=")]
    return any(value not in ("0", "off") for value in set_to)


def _is_other(owner: int | None, uid: int) -> bool:
    return owner is not None and owner != uid and owner >= FIRST_USER and owner != NOBODY


def _owner(root: Path, pid: str) -> int | None:
    for line in (text(root / "proc" / pid / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _state(root: Path, pid: str) -> tuple[str, float] | None:
    """Return state and CPU seconds of a process, None when it is gone."""
    fields = (text(root / "proc" / pid / "stat") or "").rpartition(")")[2].split()
    return (fields[0], (int(fields[11]) + int(fields[12])) / TICKS_PER_S) if len(fields) > 12 else None
