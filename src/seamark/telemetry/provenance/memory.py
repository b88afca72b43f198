"""Memory: how much there is, and in what pages."""

from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.text import ROOT, chosen, number, text

Facts = dict[str, Any]


def memory(root: Path = ROOT) -> Facts:
    """Return memory and swap in bytes, huge pages by their size in kB, and how the kernel hands pages out."""
    sizes = meminfo(root)
    return {
        "total_bytes": sizes.get("MemTotal"),
        "swap_bytes": sizes.get("SwapTotal"),
        "transparent_hugepages": chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        "hugepages": _hugepages(root),
        "numa_balancing": number(root / "proc/sys/kernel/numa_balancing"),
        "swappiness": number(root / "proc/sys/vm/swappiness"),
    }


def meminfo(root: Path = ROOT) -> dict[str, int]:
    """Return the sizes of /proc/meminfo in bytes; counts of pages are left out."""
    found = {}
    for line in (text(root / "proc/meminfo") or "").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            found[words[0].rstrip(":")] = int(words[1]) * 1024
    return found


def _hugepages(root: Path) -> dict[str, Facts]:
    found = {}
    for folder in sorted((root / "sys/kernel/mm/hugepages").glob("hugepages-*")):
        size = folder.name.removeprefix("hugepages-")
        found[size] = {"total": number(folder / "nr_hugepages"), "free": number(folder / "free_hugepages")}
    return found
