"""Interfaces between coordinator and launchers: WorkerLauncher starts workers, WorkerHandle is one of them, on this
machine or another."""

import json
import selectors
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from seamark.load.engine.saturation import Progress
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.model.results.load_record import WorkerReport


class LoadError(Exception):
    """The load could not begin: a worker failed or was not ready before the clock started."""

    def __init__(self, reason: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = tuple(log_tail)


class WorkerHandle(Protocol):
    """One worker of a load as seen by the coordinator."""

    assignment: WorkerAssignment
    ready: dict[str, Any] | None
    """Content of its `ready` line."""
    failed: str | None
    loaded: bool
    progress: Progress | None
    """Latest progress of its load, if it was requested."""

    @property
    def pid(self) -> int | None:
        """Process id on this machine; None if it runs elsewhere."""

    def on_readable(self) -> bool:
        """Read available data; False at the end of the registered file."""

    def alive(self) -> bool:
        """Whether it may still work or send."""

    def measure_clock_offset(self) -> None:
        """Compare its clock with the coordinator's; called before and after the load."""

    def start_load(self, epoch_ns: int) -> None:
        """Set the epoch, in ns of the coordinator's monotonic clock."""

    def send(self, line: str) -> None:
        """Send a line. A dead worker is ignored here; `alive` detects it."""

    def terminate(self) -> None:
        """Request the end of its load and a report."""

    def kill(self) -> None:
        """Kill it."""

    def close(self) -> None:
        """Kill it if it runs, and release its resources."""

    def stderr_tail(self) -> list[str]:
        """Return the last lines of its stderr."""

    def end_reason(self) -> str:
        """Return how it ended."""

    def report(self, at_ns: int) -> WorkerReport:
        """Return its WorkerReport, or a lost worker's with what was due by `at_ns` since the epoch."""


class WorkerLauncher(Protocol):
    """Starts the workers of a load."""

    name: str
    head_start_s: float
    """Delay of the common epoch: longer than it takes to reach every worker."""

    def count(self, job: LoadJob) -> int:
        """Return the number of workers of the load."""

    def start(
        self,
        assignments: Sequence[WorkerAssignment],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[WorkerHandle]:
        """Start one worker per assignment, in order, with the interpreter `python` or an equivalent one elsewhere.

        File objects to read are registered with `selector`, with an object that has `on_readable`. `on_wait` is
        called while this waits; what it raises ends the wait. Raises LoadError.
        """

    def close(self) -> None:
        """End what is left, after every worker is closed."""


class WorkerState:
    """State of a worker by its lines, whatever the transport: `ready` content, `failed` reason, `loaded` (its
    requests have ended), `progress`."""

    def __init__(self) -> None:
        self.ready: dict[str, Any] | None = None
        self.failed: str | None = None
        self.loaded = False
        self.progress: Progress | None = None

    def handle(self, line: str) -> None:
        """Process one line; unknown words are ignored."""
        word, _, rest = line.partition(" ")
        if word == "ready":
            self.ready = json.loads(rest)
        elif word == "failed":
            self.failed = rest
        elif word == "loaded":
            self.loaded = True
        elif word == "progress":
            at_ns, due, completed = map(int, rest.split())
            self.progress = (at_ns, due, completed)
