"""Launchers on other machines by a command: srun, or a process that submits tasks to Dask or Spark."""

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
from typing import Any, Protocol
from urllib.parse import urlsplit

import psutil

from seamark import __version__
from seamark.dispatch.identity import allocation
from seamark.dispatch.slurm.allocation import step, step_environment
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.launchers.launcher import WorkerHandle, WorkerLauncher
from seamark.load.coordinator.launchers.local import LocalLauncher
from seamark.load.coordinator.launchers.remote_worker_handle import RemoteWorker
from seamark.load.coordinator.launchers.rendezvous import RendezvousListener
from seamark.load.coordinator.launchers.task import LAUNCH_SPEC
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES
from seamark.model.site import misplaced
from seamark.platform.fork_server.client import ISOLATED_MAIN


class Srun:
    """`srun` within an allocation. The tasks inherit the environment."""

    name = "srun"
    detached = False

    def __init__(self, nodes: Sequence[str] = ()) -> None:
        """Use `nodes` only, if given. Raise SiteError outside of an allocation."""
        job = allocation()
        if shutil.which("srun") is None:
            raise SiteError("carrier srun: there is no srun on PATH. Choose another carrier, or load Slurm's module.")
        if not job:
            raise SiteError(
                "carrier srun: no Slurm allocation here (SLURM_JOB_ID is not set). Run within one, "
                "as `salloc --nodes=2 bench ...`, or choose another carrier."
            )
        self.job = job
        self.nodes = tuple(nodes)

    def nearby_host(self) -> str | None:
        """Return None: nodes of an allocation know each other by name."""
        return None

    def command(self, workers: int, python: Path) -> list[str]:
        return step(
            self.job,
            workers,
            self.nodes[:workers],
            (str(python), ISOLATED_MAIN, "seamark.load.workers.remote_worker"),
        )

    def environment(self) -> dict[str, str]:
        return step_environment()

    def spec(self) -> Mapping[str, Any]:
        """Return nothing: a task's number is its worker's."""
        return {}


