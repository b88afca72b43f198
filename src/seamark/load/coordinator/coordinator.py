"""The parent of a load: starts its worker processes, gives them one clock, watches and ends them. Sends nothing."""

import os
import selectors
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from seamark.load.coordinator.client_telemetry import ClientWatch
from seamark.load.coordinator.launchers.launcher import Carried, Carrier, LoadError
from seamark.load.coordinator.local_worker import Local
from seamark.load.engine.saturation import watch_for
from seamark.load.workers.assignment import LoadJob, Share
from seamark.load.workers.hooks import TAIL_LINES, PreparationError, run_preparation
from seamark.platform.pinning import away_from

__all__ = ["LoadError", "LoadJob", "LoadOutcome", "PreparationError", "run_load", "run_preparation"]

TICK_S = 0.1
GRACE_S = 10.0
"""How long after its last time-out a worker may take to end before it is killed."""
QUALITY_LIMIT_S = 1800.0
SHORTEST_JUDGING_S = 0.5


@dataclass(frozen=True, kw_only=True)
class LoadOutcome:
    """What a load left behind. `reports` has one WorkerReport for each worker, also for those that died
    (`ok` false, with a reason); `aborted` is the reason that `on_tick` gave, if it gave one. `over_saturated_at_s`
    after the start of load the server was seen to fall behind for good, and the load was ended for that.
    `cores` are the CPUs that workers were kept to, () for all."""

    epoch_ns: int
    epoch_unix_ns: int
    unit: str
    kinds: tuple[str, ...]
    reports: tuple[Mapping[str, Any], ...]
    segments: tuple[Path, ...]
    chunks: tuple[Path, ...]
    client_csv: Path
    quality: Mapping[str, float] = field(default_factory=dict)
    quality_error: str | None = None
    aborted: str | None = None
    over_saturated_at_s: float | None = None
    cores: tuple[int, ...] = ()
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
    owner: int | None = None,
    carrier: Carrier | None = None,
) -> LoadOutcome:
    """Run the load in worker processes of the interpreter `python` (None: this one) and wait for its end.

    `parts` is a folder for what workers write; the caller removes it. `on_tick` is called about every 0.1 s from
    the first process on; a string that it returns ends the load, for that reason. `owner` is the process whose run
    this load belongs to: workers are forked by a fork server that ends with it. `carrier` starts the workers; None:
    it starts them on this machine. A worker that dies after the clock started is counted and the others go on. Raises
    LoadError when the load cannot begin. No process is left, whatever is raised; a caller that wants this for SIGTERM
    too turns the signal into an exception.
    """
    parts.mkdir(parents=True, exist_ok=True)
    with Crew(job=job, parts=parts, python=python or Path(sys.executable), carrier=carrier or Local(owner)) as crew:
        aborted = crew.make_ready(on_tick)
        if aborted is not None:
            raise LoadError(aborted, crew.log_tail())
        return crew.measure(on_tick)


