"""What the load's own processes use, sampled from outside them: so that a busy client shows. Parent side only."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil

HEADER = ("at_unix_s", "source", "name", "value", "unit")


class ClientWatch:
    """Writes CPU, memory, bytes and threads of some processes, summed, to a telemetry file (source 'client')."""

    def __init__(self, pids: Sequence[int], path: Path) -> None:
        self._processes = [process for process in map(_process, pids) if process is not None]
        self._cores = psutil.cpu_count() or 1
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow(HEADER)
        self._cpu_s: dict[int, float] = {}
        self._at_s = time.monotonic()
        self._sample()

    def __enter__(self) -> "ClientWatch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def sample_every(self, interval_s: float) -> None:
        """Take a sample if the last is at least so old."""
        if time.monotonic() - self._at_s >= interval_s:
            self._sample()

    def _sample(self) -> None:
        """Read every process that still lives and write one row a name."""
        before_s, self._at_s = self._at_s, time.monotonic()
        spent_s = rss_bytes = read_bytes = write_bytes = threads = 0.0
        known = bool(self._cpu_s)
        for process in self._processes:
            try:
                with process.oneshot():
                    times, moved = process.cpu_times(), process.io_counters()
                    rss_bytes += process.memory_info().rss
                    threads += process.num_threads()
            except psutil.Error:
                continue
            cpu_s = times.user + times.system
            spent_s += cpu_s - self._cpu_s.get(process.pid, cpu_s)
            self._cpu_s[process.pid] = cpu_s
            read_bytes += moved.read_bytes
            write_bytes += moved.write_bytes
        rows = [
            ("rss_bytes", rss_bytes, "bytes"),
            ("threads", threads, "threads"),
            ("read_bytes", read_bytes, "bytes"),
            ("write_bytes", write_bytes, "bytes"),
        ]
        if known and self._at_s > before_s:
            rows.append(("cpu_ratio", spent_s / (self._at_s - before_s) / self._cores, "ratio"))
        at = f"{time.time():.6f}"
        self._writer.writerows((at, "client", name, f"{value:.10g}", unit) for name, value, unit in rows)
        self._file.flush()


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
