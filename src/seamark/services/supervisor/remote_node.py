"""Remote nodes of a server: the supervisor's connection to the agent on each (agent.py).

A request is a line with a JSON object, and so is its answer. Whatever happens to either side, the agent ends every
process on its node when its connection closes.
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
from typing import Any, cast

from seamark import __version__
from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.job import Node
from seamark.errors import SiteError, UserError
from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.ports import LOCAL_HOSTS, reachable_by
from seamark.platform.rendezvous import RendezvousListener
from seamark.services.supervisor.control_files import control_files_of
from seamark.services.supervisor.events import EndedError, FailedError, exit_text, log_event, log_tail
from seamark.services.supervisor.health import ServerState
from seamark.services.supervisor.launch_spec import LaunchSpec, ProcessSlot
from seamark.services.supervisor.process import ProcessCommands
from seamark.telemetry.sampler import Reading

AGENT_VARIABLE = "SEAMARK_AGENT"
"""Environment variable that gives an agent the addresses of its supervisor, its token and its launch spec."""
CONNECT_S = 60.0
"""Longest that Slurm may take to start the agents."""
ANSWER_S = 20.0
CLOSED = "its agent closed the connection"
POLL_S = 0.2
END_S = 15.0
TICK_S = 0.02


class RemoteNode:
    """A remote node of the server, reached through its agent.

    A node whose agent does not answer is lost with all its processes: each further request raises EndedError.
    """

    def __init__(self, node: Node, connection: socket.socket, received: bytes) -> None:
        self.node = node
        self.lost: str | None = None
        self._connection = connection
        self._received = received
        self._lock = threading.Lock()
        self._exit_codes: Mapping[str, int | None] = {}
        self._polled_s = float("-inf")
        connection.settimeout(ANSWER_S)

    def request(self, do: str, **arguments: Any) -> Any:
        """Return the agent's result. Raises the agent's exception: FailedError, UserError or OSError."""
        with self._lock:
            if self.lost is None:
                try:
                    self._connection.sendall((json.dumps({"do": do, **arguments}) + "\n").encode())
                    answer = json.loads(self._line())
                except (BrokenPipeError, ConnectionResetError):
                    self.lost = f"The node {self.node.name} was lost: {CLOSED}."
                except (OSError, ValueError) as error:
                    self.lost = f"The node {self.node.name} was lost: {error}."
            if self.lost is not None:
                raise EndedError("crash", self.lost)
        if failure := answer.get("error"):
            raise _remote_error(failure, self.node.name)
        return answer["result"]

    def poll(self, name: str) -> int | None:
        """Return the exit code of a process there, None while it runs; requested at most every POLL_S."""
        now_s = time.monotonic()
        if self._exit_codes.get(name) is None and now_s - self._polled_s >= POLL_S:
            self._polled_s = now_s
            self._exit_codes = self.request("poll")
        return self._exit_codes.get(name)

    def read(self) -> Iterable[Reading]:
        """Return the readings of the monitors there."""
        return [Reading(**reading) for reading in self.request("read")]

    def close(self) -> None:
        """Close the connection: the agent ends every process there, and itself."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _line(self) -> bytes:
        while b"\n" not in self._received:
            data = self._connection.recv(1 << 16)
            if not data:
                raise OSError(CLOSED)
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line


class RemoteProcess:
    """Process of a deployment on a remote node, with the methods of a ServerProcess."""

    def __init__(self, node: RemoteNode, name: str) -> None:
        self.name = name
        self.pid: int | None = None
        self._node = node

    def choose_ports(self, host: str, taken: Collection[int]) -> dict[str, int]:
        """Return free ports by name, none of them in `taken`."""
        return cast("dict[str, int]", self._request("choose_ports", host=host, taken=list(taken)))

    def make(self, slot: ProcessSlot) -> ProcessCommands:
        """Resolve what to execute in a slot."""
        document = self._request("make", slot=asdict(slot))
        return ProcessCommands(command=tuple(document["command"]), setup=tuple(map(tuple, document["setup"])))

    def set_up(self, number: int) -> None:
        """Start a set-up command."""
        self._request("set_up", number=number)

    def set_up_code(self) -> int | None:
        """Return the exit code of the set-up command, None while it runs."""
        return cast("int | None", self._request("set_up_code"))

    def start(self) -> int:
        """Start the process; return its process id there."""
        self.pid = int(self._request("start"))
        return self.pid

    def probe(self) -> ServerState:
        """Return the state that its health probe finds on its own node."""
        return cast("ServerState", self._request("probe"))

    def foreign_ports(self) -> list[str]:
        """Return its ports, as NAME=NUMBER, on which a process of another owner listens."""
        return cast("list[str]", self._request("foreign_ports"))

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._node.poll(self.name)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._request("signal", number=int(number))

    def _request(self, do: str, **arguments: Any) -> Any:
        return self._node.request(do, process=self.name, **arguments)


