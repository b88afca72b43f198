"""Coordinator of a load: starts the workers, sets a common epoch, monitors and ends them. Sends no request itself."""

import selectors
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from seamark.load.coordinator.client_telemetry import ClientTelemetry
from seamark.load.coordinator.handle import LoadError, WorkerHandle, WorkerLauncher
from seamark.load.coordinator.local_launcher import LocalLauncher
from seamark.load.engine.saturation import saturation_monitor
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES, PreparationError, run_preparation
from seamark.model.results.load_record import WorkerReport
from seamark.platform.pinning import away_from

__all__ = ["OVERDUE", "LoadError", "LoadJob", "LoadOutcome", "PreparationError", "run_load", "run_preparation"]

TICK_S = 0.1
GRACE_S = 10.0
"""Time that a worker may take to end after its last time-out, before it is killed."""
QUALITY_LIMIT_S = 1800.0
SHORTEST_JUDGING_S = 0.5
OVERDUE = "was overdue and was killed"
EPOCH = "epoch_unix_ns"
"""File with the start of a finite load, for a session that goes on after this one was killed."""


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """Result of a load. `reports` has one WorkerReport per worker, also for lost ones (`ok` false, with a reason);
    `aborted` is the reason that `on_tick` returned, if any. `over_saturated_at_s`: time since the start of load at
    which the server was found permanently over-saturated and the load was ended. `cores` are the CPUs of the workers,
    () for all. `items` is the number of items of a finite load, `stages` are the names of its events' stages."""

    epoch_ns: int
    epoch_unix_ns: int
    unit: str
    kinds: tuple[str, ...]
    reports: tuple[WorkerReport, ...]
    segments: tuple[Path, ...]
    chunks: tuple[Path, ...]
    client_csv: Path
    quality: Mapping[str, float | None] = field(default_factory=dict)
    quality_error: str | None = None
    aborted: str | None = None
    over_saturated_at_s: float | None = None
    cores: tuple[int, ...] = ()
    log_tail: tuple[str, ...] = ()
    items: int | None = None
    replies: tuple[Path, ...] = ()
    events: tuple[Path, ...] = ()
    stages: tuple[str, ...] = ()

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


def run_load(
    job: LoadJob,
    python: Path | None,
    parts: Path,
    on_tick: Callable[[], str | None] = lambda: None,
    owner: int | None = None,
    launcher: WorkerLauncher | None = None,
) -> LoadOutcome:
    """Run the load in worker processes of the interpreter `python` (None: this one) and wait for its end.

    `parts` is a folder for the workers' files, removed by the caller. `on_tick` is called about every 0.1 s from the
    first process on; a string that it returns ends the load with that reason. `owner` is the process of the run that
    this load belongs to: workers are forked by a fork server that ends with it. `launcher` starts the workers; None:
    on this machine. The load continues without a worker lost after the clock started, which is counted; a finite one
    ends then, and the next session does the rest. Raises LoadError if the load cannot begin. No process survives,
    whatever is raised; to get this for SIGTERM too, turn the signal into an exception.
    """
    parts.mkdir(parents=True, exist_ok=True)
    with Coordinator(
        job=job, parts=parts, python=python or Path(sys.executable), launcher=launcher or LocalLauncher(owner)
    ) as coordinator:
        aborted = coordinator.make_ready(on_tick)
        if aborted is not None:
            raise LoadError(aborted, coordinator.log_tail())
        return coordinator.measure(on_tick)


