"""Processors: model, cores, hardware threads, NUMA nodes, and what sets their clock."""

import os
import platform
from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.text import ROOT, number, numbered, one_or_each, text

Facts = dict[str, Any]
OPTIONS = ("mitigations", "isolcpus", "nohz_full", "intel_pstate", "amd_pstate", "intel_idle.max_cstate", "idle")
"""What of the kernel's command line changes how fast processors are."""


def cpu_model(root: Path = ROOT) -> str | None:
    """Return the processor's name as the kernel has it."""
    return _of_cpuinfo(root, "model name") or platform.processor() or None


def processors(root: Path = ROOT) -> Facts:
    """Return model, sockets, cores, threads, clock limits in Hz, governor, turbo and NUMA nodes.

    What is not the same on all CPUs says `mixed:`. None: this machine does not say, as virtual ones often do.
    """
    folder = root / "sys/devices/system/cpu"
    clocks = [path / "cpufreq" for path in numbered(folder, "cpu")]
    topology = [path / "topology" for path in numbered(folder, "cpu")]
    cores = {(text(path / "physical_package_id"), text(path / "core_id")) for path in topology}
    sockets = {text(path / "physical_package_id") for path in topology} - {None}
    return {
        "model": cpu_model(root),
        "microcode": _of_cpuinfo(root, "microcode"),
        "virtual": "hypervisor" in (_of_cpuinfo(root, "flags") or "").split(),
        "online": text(folder / "online"),
        "isolated": text(folder / "isolated") or None,
        "allowed": len(os.sched_getaffinity(0)),
        "sockets": len(sockets) or None,
        "cores": len(cores) if sockets else None,
        "threads": len(topology),
        "smt": text(folder / "smt/control"),
        "governor": one_or_each(text(path / "scaling_governor") for path in clocks),
        "driver": one_or_each(text(path / "scaling_driver") for path in clocks),
        "preference": one_or_each(text(path / "energy_performance_preference") for path in clocks),
        "least_hz": _hz(clocks, "scaling_min_freq"),
        "most_hz": _hz(clocks, "scaling_max_freq"),
        "hardware_most_hz": _hz(clocks, "cpuinfo_max_freq"),
        "turbo": turbo(root),
        "idle_driver": text(folder / "cpuidle/current_driver"),
        "numa_nodes": [{"cpus": text(path / "cpulist"), **_memory(path)} for path in _numa(root)],
        "kernel_options": [word for word in (text(root / "proc/cmdline") or "").split() if _sets(word)],
    }


def turbo(root: Path = ROOT) -> bool | None:
    """Return whether processors may go above their nominal clock, None where the kernel does not say."""
    folder = root / "sys/devices/system/cpu"
    off = number(folder / "intel_pstate/no_turbo")
    if off is not None:
        return off == 0
    boost = number(folder / "cpufreq/boost")
    return None if boost is None else boost == 1


def _hz(clocks: list[Path], name: str) -> str | int | None:
    found = (number(path / name) for path in clocks)
    return one_or_each(None if khz is None else khz * 1000 for khz in found)


def _numa(root: Path) -> list[Path]:
    return numbered(root / "sys/devices/system/node", "node")


def _memory(node: Path) -> Facts:
    for line in (text(node / "meminfo") or "").splitlines():
        words = line.split()
        if "MemTotal:" in words:
            return {"memory_bytes": int(words[words.index("MemTotal:") + 1]) * 1024}
    return {"memory_bytes": None}


def _of_cpuinfo(root: Path, name: str) -> str | None:
    for line in (text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip() or None
    return None


def _sets(word: str) -> bool:
    return word.partition("=")[0] in OPTIONS
