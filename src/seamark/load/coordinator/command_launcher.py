"""Launchers on other machines by a command: srun, or a process that submits tasks to a Dask or Spark cluster."""

import contextlib
import importlib.util
import json
import os
import secrets
import selectors
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from seamark import __version__
from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.identity import allocation
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.handle import WorkerHandle, WorkerLauncher
from seamark.load.coordinator.local_launcher import WORKER, LocalLauncher
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.channel import LAUNCH_SPEC
from seamark.load.workers.hooks import TAIL_LINES
from seamark.model.site import misplaced
from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.ports import LOCAL_HOSTS, reachable_by
from seamark.platform.rendezvous import RendezvousListener

END_S = 5.0
"""Time for the command to end after its workers."""
PACKAGES = {"dask": "distributed", "spark": "pyspark"}
"""Package of the client of each cluster."""


class RemoteWorkerProcess:
    """Process of a worker that a command starts elsewhere: WorkerProcess says what its methods do.

    `ended` is how it ended, if its task reported that; `refused` why its connection was; `absence_reason` returns why
    a worker that has not connected never will.
    """

    def __init__(self, absence_reason: Callable[[], str | None]) -> None:
        self.ended: Mapping[str, Any] | None = None
        self.refused: str | None = None
        self.has_connected = False
        self._absence_reason = absence_reason

    def end_reason(self) -> str | None:
        if self.ended is not None:
            return f"on {self.ended.get('host')} {self.ended.get('how')}"
        return None if self.has_connected else self.refused or self._absence_reason()

    def stderr_tail(self) -> list[str]:
        return list((self.ended or {}).get("tail") or ())

    def kill(self) -> None:
        """Do nothing: it ends when its connection closes."""

    def wait(self) -> None:
        """Do nothing: its launcher waits for the command."""