class Coordinator:
    """All workers of one load. On exit none of them is alive."""

    def __init__(self, *, job: LoadJob, parts: Path, python: Path, launcher: WorkerLauncher) -> None:
        self.job = job
        self.parts = parts
        self.python = python
        self.launcher = launcher
        self.workers: Sequence[WorkerHandle] = ()
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.close()
        self.launcher.close()
        self.selector.close()

    def make_ready(self, on_tick: Callable[[], str | None]) -> str | None:
        """Start the workers and wait until each is ready; return the reason of `on_tick` to stop, if any."""
        count = self.launcher.count(self.job)
        limit = time.monotonic() + self.job.ready_timeout_s

        def on_wait() -> None:
            if reason := on_tick():
                raise LoadError(reason, self.log_tail())
            if time.monotonic() > limit:
                slow = f"modules of the workers were not imported after {self.job.ready_timeout_s:g} s"
                raise LoadError(slow, self.log_tail())

        assignments = [
            WorkerAssignment(job=self.job, worker=k, workers=count, segment=self.parts / f"worker-{k}.samples")
            for k in range(count)
        ]
        self.workers = self.launcher.start(assignments, self.python, self.selector, on_wait)
        while not all(worker.ready for worker in self.workers):
            self._poll_workers(TICK_S)
            for worker in self.workers:
                if worker.failed is not None:
                    raise LoadError(f"worker {worker.assignment.worker}: {worker.failed}", worker.stderr_tail())
                if worker.ready is None and not worker.alive():
                    raise LoadError(
                        worker.failed or f"{worker.end_reason()} before it was ready", worker.stderr_tail()
                    )
            if time.monotonic() > limit:
                slow = [worker.assignment.worker for worker in self.workers if worker.ready is None]
                raise LoadError(
                    f"workers {slow} were not ready after {self.job.ready_timeout_s:g} s", self.log_tail()
                )
            reason = on_tick()
            if reason is not None:
                return reason
        for worker in self.workers:
            worker.measure_clock_offset()
            if worker.failed is not None:
                raise LoadError(f"worker {worker.assignment.worker}: {worker.failed}", worker.stderr_tail())
            if reason := on_tick():
                return reason
        return None

    def measure(self, on_tick: Callable[[], str | None]) -> LoadOutcome:
        """Start the clock, wait for the end of the workers, gather their results."""
        epoch_ns = time.monotonic_ns() + int(self.launcher.head_start_s * 1e9)
        epoch_unix_ns = time.time_ns() + epoch_ns - time.monotonic_ns()
        if self.job.load.finite:
            (self.parts / EPOCH).write_text(str(epoch_unix_ns), encoding="ascii")
        for worker in self.workers:
            worker.start_load(epoch_ns)
        client_csv = self.parts / "client.csv"
        limit_ns = epoch_ns + int((self.job.load.length_s + self.job.load.timeout_s + GRACE_S) * 1e9)
        aborted, has_loaded, saturated_at_s, has_lost = None, False, None, False
        saturation = saturation_monitor(self.job.load, self.job.latency_limit_s)
        pids = [worker.pid for worker in self.workers if worker.pid is not None]
        here = len(pids) == len(self.workers)  # a part of the client would misrepresent the whole
        kept = {cpu for worker in self.workers for cpu in worker.assignment.cores}
        ports = self.job.ports.values()
        below = self.job.kind == "program"
        measured = ClientTelemetry(pids if here else (), client_csv, ports, self.job.host, below=below)
        with away_from(kept), measured as telemetry:
            while any(worker.alive() for worker in self.workers):
                self._poll_workers(min(TICK_S, self.job.telemetry_interval_s))
                if not all(worker.has_loaded or not worker.alive() for worker in self.workers):
                    telemetry.sample_every(self.job.telemetry_interval_s)
                elif not has_loaded:
                    has_loaded = True
                    self._end_of_load()
                    limit_ns = time.monotonic_ns() + int(self._judging_s(epoch_ns) * 1e9)
                if saturation is not None and aborted is None and saturated_at_s is None:
                    saturated_at_s = saturation.update(worker.progress for worker in self.workers)
                    if saturated_at_s is not None:
                        limit_ns = min(limit_ns, self._end_early())
                if self.job.load.finite and not has_lost and self._has_lost_worker():
                    has_lost = True  # without its users the others would take longer, which no figure could tell
                    limit_ns = min(limit_ns, self._end_early())
                reason = on_tick() if aborted is None else None
                if reason is not None:
                    aborted = reason
                    limit_ns = min(limit_ns, self._end_early())
                if time.monotonic_ns() > limit_ns:
                    self._kill_overdue()
        return self._gather(epoch_ns, epoch_unix_ns, client_csv, aborted, saturated_at_s)

    def log_tail(self) -> tuple[str, ...]:
        """Return the last lines of stderr of all workers."""
        return tuple(line for worker in self.workers for line in worker.stderr_tail())[-3 * TAIL_LINES :]

    def _poll_workers(self, timeout_s: float) -> None:
        if not self.selector.get_map():
            time.sleep(min(timeout_s, 0.01))
            return
        for key, _ in self.selector.select(timeout_s):
            key.data()

    def _judging_s(self, epoch_ns: int) -> float:
        """Return the time limit for measuring quality."""
        if not self.job.judged_in_time:
            return QUALITY_LIMIT_S
        left_s = self.job.load.length_s + self.job.load.timeout_s - (time.monotonic_ns() - epoch_ns) / 1e9
        return max(SHORTEST_JUDGING_S, left_s)

    def _end_of_load(self) -> None:
        """No request is in flight any more: compare the clocks again and let worker 0 measure quality."""
        for worker in self.workers:
            worker.measure_clock_offset()
        self.workers[0].send("judge")
        for worker in self.workers:
            worker.send("bye")

    def _has_lost_worker(self) -> bool:
        return any(not worker.has_loaded and not worker.alive() for worker in self.workers)

    def _end_early(self) -> int:
        """Have the workers end their load now; return until when, in ns of our clock, they may take for it."""
        for worker in self.workers:
            if worker.alive():
                worker.send("stop")
        return time.monotonic_ns() + int(GRACE_S * 1e9)

    def _kill_overdue(self) -> None:
        """Kill the workers that still load; worker 0 if only its quality measurement is overdue."""
        alive = [worker for worker in self.workers if worker.alive()]
        for worker in [worker for worker in alive if not worker.has_loaded] or alive:
            worker.failed = OVERDUE
            worker.kill()

    def _gather(
        self, epoch_ns: int, epoch_unix_ns: int, client_csv: Path, aborted: str | None, saturated_at_s: float | None
    ) -> LoadOutcome:
        at_ns = time.monotonic_ns() - epoch_ns
        reports = tuple(worker.report(at_ns) for worker in self.workers)
        ready = self.workers[0].ready
        assert ready is not None
        return LoadOutcome(
            epoch_ns=epoch_ns,
            epoch_unix_ns=epoch_unix_ns,
            unit=ready["unit"],
            kinds=tuple(ready["kinds"]),
            reports=reports,
            segments=tuple(
                worker.assignment.segment for worker in self.workers if worker.assignment.segment.exists()
            ),
            chunks=tuple(worker.assignment.chunks for worker in self.workers if worker.assignment.chunks.exists()),
            replies=tuple(path for worker in self.workers if (path := worker.assignment.path("replies")).exists()),
            events=tuple(path for worker in self.workers if (path := worker.assignment.path("events")).exists()),
            stages=tuple(ready.get("stages", ())),
            client_csv=client_csv,
            quality=reports[0].quality or {},
            quality_error=reports[0].quality_error,
            aborted=aborted,
            over_saturated_at_s=saturated_at_s,
            cores=self.job.cores,
            log_tail=self.log_tail(),
            items=ready.get("items") if self.job.load.finite else None,
        )
