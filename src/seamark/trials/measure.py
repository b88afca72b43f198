"""One measurement: runs a load and reports how it ended. Used by trials, probes of a search, warm-up, `bench load`,
calibration and self-test; retries, records and files are policies above it."""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from seamark.load.coordinator.coordinator import OVERDUE, LoadError, LoadJob, LoadOutcome, run_load
from seamark.load.coordinator.handle import WorkerLauncher
from seamark.load.coordinator.local_launcher import NO_MEMORY
from seamark.load.coordinator.outcome import category_of
from seamark.model.failure_categories import INTERRUPTED, OUT_OF_MEMORY
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import EnergyRecord, LoadRecord
from seamark.model.sample import CHUNK, Failure
from seamark.telemetry.energy import after_load, consumed
from seamark.telemetry.provenance import now

END_RECORDED_S = 1.0
"""Wait for the exit record of a server after a load failed as a whole: clients see a refused connection before the
supervisor does, and the failure is the server's."""


class StartedServer(Protocol):
    """The server under a load, if Seamark started it."""

    def end_reason(self, wait_s: float = 0.0) -> str | None:
        """Return how the server ended, None while it runs; wait up to `wait_s` for its end to be recorded."""

    def log_tail(self) -> Sequence[str]:
        """Return the last lines of the server's log."""


@dataclass(frozen=True, kw_only=True)
class LoadFailure:
    """Why a load as a whole failed: a category of the results, and the last lines of the relevant log."""

    category: str
    reason: str
    log_tail: Sequence[str] = ()

    @classmethod
    def of(cls, failed: Endpoint | LoadRecord) -> "LoadFailure":
        """Return why a server did not come up, or why another load failed."""
        return cls(category=str(failed.category), reason=str(failed.reason), log_tail=failed.log_tail)


@dataclass(frozen=True, kw_only=True)
class MeasuredLoad:
    """A load that ran to its end or was ended: `failure` is None on success.

    Its raw records lie in the folder `parts` of the measurement until the caller removes that. `energy` is None
    without telemetry.
    """

    outcome: LoadOutcome
    failure: LoadFailure | None
    finished_at: str
    energy: EnergyRecord | None

    def samples(self) -> NDArray[np.void]:
        """Return all raw samples, in the form of `SAMPLE`, one worker after another."""
        from seamark.load.workers.records import read_segments

        return read_segments(self.outcome.segments)

    def replied_in(self, window_s: tuple[float, float]) -> bool:
        """Return whether a request that was under way in this time, in s from the start of load, had a good reply."""
        from seamark.load.workers.records import read_segment

        start_ns, end_ns = (round(at_s * 1e9) for at_s in window_s)
        return any(
            bool(np.any((records["failure"] == 0) & (records["last_ns"] >= start_ns) & (records["sent_ns"] < end_ns)))
            for segment in self.outcome.segments
            for records in read_segment(segment)
        )

    def chunks(self) -> NDArray[np.void]:
        """Return all raw chunks of streamed replies, in the form of `CHUNK`."""
        from seamark.load.workers.records import read_segments

        return read_segments(self.outcome.files["chunks"], CHUNK)


def measure(
    job: LoadJob,
    parts: Path,
    *,
    python: Path | None = None,
    launcher: WorkerLauncher | None = None,
    parent_pid: int | None = None,
    server: StartedServer | None = None,
    on_tick: Callable[[], str | None] = lambda: None,
    telemetry: bool = False,
) -> MeasuredLoad:
    """Run the load of `job` and wait for its end.

    `job` has driver, address, settings, seed and CPUs of the load; `python` and `launcher` its place (None: this
    interpreter, this machine). Workers write into `parts`. `parent_pid` is the process of the run that the load
    belongs to. `on_tick` is called about every 0.1 s; a string that it returns ends the load for that reason. With
    `telemetry` the energy of this node is read before and after. Raises as `run_load` for a load that cannot begin;
    `failure_of` gives the category of that.
    """
    before = consumed() if telemetry else None
    outcome = run_load(job, python, parts, on_tick, parent_pid, launcher)
    return measured_load(job, outcome, server, None if before is None else after_load(before))


