"""Resource use of the load's own processes, sampled from outside, so that a busy client is detected. Coordinator
only."""

import contextlib
import csv
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import psutil

from seamark.platform.socket_stats import Traffic

HEADER = ("at_unix_s", "source", "name", "value", "unit")


class ClientTelemetry:
    """Writes the sum of CPU, memory, bytes and threads of some processes to a telemetry file (source 'client'), and
    the bytes that connections to `ports` of the server's `host` have transferred. Without processes (the client runs
    elsewhere) it writes no row. `below`: with all processes below them, as a program's worker has."""

    def __init__(
        self,
        pids: Sequence[int],
        path: Path,
        ports: Collection[int] = (),
        host: str | None = None,
        *,
        below: bool = False,
    ) -> None:
        self._pids = pids
        self._below = below
        self._processes = [process for process in map(_process, pids) if process is not None]
        self._traffic = Traffic(ports, "remote", host) if ports else None
        self._cores = psutil.cpu_count() or 1
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        self._writer.writerow(HEADER)
        self._cpu_s: dict[int, float] = {}
        self._total_s = 0.0
        self._at_s = time.monotonic()
        self._sample()

    def __enter__(self) -> "ClientTelemetry":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def sample_every(self, interval_s: float) -> bool:
        """Take a sample if the last one is at least this old; return whether it did."""
        due = time.monotonic() - self._at_s >= interval_s
        if due:
            self._sample()
        return due

    def _sample(self) -> None:
        """Read every process that is alive and write one row per name."""
        before_s, self._at_s = self._at_s, time.monotonic()
        if not self._pids:
            return
        spent_s = rss_bytes = read_bytes = write_bytes = threads = total_s = 0.0
        has_previous = bool(self._cpu_s)
        for process in self._all():
            try:
                with process.oneshot():
                    times, moved = process.cpu_times(), process.io_counters()
                    rss_bytes += process.memory_info().rss
                    threads += process.num_threads()
            except psutil.Error:
                continue
            cpu_s = times.user + times.system
            total_s += cpu_s + times.children_user + times.children_system
            spent_s += cpu_s - self._cpu_s.get(process.pid, cpu_s)
            self._cpu_s[process.pid] = cpu_s
            read_bytes += moved.read_bytes
            write_bytes += moved.write_bytes
        if self._below:  # the time of a child that has ended is its parent's
            spent_s, self._total_s = max(0.0, total_s - self._total_s), total_s
        rows = [
            ("rss_bytes", rss_bytes, "bytes"),
            ("threads", threads, "threads"),
            ("read_bytes", read_bytes, "bytes"),
            ("write_bytes", write_bytes, "bytes"),
        ]
        if self._traffic:
            with contextlib.suppress(OSError):
                sent, received = self._traffic.read()
                rows += [("net_sent_bytes", sent, "bytes"), ("net_received_bytes", received, "bytes")]
        if has_previous and self._at_s > before_s:
            rows.append(("cpu_ratio", spent_s / (self._at_s - before_s) / self._cores, "ratio"))
        at = f"{time.time():.6f}"
        self._writer.writerows((at, "client", name, f"{value:.10g}", unit) for name, value, unit in rows)
        self._file.flush()

    def _all(self) -> list[psutil.Process]:
        """Return the processes, and those below them where they count."""
        found = list(self._processes)
        for process in self._processes if self._below else ():
            with contextlib.suppress(psutil.Error):
                found += process.children(recursive=True)
        return found


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
