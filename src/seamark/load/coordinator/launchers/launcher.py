"""What the parent of a load asks of whoever carries its workers: these may run here or on other machines."""

import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from seamark.load.engine.saturation import Told
from seamark.load.workers.assignment import LoadJob, Share


class LoadError(Exception):
    """The load could not begin: a worker failed before the clock started, or was not ready in time."""

    def __init__(self, reason: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = tuple(log_tail)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a worker ran, and what is known of the clock there: `offset_ns` is that clock less ours, wrong by
    `offset_error_ns` at most; `offset_drift_ns` is how much it changed until the end of load. None: not known.
    `shared` says whether it wrote into our folder."""

    carrier: str
    host: str | None
    shared: bool
    offset_ns: int | None
    offset_error_ns: int | None
    offset_drift_ns: int | None


class Carried(Protocol):
    """One worker of a load as its parent sees it."""

    share: Share
    ready: dict[str, Any] | None
    """What it said when it was ready."""
    failed: str | None
    loaded: bool
    told: Told | None
    """How far its load is, when it was asked to say so."""

    @property
    def pid(self) -> int | None:
        """Its id among the processes of this machine; None when it runs elsewhere."""

    def hear(self) -> bool:
        """Read what it says; False when there is nothing more to read from where it was registered."""

    def alive(self) -> bool:
        """Whether it may still do or say something."""

    def look_at_clock(self) -> None:
        """Measure its clock against ours; done before and after the load."""

    def go(self, epoch_ns: int) -> None:
        """Name the start of load, in ns of our monotonic clock."""

    def tell(self, line: str) -> None:
        """Send it a line; one that died no longer listens, and its death is seen elsewhere."""

    def terminate(self) -> None:
        """Ask it to end its load now and to report."""

    def kill(self) -> None:
        """End it without asking."""

    def close(self) -> None:
        """End it if it lives, and give back what was held for it."""

    def tail(self) -> list[str]:
        """Return the last lines that it wrote to stderr."""

    def death(self) -> str:
        """Say how it ended."""

    def report(self, at_ns: int) -> dict[str, Any]:
        """Return its WorkerReport, or one that says how it died and what was due by `at_ns` from the epoch."""


class Carrier(Protocol):
    """Starts the workers of a load somewhere."""

    name: str
    head_start_s: float
    """How far in the future the common epoch lies: longer than it takes to tell every worker."""

    def count(self, job: LoadJob) -> int:
        """Return how many workers the load has."""

    def start(
        self,
        shares: Sequence[Share],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[Carried]:
        """Start one worker for each share, in order, with the interpreter `python` or, elsewhere, one that does as
        well. What is to be heard is registered with `selector`, under an object with `hear`. `on_wait` is called
        while this waits, and what it raises ends the waiting. Raises LoadError."""

    def close(self) -> None:
        """End what is left, once every worker is closed."""
