"""The machine of the comparison: its cores, its description, and the resources of a process tree."""

import os
import platform
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

CACHE = Path.home() / ".cache" / "seamark" / "peers"
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def describe() -> str:
    """Return a line on date, machine and how busy it is with other work."""
    with Path("/proc/cpuinfo").open() as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    memory_gib = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES / 2**30
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {len(CORES)} cores of {model}; {memory_gib:.0f} GiB; "
        f"Linux {platform.release()}; Python {platform.python_version()}; load average {os.getloadavg()[0]:.1f}"
    )


class Watch(threading.Thread):
    """Samples the CPU time, the calls of read(2) and the resident memory of a process and all that it started.

    `cpu_s_at` and the like interpolate. libuv takes what arrived on a socket by read(2); asyncio's own loop does not.
    Reads /proc itself, some 50 us a process: it runs on the server's core.
    """

    def __init__(self, pid: int, every_s: float = 0.25) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.every_s = every_s
        self.rows: list[tuple[int, float, int, int]] = []
        self.over = threading.Event()
        self._seen: dict[int, tuple[float, int]] = {}

    def run(self) -> None:
        """Sample until `end`."""
        while not self.over.wait(self.every_s):
            rss_bytes = self._look(self.pid)
            cpu_s = sum(cpu_s for cpu_s, _ in self._seen.values())
            reads = sum(reads for _, reads in self._seen.values())
            self.rows.append((time.monotonic_ns(), cpu_s, rss_bytes, reads))

    def end(self) -> None:
        """Stop sampling."""
        self.over.set()
        self.join()

    def cpu_s_at(self, at_ns: float) -> float:
        """Return the CPU time used until then."""
        return self._at(at_ns, 1)

    def rss_bytes_at(self, at_ns: float) -> float:
        """Return the resident memory at that time."""
        return self._at(at_ns, 2)

    def reads_at(self, at_ns: float) -> float:
        """Return the number of read(2) calls until then."""
        return self._at(at_ns, 3)

    def most_rss_bytes(self) -> int:
        """Return the largest resident memory that was seen."""
        return max((row[2] for row in self.rows), default=0)

    def _at(self, at_ns: float, column: int) -> float:
        table = np.array(self.rows, dtype=np.float64)
        if not len(table):
            return float("nan")
        return float(np.interp(at_ns, table[:, 0], table[:, column]))

    def _look(self, pid: int) -> int:
        """Take note of the CPU time and the reads of a process and its children; return their resident bytes."""
        folder = Path(f"/proc/{pid}")
        rss_bytes = 0
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            reads = int((folder / "io").read_text().partition("syscr: ")[2].split(maxsplit=1)[0])
            self._seen[pid] = ((int(fields[11]) + int(fields[12])) / TICKS, reads)
            rss_bytes = int((folder / "statm").read_text().split()[1]) * PAGE_BYTES
            children = [
                int(child)
                for task in (folder / "task").iterdir()
                for child in (task / "children").read_text().split()
            ]
        except (OSError, IndexError):
            return rss_bytes
        return rss_bytes + sum(self._look(child) for child in children)