class CommandLauncher:
    """Starts workers by a command. They connect to the rendezvous listener with their numbers.

    `words` returns the command for a number of workers and their interpreter, `environment` its variables. `spec` is
    added to the launch spec. `nearby_host` is a host that the workers reach as this one; None: any.
    """

    head_start_s = 0.5
    """Longer than the retransmission of a lost packet."""

    def __init__(
        self,
        name: str,
        words: Callable[[int, Path], Sequence[str]],
        environment: Callable[[], Mapping[str, str]] = os.environ.copy,
        *,
        nearby_host: str | None = None,
        spec: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._words, self._environment = words, environment
        self._nearby_host, self._spec = nearby_host, spec
        self._listener: RendezvousListener | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: dict[object, tuple[WorkerHandle, RemoteWorkerProcess]] = {}
        self._log = Path(os.devnull)
        self._probe: Mapping[str, str] = {}

    def count(self, job: LoadJob) -> int:
        """Return the number of workers: as many as requested, independent of this machine's cores."""
        return job.at_least()

    def start(
        self,
        assignments: Sequence[WorkerAssignment],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[WorkerHandle]:
        """Open the listener and run the command; the workers connect later."""
        folder, nearby_host = assignments[0].segment.parent, self._nearby_host
        self._probe = _probe(folder)
        self._log = folder / f"{self.name}.log"
        self._listener = RendezvousListener(
            selector, self._admit, host="127.0.0.1" if nearby_host in LOCAL_HOSTS else ""
        )
        for assignment in assignments:
            process = RemoteWorkerProcess(self._absence_reason)
            elsewhere = replace(assignment, job=replace(assignment.job, cores=()))  # `cores` are CPUs of this machine
            worker = WorkerHandle(elsewhere, process, selector, carrier=self.name)
            self._workers[assignment.worker] = worker, process
        spec = {
            **self._spec,
            "workers": len(assignments),
            "python": str(python),
            "isolated_main": ISOLATED_MAIN,
            "token": self._listener.token,
            "addresses": [(host, self._listener.port) for host in reachable_by(nearby_host)],
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._words(len(assignments), python),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environment(), LAUNCH_SPEC: json.dumps(spec)},
            )
        return [worker for worker, _ in self._workers.values()]

    def close(self) -> None:
        """Close the listener and end the command."""
        if self._listener is not None:
            self._listener.close()
        if self._process is not None:
            if all(worker.has_finished for worker, _ in self._workers.values()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
            if self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
                self._process.kill()
                self._process.wait()

    def _admit(self, connection: socket.socket, about: dict[str, Any], received: bytes) -> None:
        """Admit a worker, or record how one ended. A second connection of a worker is refused: a restarted task
        starts nothing."""
        ended = about.get("ended")
        worker, process = self._workers.get((ended or about).get("worker"), (None, None))
        if ended is not None or worker is None or process is None or not worker.is_expected:
            connection.close()
            if process is not None and ended is not None:
                process.ended = process.ended or ended
        elif about.get("version") != __version__:
            connection.close()
            process.refused = f"{about.get('host')} has seamark {about.get('version')}, and here it is {__version__}"
        else:
            process.has_connected = True
            worker.connect(connection, about, received=received, probe=self._probe)
            job = worker.assignment.job
            if not worker.is_local and job.host in LOCAL_HOSTS and job.ports:
                worker.failed = (
                    f"it runs on {worker.host}, where {job.host} is not the server's machine. "
                    "Set `address` of the site to one that all nodes can reach"
                )

    def _absence_reason(self) -> str | None:
        """Return why a missing worker will not connect, None while it may."""
        if self._process is None or self._process.poll() is None:
            return None
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        failures = [line.partition(" ")[2] for line in lines if line.startswith("failed ")]
        if failures:
            return failures[-1]
        return "\n".join([f"{self.name} ended before its tasks had come", *lines[-TAIL_LINES:]])


def _probe(folder: Path) -> dict[str, str]:
    """Write a file with a unique name and content; return both."""
    path, content = folder / f"probe-{secrets.token_hex(8)}", secrets.token_hex(16)
    path.write_text(content, encoding="ascii")
    return {"path": str(path.absolute()), "content": content}


def launcher_of(
    name: str,
    address: str | None = None,
    python: Path | None = None,
    owner: int | None = None,
    nodes: Sequence[str] = (),
) -> WorkerLauncher:
    """Return the launcher of that name. `python` is an interpreter with the cluster's package (None: this one);
    `owner` as in `run_load`; `nodes` restricts it to some of a batch job's (none: all).

    Raises UserError for an invalid name or address, SiteError for what this machine lacks.
    """
    if wrong := misplaced(name, address):
        raise UserError(f"carrier: {wrong}")
    if name == "local":
        return LocalLauncher(owner)
    if name == "srun":
        return _srun(tuple(nodes))
    assert address is not None
    return _task_cluster(name, address, python)


def _srun(nodes: tuple[str, ...]) -> CommandLauncher:
    """Return the launcher of workers as tasks of a job step within an allocation, whose nodes know each other by
    name; a task's rank is its worker's number."""
    if shutil.which("srun") is None:
        raise SiteError("carrier srun: there is no srun on PATH. Choose another carrier, or load Slurm's module.")
    if not allocation():
        raise SiteError(
            "carrier srun: no Slurm allocation here (SLURM_JOB_ID is not set). Run within one, "
            "as `salloc --nodes=2 bench ...`, or choose another carrier."
        )
    dispatcher = dispatcher_here()

    def words(workers: int, python: Path) -> list[str]:
        return dispatcher.step((str(python), ISOLATED_MAIN, WORKER), tasks=workers, nodes=nodes[:workers])

    return CommandLauncher("srun", words, dispatcher.step_environment)


def _task_cluster(name: str, address: str, python: Path | None) -> CommandLauncher:
    """Return the launcher of workers as tasks of a Dask or Spark cluster at `address`, submitted with the interpreter
    `python` (None: this one) that has its package."""
    if python is None and importlib.util.find_spec(PACKAGES[name]) is None:
        raise SiteError(
            f"carrier {name}: the package '{PACKAGES[name]}' is not installed here. Install seamark[{name}], or "
            "name an interpreter that has it in the version of the cluster: carrier_python of the site, "
            "--carrier-python of bench load."
        )
    if python is not None and not python.exists():
        raise SiteError(f"carrier {name}: there is no interpreter {python}. Correct carrier_python.")
    words = [str(python or sys.executable), ISOLATED_MAIN, "seamark.load.coordinator.cluster_tasks", name]
    return CommandLauncher(
        name,
        lambda workers, python: words,
        nearby_host="localhost" if address.startswith("local") else urlsplit(address).hostname,
        # Spark ends all tasks of a stage with one of them; the other workers must survive
        spec={"address": address, "parent": os.getpid(), "detached": name == "spark"},
    )