class Crew:
    """All workers of one load. On leaving, none of them is alive."""

    def __init__(self, *, job: LoadJob, parts: Path, python: Path, carrier: Carrier) -> None:
        self.job = job
        self.parts = parts
        self.python = python
        self.carrier = carrier
        self.workers: Sequence[Carried] = ()
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.close()
        self.carrier.close()
        self.selector.close()

    def make_ready(self, on_tick: Callable[[], str | None]) -> str | None:
        """Start the workers and wait until each is ready; return `on_tick`'s reason to stop, if it has one."""
        many = self.carrier.count(self.job)
        limit = time.monotonic() + self.job.ready_timeout_s

        def on_wait() -> None:
            if reason := on_tick():
                raise LoadError(reason, self.log_tail())
            if time.monotonic() > limit:
                slow = f"what workers import was not imported after {self.job.ready_timeout_s:g} s"
                raise LoadError(slow, self.log_tail())

        shares = [
            Share(
                job=self.job,
                worker=k,
                workers=many,
                segment=self.parts / f"worker-{k}.samples",
                report=self.parts / f"worker-{k}.report.json",
                parent_pid=os.getpid(),
            )
            for k in range(many)
        ]
        for share in shares:
            share.report.unlink(missing_ok=True)
        self.workers = self.carrier.start(shares, self.python, self.selector, on_wait)
        while not all(worker.ready for worker in self.workers):
            self._listen(TICK_S)
            for worker in self.workers:
                if worker.failed is not None:
                    raise LoadError(f"worker {worker.share.worker}: {worker.failed}", worker.tail())
                if worker.ready is None and not worker.alive():
                    raise LoadError(worker.failed or f"{worker.death()} before it was ready", worker.tail())
            if time.monotonic() > limit:
                slow = [worker.share.worker for worker in self.workers if worker.ready is None]
                raise LoadError(
                    f"workers {slow} were not ready after {self.job.ready_timeout_s:g} s", self.log_tail()
                )
            reason = on_tick()
            if reason is not None:
                return reason
        for worker in self.workers:
            worker.look_at_clock()
            if worker.failed is not None:
                raise LoadError(f"worker {worker.share.worker}: {worker.failed}", worker.tail())
            if reason := on_tick():
                return reason
        return None

    def measure(self, on_tick: Callable[[], str | None]) -> LoadOutcome:
        """Start the clock, wait for the workers' end, and gather what they left."""
        epoch_ns = time.monotonic_ns() + int(self.carrier.head_start_s * 1e9)
        epoch_unix_ns = time.time_ns() + epoch_ns - time.monotonic_ns()
        for worker in self.workers:
            worker.go(epoch_ns)
        client_csv = self.parts / "client.csv"
        limit_ns = epoch_ns + int((self.job.until_s + self.job.timeout_s + GRACE_S) * 1e9)
        aborted, judged, over_s = None, False, None
        saturation = watch_for(self.job.settings, self.job.latency_limit_s)
        pids = [worker.pid for worker in self.workers if worker.pid is not None]
        here = len(pids) == len(self.workers)  # the rest of a client says nothing about all of it
        kept = {cpu for worker in self.workers for cpu in worker.share.cores}
        ports = self.job.ports.values()
        with away_from(kept), ClientWatch(pids if here else (), client_csv, ports, self.job.host) as watch:
            while any(worker.alive() for worker in self.workers):
                self._listen(min(TICK_S, self.job.telemetry_interval_s))
                if not all(worker.loaded or not worker.alive() for worker in self.workers):
                    watch.sample_every(self.job.telemetry_interval_s)
                elif not judged:
                    judged = True
                    self._end_of_load()
                    limit_ns = time.monotonic_ns() + int(self._judging_s(epoch_ns) * 1e9)
                if saturation is not None and aborted is None and over_s is None:
                    over_s = saturation.look(worker.told for worker in self.workers)
                    if over_s is not None:
                        limit_ns = min(limit_ns, self._end_early())
                reason = on_tick() if aborted is None else None
                if reason is not None:
                    aborted = reason
                    limit_ns = min(limit_ns, self._end_early())
                if time.monotonic_ns() > limit_ns:
                    self._kill_overdue()
        return self._gather(epoch_ns, epoch_unix_ns, client_csv, aborted, over_s)

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

    def _judging_s(self, epoch_ns: int) -> float:
        """Return for how long the answers may be judged."""
        if not self.job.judged_in_time:
            return QUALITY_LIMIT_S
        left_s = self.job.until_s + self.job.timeout_s - (time.monotonic_ns() - epoch_ns) / 1e9
        return max(SHORTEST_JUDGING_S, left_s)

    def _end_of_load(self) -> None:
        """Nobody has a request in flight: clocks are compared once more, and the first may judge the answers."""
        for worker in self.workers:
            worker.look_at_clock()
        self.workers[0].tell("judge")
        for worker in self.workers:
            worker.tell("bye")

    def _end_early(self) -> int:
        """Have the workers end their load now; return until when, in ns of our clock, they may take for it."""
        for worker in self.workers:
            if worker.alive():
                worker.terminate()
        return time.monotonic_ns() + int(GRACE_S * 1e9)

    def _kill_overdue(self) -> None:
        """Kill the workers that still load; the first, when only what it judges takes too long."""
        alive = [worker for worker in self.workers if worker.alive()]
        for worker in [worker for worker in alive if not worker.loaded] or alive:
            worker.failed = "was overdue and was killed"
            worker.kill()

    def _gather(
        self, epoch_ns: int, epoch_unix_ns: int, client_csv: Path, aborted: str | None, over_s: float | None
    ) -> LoadOutcome:
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
            chunks=tuple(worker.share.chunks for worker in self.workers if worker.share.chunks.exists()),
            client_csv=client_csv,
            quality=reports[0].get("quality") or {},
            quality_error=reports[0].get("quality_error"),
            aborted=aborted,
            over_saturated_at_s=over_s,
            cores=self.job.cores,
            log_tail=self.log_tail(),
        )
