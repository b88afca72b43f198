"""Workers as processes of this machine, with pipes for the line protocol."""

import contextlib
import json
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from seamark.load.coordinator.launchers.launcher import WorkerHandle, WorkerState
from seamark.load.engine.schedule_share import due_requests_of_lost
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES
from seamark.model.results.load_record import WorkerReport
from seamark.platform.fork_server.client import ISOLATED_MAIN, Forked, fork, with_pipes
from seamark.storage.codec import parse

MODULES = ("seamark.load.workers.worker", "seamark.load.engine.event_loop", "seamark.load.engine.supervisor")
"""Modules that every worker imports, whatever its driver."""


class LocalLauncher:
    """Starts workers as processes of this machine, which share its clock. `owner` as in `start_worker`."""

    name = "local"
    head_start_s = 0.02

    def __init__(self, owner: int | None = None) -> None:
        self.owner = owner

    def count(self, job: LoadJob) -> int:
        return job.processes

    def start(
        self,
        assignments: Sequence[WorkerAssignment],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[WorkerHandle]:
        """Start the workers one by one; on failure none survives."""
        workers: list[LocalWorker] = []
        try:
            for assignment in assignments:
                workers.append(LocalWorker(assignment, python, assignment.segment.parent, self.owner, on_wait))
        except BaseException:
            for worker in workers:
                worker.close()
            raise
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        return workers

    def close(self) -> None:
        """Do nothing: closed workers have ended."""


class LocalWorker(WorkerState):
    """Handle of one worker process: WorkerHandle says what its methods do."""

    def __init__(
        self,
        assignment: WorkerAssignment,
        python: Path,
        parts: Path,
        owner: int | None,
        on_wait: Callable[[], object],
    ) -> None:
        super().__init__()
        self.assignment = assignment
        self.errors = parts / f"worker-{assignment.worker}.log"
        self._pending = b""
        path = parts / f"worker-{assignment.worker}.json"
        path.write_text(json.dumps(assignment.to_json()), encoding="utf-8")
        self.process = start_worker(
            path, assignment.job.driver.partition(":")[0], python, self.errors, owner, on_wait
        )

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def measure_clock_offset(self) -> None:
        """Do nothing: it uses the same clock."""

    def start_load(self, epoch_ns: int) -> None:
        self.send(f"go {epoch_ns}")

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.alive():
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def on_readable(self) -> bool:
        assert self.process.stdout is not None
        data = self.process.stdout.read(65536)
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self.handle(line.decode(errors="replace"))
        return True

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")

    def stderr_tail(self) -> list[str]:
        return self.errors.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]

    def end_reason(self) -> str:
        code = self.process.returncode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return f"worker {self.assignment.worker} {how}"

    def report(self, at_ns: int) -> WorkerReport:
        try:
            written = parse(self.assignment.report.read_text(encoding="utf-8"), WorkerReport)
        except (OSError, ValueError):
            written = lost_report(self.assignment, self.process.pid, self.failed or self.end_reason(), at_ns)
        return replace(
            written,
            carrier=LocalLauncher.name,
            host=socket.gethostname(),
            shared=True,
            offset_ns=0,
            offset_error_ns=0,
            offset_drift_ns=0,
        )


def start_worker(
    assignment: Path,
    module: str,
    python: Path,
    errors: Path,
    owner: int | None,
    on_wait: Callable[[], object] = lambda: None,
) -> "Forked | subprocess.Popen[bytes]":
    """Start a worker of the interpreter `python`: forked where the run `owner` has or can have a fork server that
    imported the driver's module, else as a new process. `on_wait` as in `fork`."""
    if owner is not None:
        forked = with_pipes(
            errors,
            lambda files: fork(
                "seamark.load.workers.worker:run",
                [str(assignment)],
                owner=owner,
                files=files,
                python=python,
                preload=(*MODULES, module),
                orphan_signal=signal.SIGKILL,
                import_environment=True,
                on_wait=on_wait,
            ),
        )
        if forked is not None:
            return forked
    with errors.open("wb") as log:
        return subprocess.Popen(
            [str(python), ISOLATED_MAIN, "seamark.load.workers.worker", str(assignment)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        )


def lost_report(assignment: WorkerAssignment, pid: int | None, reason: str, at_ns: int) -> WorkerReport:
    """Return the WorkerReport of a worker that wrote none. Its part of an open schedule was due nevertheless, as far
    as it lies before `at_ns`."""
    scheduled = due_requests_of_lost(assignment, at_ns)
    return WorkerReport(worker=assignment.worker, pid=pid, ok=False, reason=reason, scheduled=scheduled)
