"""The sampling loop of a server's telemetry, and its file."""

import csv
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Protocol

HEADER = ("at_unix_s", "source", "name", "value", "unit")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One value at the time of reading."""

    source: str
    name: str
    value: float
    unit: str


class Monitor(Protocol):
    """A source of readings."""

    def read(self) -> Iterable[Reading]:
        """Return the current values; may raise anything."""


Say = Callable[..., None]


class Telemetry:
    """Appends readings to a CSV file; a line torn by an earlier kill is completed first."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        size = self._file.seek(0, 2)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")
        else:
            self._file.write((",".join(HEADER) + "\n").encode())

    def append(self, at_unix_s: float, readings: Iterable[Reading]) -> None:
        """Write one row per reading, in one write."""
        lines = StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        at = f"{at_unix_s:.6f}"
        writer.writerows(
            (at, reading.source, reading.name, shown(reading.value), reading.unit) for reading in readings
        )
        self._file.write(lines.getvalue().encode())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def shown(value: float) -> str:
    """Return a number as text: whole ones with every digit, as counters are subtracted later."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e18 else f"{value:.10g}"


class Sampler:
    """Reads all monitors every `interval_s` in its own thread, and records its own cost.

    A monitor that raises is left out of that round, and the failure is logged once; no failure ends the loop.
    """

    def __init__(self, monitors: Iterable[Monitor], path: Path, interval_s: float, say: Say) -> None:
        self._monitors = tuple(monitors)
        self._path = path
        self._interval_s = interval_s
        self._say = say
        self._stopped = threading.Event()
        self._complained: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after a last sample, unless a monitor hangs."""
        self._stopped.set()
        self._thread.join(timeout=3.0)

    def _run(self) -> None:
        try:
            telemetry = Telemetry(self._path)
            try:
                self._sample_until_stopped(telemetry)
            finally:
                telemetry.close()
        except Exception as cause:
            self._say("telemetry-ended", error=repr(cause))

    def _sample_until_stopped(self, telemetry: Telemetry) -> None:
        began_s = due_s = time.monotonic()
        cpu_before_s, at_before_s = time.thread_time(), began_s
        while True:
            at_unix_s = time.time()
            readings = [reading for monitor in self._monitors for reading in self._read(monitor)]
            cpu_s, at_s = time.thread_time(), time.monotonic()
            if at_s > at_before_s:
                ratio = (cpu_s - cpu_before_s) / (at_s - at_before_s)
                readings.append(Reading(source="sampler", name="overhead_ratio", value=ratio, unit="ratio"))
            readings.append(Reading(source="sampler", name="cpu_s", value=cpu_s, unit="s"))
            cpu_before_s, at_before_s = cpu_s, at_s
            telemetry.append(at_unix_s, readings)
            if self._stopped.is_set():
                return
            late = max(0.0, time.monotonic() - due_s)
            due_s += (late // self._interval_s + 1) * self._interval_s
            self._stopped.wait(due_s - time.monotonic())

    def _read(self, monitor: Monitor) -> list[Reading]:
        name = type(monitor).__name__
        try:
            return list(monitor.read())
        except Exception as cause:
            if name not in self._complained:
                self._complained.add(name)
                self._say("monitor-failed", monitor=name, error=repr(cause))
            return []
