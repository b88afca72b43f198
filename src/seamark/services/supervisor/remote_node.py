"""The server's other nodes as the keeper sees them: an agent on each, asked over one connection. See agent.py.

A question is a line with a JSON object, and so is its answer. Whatever happens to either side, the agent ends
everything on its node when its connection closes.
"""

import contextlib
import json
import os
import pickle
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from seamark import __version__
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.launchers.command_launcher import LOCAL_HOSTS, reachable_by
from seamark.load.coordinator.launchers.rendezvous import RendezvousListener
from seamark.load.coordinator.launchers.srun import step, step_environment
from seamark.platform.fork_server.client import OUTSIDE
from seamark.services.supervisor.commands import ProcessSlot
from seamark.services.supervisor.control_files import control_files_of
from seamark.services.supervisor.failure import EndedError, FailedError
from seamark.services.supervisor.health import State
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.node_layout import Node
from seamark.services.supervisor.process import ProcessCommands
from seamark.services.supervisor.supervisor_log import exit_text, say
from seamark.telemetry.sampler import Reading

TOLD = "SEAMARK_AGENT"
"""The variable of the environment that tells an agent where its keeper is."""
REACH_S = 60.0
"""How long Slurm may take to start the agents."""
ANSWER_S = 20.0
POLL_S = 0.2
END_S = 15.0
TICK_S = 0.02


