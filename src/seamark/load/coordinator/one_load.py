"""Coordinator of one load: starts its workers, monitors and ends them step by step, gathers their results. It neither
waits nor sets the clock: coordinator.py does, for all loads that run at a time."""

import selectors
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from seamark.load.coordinator.client_telemetry import ClientTelemetry
from seamark.load.coordinator.handle import LoadError, WorkerHandle, WorkerLauncher
from seamark.load.coordinator.local_launcher import LocalLauncher
from seamark.load.coordinator.outcome import LoadOutcome, category_of, sent_until_s
from seamark.load.engine.saturation import Saturation, saturation_of
from seamark.load.workers.assignment import SEGMENTS, LoadJob, WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES
from seamark.model.results.load_record import Warmed

GRACE_S = 10.0
"""Time that a worker may take to end after its last time-out, before it is killed."""
QUALITY_LIMIT_S = 1800.0
SHORTEST_JUDGING_S = 0.5
OVERDUE = "was overdue and was killed"
EPOCH = "epoch_unix_ns"
"""File with the start of a finite load, for a session that goes on after this one was killed."""


@dataclass(frozen=True, kw_only=True)
class NamedLoad:
    """A load: `job`, `parts`, `python`, `launcher` and `on_tick` as in `run_load`. A launcher starts the workers of
    one load only. `name` distinguishes several at a time, "" for one alone. `on_sample` is called while requests are
    in flight, as often as telemetry is sampled, with the processes of the workers; () for those elsewhere."""

    name: str
    job: LoadJob
    parts: Path
    python: Path | None = None
    launcher: WorkerLauncher | None = None
    on_tick: Callable[[], str | None] = lambda: None
    on_sample: Callable[[Sequence[int]], object] = lambda pids: None


