"""Where and with what a number was measured: machine, software, git, batch job. Reads, never changes."""

import hashlib
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from seamark import __version__

CPU_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")
SLURM_KEYS = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_NODELIST", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS")


def now() -> str:
    """Return this moment as ISO 8601 with its zone."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def hostname() -> str:
    """Return this node's name."""
    return platform.node()


def machine() -> dict[str, Any]:
    """Return what does not change while a trial runs: CPU, memory in bytes, kernel, limits."""
    return {
        "hostname": hostname(),
        "cpu_model": _cpu_model(),
        "cpus_logical": psutil.cpu_count(logical=True),
        "cpus_physical": psutil.cpu_count(logical=False),
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "os": _os_name(),
        "governor": _read(CPU_FREQUENCY / "scaling_governor"),
        "transparent_hugepages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "cgroup": _read(Path("/proc/self/cgroup")),
    }


def moment() -> dict[str, Any]:
    """Return what does change: load, free memory in bytes, clock; taken before and after a trial."""
    memory = psutil.virtual_memory()
    return {
        "at": now(),
        "monotonic_ns": time.monotonic_ns(),
        "load_average": list(os.getloadavg()),
        "memory_available_bytes": memory.available,
        "swap_used_bytes": psutil.swap_memory().used,
        "cpu_frequency_khz": _read(CPU_FREQUENCY / "scaling_cur_freq"),
        "processes": len(psutil.pids()),
    }


def software(root: Path, lock: Path | None) -> dict[str, Any]:
    """Return versions of ours and of Python, the lock's digest and the state of the study's git checkout."""
    return {
        "seamark": __version__,
        "python": platform.python_version(),
        "lock": None if lock is None else lock.name,
        "lock_sha256": None if lock is None else hashlib.sha256(lock.read_bytes()).hexdigest(),
        **git(root),
    }


def git(root: Path) -> dict[str, Any]:
    """Return commit and cleanness of the checkout that holds `root`; nulls outside of one."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_dirty": None}
    return {"git_commit": commit, "git_dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no"))}


def slurm(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the batch job's own names, or None outside of one."""
    found = {key.lower(): environment[key] for key in SLURM_KEYS if key in environment}
    return found or None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", root, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.system()