class RemoteNode:
    """Another node of the server: what runs there is asked of its agent. A node that does not answer is lost, and
    with it all that ran there: what is asked of it then raises EndedError."""

    def __init__(self, node: Node, connection: socket.socket, rest: bytes) -> None:
        self.node = node
        self.lost: str | None = None
        self._connection = connection
        self._pending = rest
        self._lock = threading.Lock()
        self._codes: Mapping[str, int | None] = {}
        self._polled_s = float("-inf")
        connection.settimeout(ANSWER_S)

    def ask(self, do: str, **more: Any) -> Any:
        """Return the agent's answer. Raises what it raised there: FailedError, UserError or OSError."""
        with self._lock:
            if self.lost is None:
                try:
                    self._connection.sendall((json.dumps({"do": do, **more}) + "\n").encode())
                    answer = json.loads(self._line())
                except (OSError, ValueError) as error:
                    self.lost = f"The node {self.node.name} was lost: {error}."
            if self.lost is not None:
                raise EndedError("crash", self.lost)
        if said := answer.get("error"):
            raise _raised(said, self.node.name)
        return answer["is"]

    def poll(self, name: str) -> int | None:
        """Return the exit code of a process there, None while it runs; not asked more often than every POLL_S."""
        now_s = time.monotonic()
        if self._codes.get(name) is None and now_s - self._polled_s >= POLL_S:
            self._polled_s = now_s
            self._codes = self.ask("poll")
        return self._codes.get(name)

    def read(self) -> Iterable[Reading]:
        """Return what the monitors there see now."""
        return [Reading(**one) for one in self.ask("read")]

    def close(self) -> None:
        """Hang up: the agent ends everything there, and itself."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _line(self) -> bytes:
        while b"\n" not in self._pending:
            data = self._connection.recv(1 << 16)
            if not data:
                raise OSError("its agent has hung up")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line


class RemoteProcess:
    """One process of a deployment on another node."""

    def __init__(self, node: RemoteNode, name: str) -> None:
        self.name = name
        self.pid: int | None = None
        self._node = node

    def choose(self, host: str, taken: Collection[int]) -> dict[str, int]:
        """Return free ports for it, none of them in `taken`."""
        return cast("dict[str, int]", self._ask("choose", host=host, taken=list(taken)))

    def make(self, slot: ProcessSlot) -> ProcessCommands:
        """Find out what is to be executed in its seat."""
        made = self._ask("make", slot=asdict(slot))
        return ProcessCommands(command=tuple(made["command"]), setup=tuple(map(tuple, made["setup"])))

    def set_up(self, number: int) -> None:
        """Begin with a set-up command."""
        self._ask("set_up", number=number)

    def set_up_code(self) -> int | None:
        """Return the exit code of the set-up command, None while it runs."""
        return cast("int | None", self._ask("set_up_code"))

    def start(self) -> int:
        """Start it; return its process id there."""
        self.pid = int(self._ask("start"))
        return self.pid

    def look(self) -> State:
        """Return whether it answers as its health probe wants, asked on its own node."""
        return cast("State", self._ask("look"))

    def taken(self) -> list[str]:
        """Return those of its ports, as NAME=NUMBER, on which somebody else listens."""
        return cast("list[str]", self._ask("taken"))

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._node.poll(self.name)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._ask("signal", number=int(number))

    def _ask(self, do: str, **more: Any) -> Any:
        return self._node.ask(do, process=self.name, **more)


class RemoteNodes:
    """The agents of all other nodes: one step of the Slurm job that we run in, a task a node."""

    def __init__(self, spec: LaunchSpec, nodes: Sequence[Node], local_address: str) -> None:
        """`near` is our own address, as the nodes know it."""
        self._wanted = {node.name: node for node in nodes}
        self._local_address = local_address
        self._spec = spec
        self._control = control_files_of(spec.folder)
        self._log = self._control.root / "nodes.log"
        self._refused: str | None = None
        self.found: dict[str, RemoteNode] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process of the step, once it is started."""
        return self._process.pid if self._process else None

    def reach(self, tick: Callable[[], None]) -> None:
        """Start an agent on each node and wait until all have come. Raises FailedError when one does not."""
        with selectors.DefaultSelector() as selector:
            local = self._local_address in LOCAL_HOSTS
            gate = RendezvousListener(selector, self._admit, host="127.0.0.1" if local else "")
            addresses = (
                [self._local_address] if local else list(dict.fromkeys([self._local_address, *reachable_by(None)]))
            )
            try:
                self._start(gate, addresses)
                deadline_s = time.monotonic() + REACH_S
                while set(self.found) != set(self._wanted):
                    tick()
                    for key, _ in selector.select(TICK_S):
                        key.data.on_readable()
                    self._complain(time.monotonic() > deadline_s)
            finally:
                gate.close()

    def close(self) -> None:
        """Hang up on every agent and wait until the step has ended."""
        for node in self.found.values():
            node.close()
        if self._process is None:
            return
        for then in (self._process.terminate, self._process.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
                return
            then()

    def _start(self, gate: RendezvousListener, addresses: Sequence[str]) -> None:
        spec_path = self._control.root / "launch_spec.pickle"
        with open(os.open(spec_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            pickle.dump(self._spec, file)
        told = {
            "token": gate.token,
            "addresses": [(host, gate.port) for host in addresses],
            "launch_spec": str(spec_path),
        }
        command = step(
            os.environ["SLURM_JOB_ID"],
            len(self._wanted),
            list(self._wanted),
            (sys.executable, OUTSIDE, "seamark.services.supervisor.agent"),
        )
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**step_environment(), TOLD: json.dumps(told)},
            )
        say("nodes-asked", command=command)

    def _admit(self, connection: socket.socket, about: dict[str, Any], rest: bytes) -> None:
        name = str(about.get("node"))
        if name not in self._wanted or name in self.found:
            connection.close()
        elif about.get("version") != __version__:
            connection.close()
            self._refused = f"{name} has seamark {about.get('version')}, and here it is {__version__}"
        else:
            self.found[name] = RemoteNode(self._wanted[name], connection, rest)

    def _complain(self, late: bool) -> None:
        assert self._process is not None
        missing = ", ".join(name for name in self._wanted if name not in self.found)
        code = self._process.poll()
        if self._refused is None and code is None and not late:
            return
        if not missing:
            return
        how = self._refused or (
            f"srun ended with {exit_text(code)}" if code is not None else f"none in {REACH_S:g} s"
        )
        raise FailedError("setup_failed", f"No agent came from {missing}: {how}.", last_lines(self._log))


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log, none where there is no such file."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
    except OSError:
        return []


def _raised(error: Mapping[str, Any], node: str) -> Exception:
    """Return what an agent raised, as it would have been raised here."""
    text = f"On {node}: {error['reason']}"
    if error["kind"] == "FailedError":
        return FailedError(error["category"], text, error.get("log_tail"))
    return {"SiteError": SiteError, "UserError": UserError, "OSError": OSError}.get(error["kind"], OSError)(text)