class RemoteNodes:
    """Agents of all remote nodes: one step of this process's batch job, with a task on each node.

    `local_address` is the address of this node as the others reach it.
    """

    def __init__(self, spec: LaunchSpec, nodes: Sequence[Node], local_address: str) -> None:
        self.connected: dict[str, RemoteNode] = {}
        self._nodes = {node.name: node for node in nodes}
        self._local_address = local_address
        self._spec = spec
        self._folder = control_files_of(spec.folder).root
        self._log = self._folder / "nodes.log"
        self._version_mismatch: str | None = None
        self._step: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the step's srun, None before it starts."""
        return self._step.pid if self._step else None

    def connect(self, tick: Callable[[], None]) -> None:
        """Start an agent on each node and wait until all are connected. Raises FailedError when one is missing."""
        with selectors.DefaultSelector() as selector:
            loopback = self._local_address in LOCAL_HOSTS
            listener = RendezvousListener(selector, self._admit, host="127.0.0.1" if loopback else "")
            hosts = [self._local_address] if loopback else [self._local_address, *reachable_by(None)]
            try:
                self._start(listener, list(dict.fromkeys(hosts)))
                deadline_s = time.monotonic() + CONNECT_S
                while missing := [name for name in self._nodes if name not in self.connected]:
                    tick()
                    for key, _ in selector.select(TICK_S):
                        key.data()
                    self._require_agents(missing, overdue=time.monotonic() > deadline_s)
            finally:
                listener.close()

    def close(self) -> None:
        """Close every connection and wait until the step has ended."""
        for node in self.connected.values():
            node.close()
        if self._step is None:
            return
        for insist in (self._step.terminate, self._step.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._step.wait(END_S)
                return
            insist()

    def _start(self, listener: RendezvousListener, hosts: Sequence[str]) -> None:
        spec_file = self._folder / "launch_spec.pickle"
        with open(os.open(spec_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            pickle.dump(self._spec, file)
        invitation = {
            "token": listener.token,
            "addresses": [(host, listener.port) for host in hosts],
            "launch_spec": str(spec_file),
        }
        dispatcher = dispatcher_here()
        agent = (sys.executable, ISOLATED_MAIN, "seamark.services.supervisor.agent")
        command = dispatcher.step(agent, tasks=len(self._nodes), nodes=list(self._nodes))
        with self._log.open("wb") as log:
            self._step = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**dispatcher.step_environment(), AGENT_VARIABLE: json.dumps(invitation)},
            )
        log_event("agents-started", command=command)

    def _admit(self, connection: socket.socket, about: dict[str, Any], received: bytes) -> None:
        name = str(about.get("node"))
        if name not in self._nodes or name in self.connected:
            connection.close()
        elif about.get("version") != __version__:
            connection.close()
            self._version_mismatch = f"{name} has seamark {about.get('version')}, this node has {__version__}"
        else:
            self.connected[name] = RemoteNode(self._nodes[name], connection, received)

    def _require_agents(self, missing: Sequence[str], *, overdue: bool) -> None:
        """Raise FailedError if the missing agents cannot connect any more."""
        assert self._step is not None
        still_missing = [name for name in missing if name not in self.connected]
        code = self._step.poll()
        if not still_missing or (self._version_mismatch is None and code is None and not overdue):
            return
        ended = f"srun ended with {exit_text(code)}" if code is not None else f"none within {CONNECT_S:g} s"
        reason = f"No agent connected from {', '.join(still_missing)}: {self._version_mismatch or ended}."
        raise FailedError("setup_failed", reason, log_tail(self._log))


def _remote_error(error: Mapping[str, Any], node: str) -> Exception:
    """Return the exception that an agent raised, with the name of its node."""
    text = f"On {node}: {error['reason']}"
    if error["kind"] == "FailedError":
        return FailedError(error["category"], text, error.get("log_tail"))
    return {"SiteError": SiteError, "UserError": UserError, "OSError": OSError}.get(error["kind"], OSError)(text)
