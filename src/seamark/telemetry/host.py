"""Resources of the whole machine: processors, memory, disks, network, by psutil, and the kernel's pressure (PSI)."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from seamark.telemetry.sampler import Reading

PRESSURES = ("cpu", "io", "memory")


class Host:
    """CPU since the last read as a ratio of the machine; memory; bytes transferred since boot.

    `proc` is the folder of the kernel's files.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before = psutil.cpu_times()
        self._stalled_s = self._stalled()
        self._at_s = time.monotonic()

    def read(self) -> Iterator[Reading]:
        """Yield cpu_ratio, and of it cpu_steal_ratio and cpu_irq_ratio (interrupts, soft ones too); cpu_iowait_ratio,
        processors, load_average, *_pressure_ratio, ram_used_bytes, read_bytes, write_bytes, net_*_bytes. A pressure
        is the share of time in which some task waited for the resource."""
        before, self._before = self._before, psutil.cpu_times()
        spent = spent_s(before, self._before)
        total_s = sum(spent.values())
        if total_s > 0:
            iowait_s = spent.get("iowait", 0.0)
            yield _reading("cpu_ratio", (total_s - spent["idle"] - iowait_s) / total_s, "ratio")
            yield _reading("cpu_iowait_ratio", iowait_s / total_s, "ratio")
            yield _reading("cpu_steal_ratio", spent.get("steal", 0.0) / total_s, "ratio")
            yield _reading("cpu_irq_ratio", (spent.get("irq", 0.0) + spent.get("softirq", 0.0)) / total_s, "ratio")
        yield _reading("processors", psutil.cpu_count() or 1, "processors")
        yield _reading("load_average", os.getloadavg()[0], "tasks")
        yield from self._pressure()
        memory = psutil.virtual_memory()
        yield _reading("ram_used_bytes", memory.total - memory.available, "bytes")
        if disks := psutil.disk_io_counters():
            yield _reading("read_bytes", disks.read_bytes, "bytes")
            yield _reading("write_bytes", disks.write_bytes, "bytes")
        if network := psutil.net_io_counters():
            yield _reading("net_received_bytes", network.bytes_recv, "bytes")
            yield _reading("net_sent_bytes", network.bytes_sent, "bytes")

    def _pressure(self) -> Iterator[Reading]:
        before, before_s = self._stalled_s, self._at_s
        self._stalled_s, self._at_s = self._stalled(), time.monotonic()
        for name, stalled_s in self._stalled_s.items():
            if name in before and self._at_s > before_s:
                ratio = min(1.0, max(0.0, stalled_s - before[name]) / (self._at_s - before_s))
                yield _reading(f"{name}_pressure_ratio", ratio, "ratio")

    def _stalled(self) -> Mapping[str, float]:
        """Return the seconds since boot in which some task waited, by resource; empty for a kernel without PSI."""
        stalled_s: dict[str, float] = {}
        for name in PRESSURES:
            with contextlib.suppress(OSError, ValueError):
                some = (self._proc / "pressure" / name).read_text().splitlines()[0]
                stalled_s[name] = int(some.rpartition("total=")[2]) / 1e6
        return stalled_s


def spent_s(before: Any, now: Any) -> dict[str, float]:
    """Return the seconds that processors have spent in each state between two `psutil.cpu_times()`; those of guests
    are in user and nice already."""
    names = (name for name in now._fields if not name.startswith("guest"))
    return {name: max(0.0, getattr(now, name) - getattr(before, name)) for name in names}


def _reading(name: str, value: float, unit: str) -> Reading:
    return Reading(source="host", name=name, value=float(value), unit=unit)
