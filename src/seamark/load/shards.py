"""The parent of a load: starts its worker processes, gives them one clock, watches and ends them. Sends nothing."""

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from seamark.load.clientwatch import ClientWatch
from seamark.load.job import LoadJob, Share
from seamark.load.preparation import TAIL_LINES, PreparationError, run_preparation
from seamark.load.process import Worker
from seamark.load.standby import Standby

__all__ = ["LoadError", "LoadJob", "LoadOutcome", "PreparationError", "run_load", "run_preparation"]

TICK_S = 0.1
HEAD_START_S = 0.02
"""How far in the future the common epoch lies: longer than it takes to tell every worker."""
GRACE_S = 10.0
"""How long after its last time-out a worker may take to end before it is killed."""
QUALITY_LIMIT_S = 1800.0


class LoadError(Exception):
    """The load could not begin: a worker failed before the clock started, or was not ready in time."""

    def __init__(self, reason: str, log_tail: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_tail = tuple(log_tail)


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """What a load left behind. `reports` has one WorkerReport for each worker, also for those that died
    (`ok` false, with a reason); `aborted` is the reason that `on_tick` gave, if it gave one."""

    epoch_ns: int
    epoch_unix_ns: int
    unit: str
    kinds: tuple[str, ...]
    reports: tuple[Mapping[str, Any], ...]
    segments: tuple[Path, ...]
    client_csv: Path
    quality: Mapping[str, float] = field(default_factory=dict)
    quality_error: str | None = None
    aborted: str | None = None
    log_tail: tuple[str, ...] = ()

    @property
    def scheduled(self) -> int:
        """Requests that were due, whether or not they could be sent."""
        return self._total("scheduled")

    @property
    def sent(self) -> int:
        return self._total("sent")

    @property
    def completed(self) -> int:
        """Requests whose end was seen, good or not."""
        return self._total("completed")

    @property
    def died(self) -> int:
        """Workers that did not end as they should."""
        return sum(not report["ok"] for report in self.reports)

    def _total(self, name: str) -> int:
        return sum(report[name] or 0 for report in self.reports)


def run_load(
    job: LoadJob,
    python: Path | None,
    parts: Path,
    on_tick: Callable[[], str | None] = lambda: None,
    standby: Sequence[Standby] = (),
    on_start: Callable[[], object] = lambda: None,
) -> LoadOutcome:
    """Run the load in worker processes of the interpreter `python` (None: this one) and wait for its end.

    `parts` is a folder for what workers write; the caller removes it. `on_tick` is called about every 0.1 s from
    the first process on; a string that it returns ends the load, for that reason. `standby` are workers of the same
    interpreter that were started before; those that are not needed are ended. `on_start` is called once, when the
    clock has been started. A worker that dies after the clock
    started is counted and the others go on. Raises LoadError when the load cannot begin. No process is left,
    whatever is raised; a caller that wants this for SIGTERM too turns the signal into an exception.
    """
    parts.mkdir(parents=True, exist_ok=True)
    with Crew(job=job, python=python or Path(sys.executable), parts=parts, standby=standby) as crew:
        aborted = crew.make_ready(on_tick)
        if aborted is not None:
            raise LoadError(aborted, crew.log_tail())
        return crew.measure(on_tick, on_start)


class Crew:
    """All workers of one load. On leaving, none of them is alive."""

    def __init__(self, *, job: LoadJob, python: Path, parts: Path, standby: Sequence[Standby] = ()) -> None:
        self.job = job
        self.python = python
        self.parts = parts
        self.standby = list(standby)
        self.workers: list[Worker] = []
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        processes = [worker.process for worker in self.workers] + [spare.process for spare in self.standby]
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        self.selector.close()

    def make_ready(self, on_tick: Callable[[], str | None]) -> str | None:
        """Start the workers and wait until each is ready; return `on_tick`'s reason to stop, if it has one."""
        many = self.job.processes
        for k in range(many):
            share = Share(
                job=self.job,
                worker=k,
                workers=many,
                segment=self.parts / f"worker-{k}.samples",
                report=self.parts / f"worker-{k}.report.json",
                parent_pid=os.getpid(),
            )
            share.report.unlink(missing_ok=True)
            worker = Worker(share, self.python, self.parts, self.standby.pop() if self.standby else None)
            self.workers.append(worker)
            assert worker.process.stdout is not None
            self.selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        for spare in self.standby:
            spare.process.kill()
        limit = time.monotonic() + self.job.ready_timeout_s
        while not all(worker.ready for worker in self.workers):
            self._listen(TICK_S)
            for worker in self.workers:
                if worker.failed is not None:
                    raise LoadError(f"worker {worker.share.worker}: {worker.failed}", worker.tail())
                if worker.ready is None and worker.process.poll() is not None:
                    raise LoadError(f"{worker.death()} before it was ready", worker.tail())
            if time.monotonic() > limit:
                slow = [worker.share.worker for worker in self.workers if worker.ready is None]
                raise LoadError(
                    f"workers {slow} were not ready after {self.job.ready_timeout_s:g} s", self.log_tail()
                )
            reason = on_tick()
            if reason is not None:
                return reason
        return None

    def measure(self, on_tick: Callable[[], str | None], on_start: Callable[[], object]) -> LoadOutcome:
        """Start the clock, wait for the workers' end, and gather what they left."""
        epoch_ns = time.monotonic_ns() + int(HEAD_START_S * 1e9)
        epoch_unix_ns = time.time_ns() + epoch_ns - time.monotonic_ns()
        for worker in self.workers:
            worker.tell(f"go {epoch_ns}")
        on_start()
        client_csv = self.parts / "client.csv"
        limit_ns = epoch_ns + int((self.job.until_s + self.job.timeout_s + GRACE_S) * 1e9)
        aborted, judged = None, False
        with ClientWatch([worker.process.pid for worker in self.workers], client_csv) as watch:
            while any(worker.process.poll() is None for worker in self.workers):
                self._listen(min(TICK_S, self.job.telemetry_interval_s))
                if not all(worker.loaded or worker.process.poll() is not None for worker in self.workers):
                    watch.sample_every(self.job.telemetry_interval_s)
                elif not judged:
                    judged = True
                    self.workers[0].tell("judge")
                    limit_ns = time.monotonic_ns() + int(QUALITY_LIMIT_S * 1e9)
                reason = on_tick() if aborted is None else None
                if reason is not None:
                    aborted = reason
                    self._end_early()
                    limit_ns = min(limit_ns, time.monotonic_ns() + int(GRACE_S * 1e9))
                if time.monotonic_ns() > limit_ns:
                    self._kill_overdue()
        return self._gather(epoch_ns, epoch_unix_ns, client_csv, aborted)

    def log_tail(self) -> tuple[str, ...]:
        """Return the last lines on stderr of every worker that wrote any."""
        return tuple(line for worker in self.workers for line in worker.tail())[-3 * TAIL_LINES :]

    def _listen(self, timeout_s: float) -> None:
        if not self.selector.get_map():
            time.sleep(min(timeout_s, 0.01))
            return
        for key, _ in self.selector.select(timeout_s):
            if not key.data.hear():
                self.selector.unregister(key.fileobj)

    def _end_early(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.terminate()

    def _kill_overdue(self) -> None:
        """Kill the workers that still load; the first, when only what it judges takes too long."""
        alive = [worker for worker in self.workers if worker.process.poll() is None]
        for worker in [worker for worker in alive if not worker.loaded] or alive:
            worker.failed = "was overdue and was killed"
            worker.process.kill()
            worker.process.wait()

    def _gather(self, epoch_ns: int, epoch_unix_ns: int, client_csv: Path, aborted: str | None) -> LoadOutcome:
        at_ns = time.monotonic_ns() - epoch_ns
        reports = tuple(worker.report(at_ns) for worker in self.workers)
        said = self.workers[0].ready
        assert said is not None
        return LoadOutcome(
            epoch_ns=epoch_ns,
            epoch_unix_ns=epoch_unix_ns,
            unit=said["unit"],
            kinds=tuple(said["kinds"]),
            reports=reports,
            segments=tuple(worker.share.segment for worker in self.workers if worker.share.segment.exists()),
            client_csv=client_csv,
            quality=reports[0].get("quality") or {},
            quality_error=reports[0].get("quality_error"),
            aborted=aborted,
            log_tail=self.log_tail(),
        )
