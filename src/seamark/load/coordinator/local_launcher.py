"""Workers as processes of this machine: forked by a fork server, else started anew."""

import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from seamark.dispatch.identity import boot_id
from seamark.load.coordinator.handle import SAME_CLOCK, WorkerHandle
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES
from seamark.platform.fork_server.client import ISOLATED_MAIN, Forked, fork
from seamark.platform.pinning import thread_variables

WORKER = "seamark.load.workers.worker"
PRELOADED = (WORKER, "seamark.load.engine.event_loop", "seamark.load.engine.supervisor")
"""Modules that every worker imports, whatever its driver."""

VMSTAT = Path("/proc/vmstat")
NO_MEMORY = "meanwhile the kernel ended processes for lack of memory"
"""Part of the reason of a worker that the kernel has probably ended."""


class LocalProcess:
    """Process of a worker on this machine: WorkerProcess says what its methods do."""

    def __init__(self, process: "Forked | subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        self._oom_kills = oom_kills()

    def end_reason(self) -> str | None:
        code = self._process.poll()
        if code is None:
            return None
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            return f"was killed by SIGKILL: {NO_MEMORY}"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stderr_tail(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        self._process.wait()


def oom_kills() -> int:
    """Return how many processes the kernel has ended for lack of memory since the machine's start."""
    counters = VMSTAT.read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)


class LocalLauncher:
    """Starts workers as processes of this machine, which share its clock and its folders.

    `owner` is the process of a run that has, or can have, a fork server: workers are forked by one that has imported
    the driver's module. None: each worker is a new process.
    """

    name = "local"
    head_start_s = 0.02

    def __init__(self, owner: int | None = None) -> None:
        self._owner = owner

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
        workers: list[WorkerHandle] = []
        try:
            for assignment in assignments:
                workers.append(self._start(assignment, python, selector, on_wait))
        except BaseException:
            for worker in workers:
                worker.close()
            raise
        return workers

    def close(self) -> None:
        """Do nothing: closed workers have ended."""

    def _start(
        self,
        assignment: WorkerAssignment,
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> WorkerHandle:
        log = assignment.segment.with_suffix(".log")
        stream, theirs = socket.socketpair()
        try:
            with theirs, log.open("w+b") as output:  # readable, so that the worker can send its last lines
                process = self._process(assignment, python, theirs, output, on_wait)
        except BaseException:
            stream.close()
            raise
        worker = WorkerHandle(assignment, LocalProcess(process, log), selector, carrier=self.name)
        about = {"host": socket.gethostname(), "pid": process.pid, "machine": boot_id()}
        worker.connect(stream, about, clock=SAME_CLOCK)
        return worker

    def _process(
        self,
        assignment: WorkerAssignment,
        python: Path,
        stream: socket.socket,
        output: BinaryIO,
        on_wait: Callable[[], object],
    ) -> "Forked | subprocess.Popen[bytes]":
        number = str(assignment.worker)
        variables = {**thread_variables(assignment.job.threads), **assignment.job.gpu_variables}
        if self._owner is not None:
            forked = fork(
                f"{WORKER}:run",
                [number],
                owner=self._owner,
                files=(stream.fileno(), output.fileno(), output.fileno()),
                python=python,
                preload=(*PRELOADED, assignment.job.driver.partition(":")[0], *assignment.job.preload),
                orphan_signal=signal.SIGKILL,
                import_environment=True,
                variables=variables,
                on_wait=on_wait,
            )
            if forked is not None:
                return forked
        command = [str(python), ISOLATED_MAIN, WORKER, number]
        environment = {**os.environ, **variables}
        return subprocess.Popen(command, stdin=stream.fileno(), stdout=output, stderr=output, env=environment)
