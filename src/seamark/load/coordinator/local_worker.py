"""The workers of a load as processes of this machine: started, heard, told, and how they ended."""

import contextlib
import json
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seamark.load.coordinator.launchers.launcher import Carried, Place
from seamark.load.coordinator.launchers.worker_state import Said
from seamark.load.workers.assignment import LoadJob, Share
from seamark.load.workers.hooks import TAIL_LINES
from seamark.load.workers.lost_requests import due_of_lost
from seamark.platform.fork_server.client import OUTSIDE, Forked, fork, with_pipes

MODULES = ("seamark.load.workers.worker", "seamark.load.engine.event_loop", "seamark.load.engine.supervisor")
"""What every worker imports, whichever its driver."""


class Local:
    """Carries workers as processes of this machine, which share our clock. `owner` is as `start_worker` has it."""

    name = "local"
    head_start_s = 0.02

    def __init__(self, owner: int | None = None) -> None:
        self.owner = owner

    def count(self, job: LoadJob) -> int:
        """Return how many workers the load has."""
        return job.processes

    def start(
        self,
        shares: Sequence[Share],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[Carried]:
        """Start the workers one after another; none is left when that fails."""
        workers: list[Worker] = []
        try:
            for share in shares:
                workers.append(Worker(share, python, share.segment.parent, self.owner, on_wait))
        except BaseException:
            for worker in workers:
                worker.close()
            raise
        for worker in workers:
            assert worker.process.stdout is not None
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        return workers

    def close(self) -> None:
        """Do nothing: a worker that is closed has ended."""


class Worker(Said):
    """One worker process as its parent sees it."""

    def __init__(
        self, share: Share, python: Path, parts: Path, owner: int | None, on_wait: Callable[[], object]
    ) -> None:
        super().__init__()
        self.share = share
        self.errors = parts / f"worker-{share.worker}.log"
        self._pending = b""
        path = parts / f"worker-{share.worker}.json"
        path.write_text(json.dumps(share.to_json()), encoding="utf-8")
        self.process = start_worker(path, share.job.driver.partition(":")[0], python, self.errors, owner, on_wait)

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def look_at_clock(self) -> None:
        """Do nothing: its clock is ours."""

    def go(self, epoch_ns: int) -> None:
        """Name the start of load, in ns of our monotonic clock."""
        self.tell(f"go {epoch_ns}")

    def terminate(self) -> None:
        """Ask it to end its load now and to report."""
        self.process.terminate()

    def kill(self) -> None:
        """End it without asking."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it if it lives, and close its pipes."""
        if self.alive():
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def hear(self) -> bool:
        """Read what the worker says; return False at the end of its output."""
        assert self.process.stdout is not None
        data = self.process.stdout.read(65536)
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self.take(line.decode(errors="replace"))
        return True

    def tell(self, line: str) -> None:
        """Send the worker a line; one that died no longer listens, and its death is seen elsewhere."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")

    def tail(self) -> list[str]:
        """Return the last lines that the worker wrote to stderr."""
        return self.errors.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]

    def death(self) -> str:
        """Say how the process ended."""
        code = self.process.returncode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return f"worker {self.share.worker} {how}"

    def report(self, at_ns: int) -> dict[str, Any]:
        """Return the report the worker wrote, or one that says how it died and what was due by `at_ns` from the
        start of load."""
        try:
            written: dict[str, Any] = json.loads(self.share.report.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            written = lost_report(self.share, self.process.pid, self.failed or self.death(), at_ns)
        place = Place(
            carrier=Local.name,
            host=socket.gethostname(),
            shared=True,
            offset_ns=0,
            offset_error_ns=0,
            offset_drift_ns=0,
        )
        return written | asdict(place)


def start_worker(
    share: Path,
    module: str,
    python: Path,
    errors: Path,
    owner: int | None,
    on_wait: Callable[[], object] = lambda: None,
) -> "Forked | subprocess.Popen[bytes]":
    """Start a worker of the interpreter `python`: forked where the run `owner` has, or can have, a fork server that
    imported the driver's module; else as a process that imports for itself. `on_wait` is as `fork` has it."""
    if owner is not None:
        forked = with_pipes(
            errors,
            lambda files: fork(
                "seamark.load.workers.worker:run",
                [str(share)],
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
            [str(python), OUTSIDE, "seamark.load.workers.worker", str(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        )


def lost_report(share: Share, pid: int | None, reason: str, at_ns: int) -> dict[str, Any]:
    """Return the WorkerReport of a worker that wrote none. Its part of an open schedule was due all the same: as much
    of it as lies before `at_ns`."""
    return {
        "worker": share.worker,
        "pid": pid,
        "ok": False,
        "reason": reason,
        "wall_s": None,
        "cpu_s": None,
        "max_rss_bytes": None,
        "lag_ns": None,
        "loop_lag_ns": None,
        "stalls_ns": [],
        "backlog_max": None,
        "survivors": None,
        "scheduled": due_of_lost(share, at_ns),
        "sent": None,
        "completed": None,
    }