HEAD_START_S = 0.5
"""Longer than the retransmission of a lost packet."""
END_S = 5.0
"""Time for the command to end after its workers."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class LaunchCommand(Protocol):
    """The command that starts workers elsewhere."""

    name: str
    detached: bool
    """Whether a worker survives the death of the process that started it there."""

    def nearby_host(self) -> str | None:
        """Return a host near the workers, which reach this machine as it does. None where there is none."""

    def command(self, workers: int, python: Path) -> list[str]:
        """Return the command that starts so many workers."""

    def environment(self) -> dict[str, str]:
        """Return the environment of the command."""

    def spec(self) -> Mapping[str, Any]:
        """Return further entries of the launch spec."""


class CommandLauncher:
    """Starts workers by a command. They connect to the rendezvous listener with their numbers."""

    head_start_s = HEAD_START_S

    def __init__(self, launcher: LaunchCommand) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._gate: RendezvousListener | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: Sequence[RemoteWorker] = ()
        self._log = Path(os.devnull)
        self._probe: Mapping[str, str] = {}
        self._refused: dict[int, str] = {}

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
        folder = assignments[0].segment.parent
        assignments = [
            replace(assignment, job=replace(assignment.job, cores=())) for assignment in assignments
        ]  # `cores` are CPUs of this machine
        nearby_host = self._launcher.nearby_host()
        self._probe = _probe(folder)
        self._log = folder / f"{self.name}.log"
        self._gate = RendezvousListener(selector, self._admit, host="127.0.0.1" if nearby_host in LOCAL_HOSTS else "")
        self._workers = [
            RemoteWorker(assignment, self.name, selector, self._absence_reason) for assignment in assignments
        ]
        spec = {
            **self._launcher.spec(),
            "workers": len(assignments),
            "detached": self._launcher.detached,
            "python": str(python),
            "isolated_main": ISOLATED_MAIN,
            "token": self._gate.token,
            "addresses": [(host, self._gate.port) for host in reachable_by(nearby_host)],
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._launcher.command(len(assignments), python),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._launcher.environment(), LAUNCH_SPEC: json.dumps(spec)},
            )
        return self._workers

    def close(self) -> None:
        """Close the listener and end the command."""
        if self._gate is not None:
            self._gate.close()
        if self._process is not None:
            if all(worker.has_finished for worker in self._workers):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
            if self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
                self._process.kill()
                self._process.wait()

    def _admit(self, connection: socket.socket, about: dict[str, Any], rest: bytes) -> None:
        """Admit a worker, or record how one ended. A second connection of a worker is refused: a restarted task
        starts nothing."""
        if "ended" in about:
            connection.close()
            ended = about["ended"]
            worker = self._of(ended.get("worker"))
            if worker is not None and worker.ended is None:
                worker.ended = ended
            return
        worker = self._of(about.get("worker"))
        if worker is None or not worker.is_expected:
            connection.close()
        elif about.get("version") != __version__:
            connection.close()
            where, theirs = about.get("host"), about.get("version")
            self._refused[worker.assignment.worker] = f"{where} has seamark {theirs}, and here it is {__version__}"
        else:
            worker.admit(connection, about, rest, self._probe)
            if not worker.is_local and worker.assignment.job.host in LOCAL_HOSTS and worker.assignment.job.ports:
                worker.failed = (
                    f"it runs on {worker.host}, where {worker.assignment.job.host} is not the server's machine. "
                    "Set `address` of the site to one that all nodes can reach"
                )

    def _of(self, number: object) -> RemoteWorker | None:
        is_valid = isinstance(number, int) and 0 <= number < len(self._workers)
        return self._workers[number] if is_valid and isinstance(number, int) else None

    def _absence_reason(self, number: int) -> str | None:
        """Return why a missing worker will not connect, None while it may."""
        if number in self._refused:
            return self._refused[number]
        ended = self._workers[number].ended
        if ended is not None:
            return f"worker {number} on {ended.get('host')} {ended.get('how')}"
        if self._process is None or self._process.poll() is None:
            return None
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        failures = [line.partition(" ")[2] for line in lines if line.startswith("failed ")]
        return (
            failures[-1]
            if failures
            else "\n".join([f"{self.name} ended before its tasks had come", *lines[-TAIL_LINES:]])
        )


def reachable_by(nearby_host: str | None) -> list[str]:
    """Return names and addresses of this machine, best first, for workers near that host."""
    if nearby_host in LOCAL_HOSTS:
        return ["127.0.0.1"]
    hosts = []
    if nearby_host is not None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((nearby_host, 9))  # sends nothing: selects the local address of the route
            hosts.append(str(probe.getsockname()[0]))
    hosts.append(socket.gethostname())
    for addresses in psutil.net_if_addrs().values():
        hosts += [entry.address for entry in addresses if entry.family == socket.AF_INET]
    return [host for host in dict.fromkeys(hosts) if host not in LOCAL_HOSTS] or ["127.0.0.1"]


def _probe(folder: Path) -> dict[str, str]:
    """Write a file with a unique name and content; return both."""
    path, content = folder / f"probe-{secrets.token_hex(8)}", secrets.token_hex(16)
    path.write_text(content, encoding="ascii")
    return {"path": str(path.absolute()), "content": content}


PACKAGES = {"dask": "distributed", "spark": "pyspark"}
"""Package of the client of each cluster."""


class TaskCluster:
    """A running Dask or Spark cluster at `address`, with the interpreter `python` (None: this one) that has its
    package."""

    def __init__(self, name: str, address: str, python: Path | None = None) -> None:
        """Raise SiteError if the package is missing here."""
        self.name = name
        self.detached = (
            name == "spark"
        )  # Spark ends all tasks of a stage with one of them; the other workers must survive
        self.address = address
        self.python = python
        if python is None and importlib.util.find_spec(PACKAGES[name]) is None:
            raise SiteError(
                f"carrier {name}: the package '{PACKAGES[name]}' is not installed here. Install seamark[{name}], or "
                "name an interpreter that has it in the version of the cluster: carrier_python of the site, "
                "--carrier-python of bench load."
            )
        if python is not None and not python.exists():
            raise SiteError(f"carrier {name}: there is no interpreter {python}. Correct carrier_python.")

    def nearby_host(self) -> str | None:
        """Return the host of the cluster's scheduler; None if its address has none."""
        if self.address.startswith("local"):
            return "localhost"
        return urlsplit(self.address).hostname

    def command(self, workers: int, python: Path) -> list[str]:
        return [
            str(self.python or sys.executable),
            ISOLATED_MAIN,
            f"seamark.load.coordinator.launchers.{self.name}_tasks",
        ]

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def spec(self) -> Mapping[str, Any]:
        return {"address": self.address, "parent": os.getpid()}


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
        return CommandLauncher(Srun(nodes))
    assert address is not None
    return CommandLauncher(TaskCluster(name, address, python))