def measured_load(
    job: LoadJob, outcome: LoadOutcome, server: StartedServer | None, energy: EnergyRecord | None = None
) -> MeasuredLoad:
    """Return a load that has just ended, with its failure if it has one."""
    return MeasuredLoad(
        outcome=outcome,
        failure=_failure(job, outcome, server) or not_done(job, outcome),
        finished_at=now(),
        energy=energy,
    )


def failure_of(error: Exception, server: StartedServer | None = None) -> LoadFailure:
    """Return why a load did not begin, or was not kept, by the exception that ended it."""
    if isinstance(error, LoadError):
        ended = server and error.category != INTERRUPTED and server.end_reason(END_RECORDED_S)
        category = error.category or category_of_end(error.reason)
        category, reason = ("server_died", ended) if ended else (category, error.reason)
        return LoadFailure(category=category, reason=reason, log_tail=error.log_tail)
    if not isinstance(error, OSError):
        return LoadFailure(category="setup_failed", reason=str(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = f"a file of the load could not be written: {error}. Free some space, then `bench retry`."
        return LoadFailure(category="disk_full", reason=reason)
    reason = f"a file of the load could not be read or written: {error}"
    return LoadFailure(category="no_samples", reason=reason)


def category_of_end(reason: str) -> str:
    """Return the category of a load whose workers have ended before their time."""
    return OUT_OF_MEMORY if NO_MEMORY in reason else "client_died"


def not_done(job: LoadJob, outcome: LoadOutcome) -> LoadFailure | None:
    """Return why items of a finite load are left, None without any."""
    if outcome.items is None:
        return None
    from seamark.load.workers.work_list import done_items, items_in

    done = done_items(job.done, outcome.items)
    for segment in outcome.segments:
        done |= items_in(segment, outcome.items)
    left = outcome.items - int(done.sum())
    if not left:
        return None
    if outcome.died:
        reasons = "; ".join(str(report.reason) for report in outcome.reports if not report.ok)
        reason = f"{left} of {outcome.items} items were not done: {reasons}"
        return LoadFailure(category=category_of_end(reasons), reason=reason, log_tail=outcome.log_tail)
    reason = f"{left} of {outcome.items} items were not done by the time limit. Raise limit_s, concurrency or shards"
    return LoadFailure(category="timeout", reason=reason)


def _lost_connections(outcome: LoadOutcome) -> bool:
    """Return whether items of a finite load lost their connection: its server may have died with the last ones."""
    if outcome.items is None:
        return False
    from seamark.load.workers.records import read_segment

    return any(
        bool(np.isin(records["failure"], (Failure.CONNECT, Failure.RESET)).any())
        for segment in outcome.segments
        for records in read_segment(segment)
    )


def _failure(job: LoadJob, outcome: LoadOutcome, server: StartedServer | None) -> LoadFailure | None:
    no_worker_left = outcome.died == len(outcome.reports)
    ended = server and server.end_reason(END_RECORDED_S if no_worker_left or _lost_connections(outcome) else 0.0)
    if reason := outcome.aborted or ended:
        return LoadFailure(category=category_of(reason), reason=reason, log_tail=server.log_tail() if server else ())
    if no_worker_left:
        full = any(report.errno == errno.ENOSPC for report in outcome.reports)
        reasons = "; ".join(str(report.reason) for report in outcome.reports)
        own = next((report.category for report in outcome.reports if report.category), None)
        if job.kind == "program" and own is None and OVERDUE in reasons:
            reason = f"it had not ended after limit_s ({job.load.length_s:g} s), did not stop, and was killed"
            return LoadFailure(category="timeout", reason=reason, log_tail=outcome.log_tail)
        category = own or ("disk_full" if full else category_of_end(reasons))
        return LoadFailure(category=category, reason=reasons, log_tail=outcome.log_tail)
    if outcome.sent == 0 and outcome.items is None:  # a finite load may have been killed after its last item
        reason = "no request was sent: the load ended before its first one was due. Raise duration_s or the rate"
        if job.kind == "program":
            reason = "the program recorded no sample"
        return LoadFailure(category="no_samples", reason=reason)
    return None
