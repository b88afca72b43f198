"""Result of a load: counters, files and times of its workers, as their coordinator gathers them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seamark.model.failure_categories import INTERRUPTED
from seamark.model.load_profile import LoadProfile
from seamark.model.results.load_record import Warmed, WorkerReport


def category_of(reason: str) -> str:
    """Return the failure category of a load that `on_tick` ended with this reason."""
    return INTERRUPTED if reason.startswith(INTERRUPTED) else "server_died"


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """Result of a load. `reports` has one WorkerReport per worker, also for lost ones (`ok` false, with a reason);
    `aborted` is the reason that `on_tick` returned, if any. `over_saturated_at_s`: time since the start of load at
    which the server was found permanently over-saturated and the load was ended. `cores` are the CPUs of the workers,
    () for all. `files` are those of the workers by kind, SEGMENTS; `items` is the number of items of a finite load,
    `stages` are the names of its events' stages. `warmed` is what was sent before the load to warm caches.

    `sent_until_s` is the time since the start of load until which it was sending as it was meant to: see the function
    of that name.
    """

    epoch_ns: int
    epoch_unix_ns: int
    unit: str
    kinds: tuple[str, ...]
    reports: tuple[WorkerReport, ...]
    files: Mapping[str, tuple[Path, ...]]
    client_csv: Path
    sent_until_s: float
    quality: Mapping[str, float | None] = field(default_factory=dict)
    quality_error: str | None = None
    aborted: str | None = None
    over_saturated_at_s: float | None = None
    cores: tuple[int, ...] = ()
    log_tail: tuple[str, ...] = ()
    items: int | None = None
    stages: tuple[str, ...] = ()
    warmed: Warmed | None = None

    @property
    def segments(self) -> tuple[Path, ...]:
        """Files with samples."""
        return self.files["samples"]

    @property
    def scheduled(self) -> int:
        """Requests that were due, sent or not."""
        return sum(report.scheduled or 0 for report in self.reports)

    @property
    def sent(self) -> int:
        return sum(report.sent or 0 for report in self.reports)

    @property
    def completed(self) -> int:
        """Requests that ended, successful or not."""
        return sum(report.completed or 0 for report in self.reports)

    @property
    def died(self) -> int:
        """Number of workers that did not end properly."""
        return sum(not report.ok for report in self.reports)


def sent_until_s(load: LoadProfile, reports: Sequence[WorkerReport], thinner_from_s: float | None) -> float:
    """Return until when a load was sending, in seconds since its start: its length, unless it ran out before.

    A closed loop has run out when the first user of any worker has nothing left to send: neither at the last send,
    when all users are still busy, nor at the last reply, because from then on fewer users are. A program, when it
    ends. An open loop, when the last request of its schedule has been sent: workers share the schedule, so that one
    may have sent its part while the next request is another's. `thinner_from_s` is the time at which it was noticed,
    if at all, that the load was ended or a worker was lost.
    """
    known = [report.ran_out_s for report in reports if report.ran_out_s is not None]
    ran_out_s: float | None = None
    if load.closed:
        ran_out_s = min(known, default=None)
    elif len(known) == len(reports):
        ran_out_s = max(known)
    times = [time_s for time_s in (load.length_s, ran_out_s, thinner_from_s) if time_s is not None]
    return max(0.0, min(times))