class Coordinator:
    """All workers of one load. On exit none of them is alive.

    In this order: `start`, `is_ready` until it is, `compare_clocks`, `begin`, `observe`, `step` while `is_running`,
    `finish`. The files of the workers are registered with `selector`, with the function to call as data. `owner` as
    in `run_load`. `has_loaded`: no request is in flight any more.
    """

    def __init__(self, load: NamedLoad, selector: selectors.BaseSelector, owner: int | None) -> None:
        self.job = load.job
        self.parts = load.parts
        self.launcher = load.launcher or LocalLauncher(owner)
        self.workers: Sequence[WorkerHandle] = ()
        self.has_loaded = False
        self._python = load.python or Path(sys.executable)
        self._selector = selector
        self._on_tick = load.on_tick
        self._on_sample = load.on_sample
        self._pids: tuple[int, ...] = ()
        self._is_sampled = False
        self._name = load.name or None
        self._held = ExitStack()
        self._telemetry: ClientTelemetry | None = None
        self._ready_limit_s = 0.0
        self._epoch_ns = self._epoch_unix_ns = self._limit_ns = 0
        self._saturation: Saturation | None = None
        self._saturated_at_s: float | None = None
        self._aborted: str | None = None
        self._thinner_from_s: float | None = None
        self._has_ended_for_loss = self._is_enough = False

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.close()
        self.launcher.close()
        self._held.close()

    def start(self, on_wait: Callable[[], object]) -> None:
        """Start the workers; `on_wait` is called meanwhile. Raises LoadError."""
        self.parts.mkdir(parents=True, exist_ok=True)
        count = self.launcher.count(self.job)
        self._ready_limit_s = time.monotonic() + self.job.ready_timeout_s

        def wait() -> None:
            on_wait()
            if time.monotonic() > self._ready_limit_s:
                slow = f"modules of the workers were not imported after {self.job.ready_timeout_s:g} s"
                raise self._error(slow, self.log_tail())

        assignments = [
            WorkerAssignment(job=self.job, worker=k, workers=count, segment=self.parts / f"worker-{k}.samples")
            for k in range(count)
        ]
        self.workers = self.launcher.start(assignments, self._python, self._selector, wait)

    def is_ready(self) -> bool:
        """Return whether every worker is ready. Raises LoadError for one that will not be, or is not in time."""
        for worker in self.workers:
            self._require_no_failure(worker)
            if not worker.alive():
                before = "it was ready" if worker.ready is None else "the load began"
                raise self._error(worker.failed or f"{worker.end_reason()} before {before}", worker.stderr_tail())
        waiting = [worker.assignment.worker for worker in self.workers if worker.ready is None]
        if waiting and time.monotonic() > self._ready_limit_s:
            slow = f"workers {waiting} were not ready after {self.job.ready_timeout_s:g} s"
            raise self._error(slow, self.log_tail())
        return not waiting

    def compare_clocks(self, on_wait: Callable[[], object]) -> None:
        """Compare the clocks of workers elsewhere with this one; `on_wait` is called after each. Raises LoadError."""
        for worker in self.workers:
            worker.measure_clock_offset()
            self._require_no_failure(worker)
            on_wait()

    def tick_before(self) -> None:
        """Call `on_tick` before the clock starts. Raises LoadError with the reason that it returns."""
        reason = self._on_tick()
        if reason is not None:
            raise self._error(reason, self.log_tail(), category_of(reason))

    def tick_after(self) -> None:
        """Call `on_tick` after the end of the load, while others run: it may renew a lease."""
        if self._aborted is None:
            self._on_tick()

    def begin(self, epoch_ns: int, epoch_unix_ns: int) -> None:
        """Set the workers' clock: the load starts at `epoch_ns` of this machine's monotonic clock."""
        self._epoch_ns, self._epoch_unix_ns = epoch_ns, epoch_unix_ns
        for worker in self.workers:
            worker.start_load(epoch_ns)
        load = self.job.load
        self._saturation = saturation_of(load, self.job.latency_limit_s)
        slowest = min((worker.ready or {}).get("slowest", 1.0) for worker in self.workers)  # of a driver's clock
        length_s = (load.length_s + load.late_s + load.timeout_s) / slowest
        self._limit_ns = epoch_ns + int((length_s + GRACE_S) * 1e9)

    def observe(self) -> None:
        """Record the start of a finite load, and open the telemetry of the workers. After `begin`, which has little
        time. Raises OSError (no space)."""
        if self.job.load.finite:
            (self.parts / EPOCH).write_text(str(self._epoch_unix_ns), encoding="ascii")
        pids = tuple(worker.pid for worker in self.workers if worker.pid is not None)
        self._pids = pids if len(pids) == len(self.workers) else ()  # a part would misrepresent the whole
        ports, below = self.job.ports.values(), self.job.kind == "program"
        telemetry = ClientTelemetry(self._pids, self._client_csv, ports, self.job.host, below=below)
        self._telemetry = self._held.enter_context(telemetry)

    @property
    def cores(self) -> set[int]:
        """CPUs of the workers."""
        return {cpu for worker in self.workers for cpu in worker.assignment.cores}

    @property
    def is_running(self) -> bool:
        """Whether a worker may still work or send."""
        return any(worker.alive() for worker in self.workers)

    @property
    def has_done_once(self) -> bool:
        """Whether its work is done once: each item of a work list is sent, or the length of a timed load reached."""
        if self.has_loaded:
            return True
        if not self.job.load.finite:
            return self._since_epoch_s() >= self.job.load.length_s
        return all(worker.is_repeating or worker.has_loaded or not worker.alive() for worker in self.workers)

    def end_passes(self) -> None:
        """Have the workers send the items of a work list no further time."""
        if not self._is_enough:
            self._is_enough = True
            for worker in self.workers:
                worker.send("enough")

    def step(self) -> None:
        """Look after the load once: sample telemetry, end it for what ends it, kill what is overdue."""
        assert self._telemetry is not None
        if not all(worker.has_loaded or not worker.alive() for worker in self.workers):
            sampled = self._telemetry.sample_every(self.job.telemetry_interval_s)
            if sampled or not self._is_sampled:  # once at least, however short the load is
                self._is_sampled = True
                self._on_sample(self._pids)
        elif not self.has_loaded:
            self.has_loaded = True
            self._end_of_load()
            self._limit_ns = time.monotonic_ns() + int(self._judging_s() * 1e9)
        if self._saturation is not None and self._aborted is None and self._saturated_at_s is None:
            self._saturated_at_s = self._saturation.update_by(worker.progress for worker in self.workers)
            if self._saturated_at_s is not None:
                self._end_early(self._saturated_at_s)
        if any(not worker.has_loaded and not worker.alive() for worker in self.workers):
            self._note_thinner(self._since_epoch_s())
            if self.job.load.finite and not self._has_ended_for_loss:
                # without its users the others would take longer, which no figure could tell
                self._has_ended_for_loss = True
                self._end_early(self._since_epoch_s())
        elif any(worker.has_failed for worker in self.workers):
            self._note_thinner(self._since_epoch_s())
        reason = self._on_tick() if self._aborted is None else None
        if reason is not None:
            self._aborted = reason
            self._end_early(self._since_epoch_s())
        if time.monotonic_ns() > self._limit_ns:
            self._kill_overdue()

    def finish(self) -> LoadOutcome:
        """Gather the results, after the end of all workers."""
        self._held.close()
        at_ns = time.monotonic_ns() - self._epoch_ns
        reports = tuple(worker.report(at_ns) for worker in self.workers)
        files = [worker.assignment.files for worker in self.workers]
        ready = self.workers[0].ready
        assert ready is not None
        began_ns = max((report.began_ns or 0 for report in reports), default=0)
        return LoadOutcome(
            epoch_ns=self._epoch_ns + began_ns,
            epoch_unix_ns=self._epoch_unix_ns + began_ns,
            unit=ready["unit"],
            kinds=tuple(ready["kinds"]),
            reports=reports,
            files={kind: tuple(found[kind] for found in files if kind in found) for kind in SEGMENTS},
            stages=tuple(ready.get("stages", ())),
            client_csv=self._client_csv,
            sent_until_s=sent_until_s(self.job.load, reports, self._thinner_from_s),
            quality=reports[0].quality or {},
            quality_error=reports[0].quality_error,
            aborted=self._aborted,
            over_saturated_at_s=self._saturated_at_s,
            cores=self.job.cores,
            log_tail=self.log_tail(),
            warmed=Warmed(**ready["warmed"]) if ready.get("warmed") else None,
            items=ready.get("items") if self.job.load.finite else None,
        )

    def log_tail(self) -> tuple[str, ...]:
        """Return the last lines of stderr of all workers."""
        return tuple(line for worker in self.workers for line in worker.stderr_tail())[-3 * TAIL_LINES :]

    @property
    def _client_csv(self) -> Path:
        return self.parts / "client.csv"

    def _error(self, reason: str, log_tail: Sequence[str], category: str | None = None) -> LoadError:
        return LoadError(reason, log_tail, self._name, category)

    def _require_no_failure(self, worker: WorkerHandle) -> None:
        if worker.failed is not None:
            reason = f"worker {worker.assignment.worker}: {worker.failed}"
            raise self._error(reason, worker.stderr_tail(), worker.category)

    def _since_epoch_s(self) -> float:
        return (time.monotonic_ns() - self._epoch_ns) / 1e9

    def _note_thinner(self, at_s: float) -> None:
        """Record that from then on, in seconds since the start of load, it sends less than it is meant to."""
        if self._thinner_from_s is None:
            self._thinner_from_s = at_s

    def _judging_s(self) -> float:
        """Return the time limit for measuring quality."""
        if not self.job.judged_in_time:
            return QUALITY_LIMIT_S
        left_s = self.job.load.length_s + self.job.load.timeout_s - self._since_epoch_s()
        return max(SHORTEST_JUDGING_S, left_s)

    def _end_of_load(self) -> None:
        """No request is in flight any more: compare the clocks again and let worker 0 measure quality."""
        for worker in self.workers:
            worker.measure_clock_offset()
        self.workers[0].send("judge")
        for worker in self.workers:
            worker.send("bye")

    def _end_early(self, noticed_s: float) -> None:
        """Have the workers end their load now, and limit the time that they may take for it. `noticed_s`: when the
        cause was noticed, since the start of load."""
        self._note_thinner(noticed_s)
        for worker in self.workers:
            if worker.alive():
                worker.send("stop")
        self._limit_ns = min(self._limit_ns, time.monotonic_ns() + int(GRACE_S * 1e9))

    def _kill_overdue(self) -> None:
        """Kill the workers that still load; worker 0 if only its quality measurement is overdue."""
        alive = [worker for worker in self.workers if worker.alive()]
        for worker in [worker for worker in alive if not worker.has_loaded] or alive:
            worker.failed = OVERDUE
            worker.kill()
