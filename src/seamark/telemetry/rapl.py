"""Energy of processors and of their memory: RAPL's counters as Linux's powercap has them, for Intel and AMD."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seamark.telemetry.sampler import Reading

ROOT = Path("/")
CLASS = "sys/class/powercap"
MOST_W = 1000.0
"""No package draws more: a counter that could have wrapped around twice since the last look says nothing."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One counter. `name` is package0, package1, dram0, ...; it wraps around at `range_j`."""

    name: str
    file: Path
    range_j: float


def domains(root: Path = ROOT) -> list[Domain]:
    """Return packages and the memory beside them, which no package's counter includes.

    Cores and graphics are parts of a package, and a platform's counter (psys) includes packages: none of these is
    here, so that the sum of all counts nothing twice.
    """
    found = []
    for zone in sorted((root / CLASS).glob("intel-rapl:*")):
        name = _name(zone)
        if name == "dram":
            above = zone.with_name(zone.name.rpartition(":")[0])
            name = "dram" + _name(above).removeprefix("package")
        elif not name.startswith("package"):
            continue
        range_uj = _number(zone / "max_energy_range_uj")
        if range_uj:
            plain = re.sub(r"[^a-z0-9]", "", name)
            found.append(Domain(name=plain, file=zone / "energy_uj", range_j=range_uj / 1e6))
    return found


def why_unreadable(root: Path = ROOT) -> str | None:
    """Return why there are no such figures here, with the remedy where there is one; None when there are."""
    found = domains(root)
    if not found:
        return f"no RAPL counters in /{CLASS}: a virtual machine, or the module intel_rapl_msr is not loaded"
    for domain in found:
        try:
            int(domain.file.read_text())
        except PermissionError:
            return f"{domain.file} is closed to us: ask the site to let users read it"
        except (OSError, ValueError) as cause:
            return f"{domain.file}: {cause}"
    return None


class Counter:
    """Joules since the first look, of a counter that wraps around."""

    def __init__(self, range_j: float) -> None:
        self._range_j = range_j
        self._offset_j = 0.0
        self._before: tuple[float, float] | None = None

    def total_j(self, raw_j: float, at_s: float) -> float:
        """Return the total at `at_s` of a monotonic clock. It falls back to 0 after so long a gap that the counter
        may have wrapped around more than once: what was missed is not known."""
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
    """The energy of each package and of its memory since the first look."""

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._domains = [] if why_unreadable(root) else domains(root)
        self._counters = {domain.name: Counter(domain.range_j) for domain in self._domains}

    def read(self) -> Iterator[Reading]:
        """Return energy_j of package0, dram0, ..."""
        for domain in self._domains:
            raw_j = int(domain.file.read_text()) / 1e6
            total_j = self._counters[domain.name].total_j(raw_j, self._clock())
            yield Reading(source=domain.name, name="energy_j", value=total_j, unit="J")


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
