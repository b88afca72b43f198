"""Workers that a command starts elsewhere: srun, or a process that hands tasks to Dask or Spark."""

import contextlib
import json
import os
import secrets
import selectors
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import psutil

from seamark import __version__
from seamark.load.coordinator.launchers.launcher import Carried
from seamark.load.coordinator.launchers.remote_worker_handle import Distant
from seamark.load.coordinator.launchers.rendezvous import Gate
from seamark.load.coordinator.launchers.task import ORDER
from seamark.load.workers.assignment import LoadJob, Share
from seamark.load.workers.hooks import TAIL_LINES
from seamark.platform.fork_server.client import OUTSIDE

HEAD_START_S = 0.5
"""Longer than a packet that was lost takes to be sent again."""
END_S = 5.0
"""How long a launcher may take to end once its workers have."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Launcher(Protocol):
    """The command that starts workers elsewhere."""

    name: str
    alone: bool
    """Whether a worker lives on when what started it there is killed."""

    def near(self) -> str | None:
        """Return a host that is near the workers: they can reach us as it can. None where there is none."""

    def command(self, workers: int, python: Path) -> list[str]:
        """Return the command that starts so many."""

    def environment(self) -> dict[str, str]:
        """Return the environment of the command."""

    def order(self) -> Mapping[str, Any]:
        """Return what it needs to know besides."""


class Launched:
    """Carries workers by a launcher. They come to our gate, each with its number."""

    head_start_s = HEAD_START_S

    def __init__(self, launcher: Launcher) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._gate: Gate | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: Sequence[Distant] = ()
        self._log = Path(os.devnull)
        self._probe: Mapping[str, str] = {}
        self._refused: dict[int, str] = {}

    def count(self, job: LoadJob) -> int:
        """Return how many workers the load has: as many as are asked for, whatever this machine has."""
        return job.at_least()

    def start(
        self,
        shares: Sequence[Share],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[Carried]:
        """Open the gate and start the launcher; the workers come later."""
        folder = shares[0].segment.parent
        shares = [replace(share, job=replace(share.job, cores=())) for share in shares]  # cores are this machine's
        near = self._launcher.near()
        self._probe = _probe(folder)
        self._log = folder / f"{self.name}.log"
        self._gate = Gate(selector, self._admit, host="127.0.0.1" if near in LOCAL_HOSTS else "")
        self._workers = [Distant(share, self.name, selector, self._never) for share in shares]
        order = {
            **self._launcher.order(),
            "workers": len(shares),
            "alone": self._launcher.alone,
            "python": str(python),
            "outside": OUTSIDE,
            "token": self._gate.token,
            "addresses": [(host, self._gate.port) for host in reachable_by(near)],
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._launcher.command(len(shares), python),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._launcher.environment(), ORDER: json.dumps(order)},
            )
        return self._workers

    def close(self) -> None:
        """Let nobody in any more, and end the launcher if it does not end by itself."""
        if self._gate is not None:
            self._gate.close()
        if self._process is not None:
            if all(worker.delivered for worker in self._workers):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
            if self._process.poll() is None:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
                self._process.kill()
                self._process.wait()

    def _admit(self, connection: socket.socket, about: dict[str, Any], rest: bytes) -> None:
        """Take in a worker, or the word of how one ended. One that is there already is not taken twice: a task that
        was started again starts nothing."""
        if "ended" in about:
            connection.close()
            ended = about["ended"]
            worker = self._of(ended.get("worker"))
            if worker is not None and worker.ended is None:
                worker.ended = ended
            return
        worker = self._of(about.get("worker"))
        if worker is None or not worker.expected:
            connection.close()
        elif about.get("version") != __version__:
            connection.close()
            where, theirs = about.get("host"), about.get("version")
            self._refused[worker.share.worker] = f"{where} has seamark {theirs}, and here it is {__version__}"
        else:
            worker.admit(connection, about, rest, self._probe)
            if not worker.here and worker.share.job.host in LOCAL_HOSTS and worker.share.job.ports:
                worker.failed = (
                    f"it runs on {worker.host}, where {worker.share.job.host} is not the server's machine. "
                    "Set `address` of the site to one that all nodes can reach"
                )

    def _of(self, number: object) -> Distant | None:
        known = isinstance(number, int) and 0 <= number < len(self._workers)
        return self._workers[number] if known and isinstance(number, int) else None

    def _never(self, number: int) -> str | None:
        """Return why a worker that has not come will not come."""
        if number in self._refused:
            return self._refused[number]
        ended = self._workers[number].ended
        if ended is not None:
            return f"worker {number} on {ended.get('host')} {ended.get('how')}"
        if self._process is None or self._process.poll() is None:
            return None
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.partition(" ")[2] for line in lines if line.startswith("failed ")]
        return said[-1] if said else "\n".join([f"{self.name} ended before its tasks had come", *lines[-TAIL_LINES:]])


def reachable_by(near: str | None) -> list[str]:
    """Return names and addresses of this machine, best first, for workers near that host."""
    if near in LOCAL_HOSTS:
        return ["127.0.0.1"]
    found = []
    if near is not None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((near, 9))  # sends nothing: the kernel only looks up the way
            found.append(str(asked.getsockname()[0]))
    found.append(socket.gethostname())
    for addresses in psutil.net_if_addrs().values():
        found += [each.address for each in addresses if each.family == socket.AF_INET]
    return [host for host in dict.fromkeys(found) if host not in LOCAL_HOSTS] or ["127.0.0.1"]


def _probe(folder: Path) -> dict[str, str]:
    """Write a file of a name and a content that nobody else has; return both."""
    path, content = folder / f"probe-{secrets.token_hex(8)}", secrets.token_hex(16)
    path.write_text(content, encoding="ascii")
    return {"path": str(path.absolute()), "content": content}
