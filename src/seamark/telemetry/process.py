"""The server's processes, as one: what the process and everything below it use. Reads /proc."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from seamark.platform.process_tree import descendants, status
from seamark.telemetry.sampler import Reading

CGROUPS = Path("/sys/fs/cgroup")


class ProcessTree:
    """CPU since the last look as a ratio of the machine, memory, bytes that went to and from disks, threads.

    Children that came and went between two looks count once their parent has waited for them. Memory is the sum
    of resident sets: pages that processes share count for each of them. A process in a control group of its own
    (not ours) has the group's figures as well.
    """

    def __init__(self, pid: int, source: str = "server") -> None:
        self._pid = pid
        self._source = source
        self._cores = os.cpu_count() or 1
        self._cpu_s: dict[int, float] = {}
        self._at_s: float | None = None

    def read(self) -> Iterator[Reading]:
        """Return cpu_ratio, rss_bytes, threads, read_bytes, write_bytes; nothing once the process is gone."""
        found = [seen for pid in (self._pid, *descendants(self._pid)) if (seen := status(pid))]
        if not found:
            return
        before_s, self._at_s = self._at_s, time.monotonic()
        cpu_s = {seen.pid: seen.cpu_s for seen in found}
        if before_s is not None and self._at_s > before_s:
            yield self._reading("cpu_ratio", self._spent_s(cpu_s) / (self._at_s - before_s) / self._cores, "ratio")
        self._cpu_s = cpu_s
        yield self._reading("rss_bytes", sum(seen.rss_bytes for seen in found), "bytes")
        yield self._reading("threads", sum(seen.threads for seen in found), "threads")
        moved = [bytes_moved(seen.pid) for seen in found]
        if known := [one for one in moved if one is not None]:
            yield self._reading("read_bytes", sum(one[0] for one in known), "bytes")
            yield self._reading("write_bytes", sum(one[1] for one in known), "bytes")
        if group := own_cgroup(self._pid):
            yield from self._cgroup(group)

    def _spent_s(self, cpu_s: dict[int, float]) -> float:
        """Return CPU seconds since the last look. A child's time moves to its parent when it ends: no gain then."""
        gained = sum(cpu_s.values()) - sum(self._cpu_s.values())
        return max(0.0, gained)

    def _cgroup(self, group: Path) -> Iterator[Reading]:
        for file, name, unit in (("memory.current", "cgroup_ram_bytes", "bytes"),):
            yield self._reading(name, float((group / file).read_text()), unit)
        usage = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        yield self._reading("cgroup_cpu_s", float(usage["usage_usec"]) / 1e6, "s")

    def _reading(self, name: str, value: float, unit: str) -> Reading:
        return Reading(source=self._source, name=name, value=float(value), unit=unit)


def bytes_moved(pid: int) -> tuple[int, int] | None:
    """Return bytes that a process and its finished children read from and wrote to storage; None if closed to us."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    counters = dict(line.split(": ") for line in lines)
    return int(counters["read_bytes"]), int(counters["write_bytes"])


def own_cgroup(pid: int, *, proc: Path = Path("/proc"), root: Path = CGROUPS) -> Path | None:
    """Return the folder of the process's control group (version 2) if it is another than ours."""
    ours, theirs = _cgroup_of(proc / "self"), _cgroup_of(proc / str(pid))
    if theirs is None or theirs == ours:
        return None
    folder = root / theirs.lstrip("/")
    return folder if (folder / "memory.current").is_file() and (folder / "cpu.stat").is_file() else None


def _cgroup_of(process: Path) -> str | None:
    try:
        lines = (process / "cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
