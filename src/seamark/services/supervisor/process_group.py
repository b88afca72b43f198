"""All processes of a deployment, over its server's nodes: started in order, looked at, ended in reverse."""

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamark.config.recipe_checks import MAIN
from seamark.model.service import Health
from seamark.services.supervisor.commands import ProcessSlot
from seamark.services.supervisor.failure import EndedError, FailedError
from seamark.services.supervisor.health import PROBE_TIMEOUT_S, State
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.node_layout import Node, Placement
from seamark.services.supervisor.node_telemetry import NamedMonitor, monitors_of
from seamark.services.supervisor.process import ProcessCommands, ProcessHandle, ServerProcess, log_of
from seamark.services.supervisor.remote_node import RemoteNodes, RemoteProcess
from seamark.services.supervisor.supervisor_log import exit_text, say
from seamark.telemetry.sampler import Monitor

TICK_S = 0.05
Tick = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One process of a deployment: which, where, the ports that are its own, what it executes once that is known.
    `health` is None for one that only has to run."""

    name: str
    node: Node
    handle: ProcessHandle
    health: Health | None
    ports: Mapping[str, int]
    commands: ProcessCommands | None = None

    def document(self) -> dict[str, Any]:
        """Return what endpoint.json says of it."""
        return {
            "name": self.name,
            "node": self.node.name,
            "host": self.node.host,
            "ports": dict(self.ports),
            "pid": self.handle.pid,
            "command": list(self.commands.command) if self.commands else None,
        }

    def __str__(self) -> str:
        what = "The server" if self.name == MAIN else f"The part '{self.name}' of the server"
        return what if self.node.here else f"{what} on {self.node.name}"


class ProcessGroup:
    """The processes of one deployment. `members` are in the order in which they start, the server's own last."""

    def __init__(self, spec: LaunchSpec, placement: Placement, cpus: Collection[int]) -> None:
        self.spec = spec
        self.placement = placement
        self.members: list[Member] = []
        self._cpus = cpus
        self._remote: RemoteNodes | None = None
        self._here: list[ServerProcess] = []
        self._closed = False
        self.fallen: Path | None = None
        """The log of the process that was found to have ended."""

    @property
    def main(self) -> Member | None:
        """The server's own process, None while it has no place yet."""
        return next((member for member in self.members if member.name == MAIN), None)

    def make(self, tick: Tick) -> None:
        """Reach the other nodes, and find ports and what is to be executed everywhere."""
        if remote := self.placement.remote:
            local_address = next(node.host for node in self.placement.load if node.here)
            self._remote = RemoteNodes(self.spec, remote, local_address)
            self._remote.reach(tick)
        self._seat()

    def set_up(self, tick: Tick) -> None:
        """Run the set-up commands of every process, one after another. Raises FailedError when one fails."""
        for member in self.members:
            for number, words in enumerate(member.commands.setup if member.commands else ()):
                member.handle.set_up(number)
                while (code := member.handle.set_up_code()) is None:
                    tick()
                    time.sleep(TICK_S)
                if code != 0:
                    raise FailedError("setup_failed", f"`{' '.join(words)}` ended with {exit_text(code)}.")

    def look(self, member: Member) -> State:
        """Return whether a process answers, on its own node and, where it listens, from ours."""
        state = member.handle.look()
        if state == "healthy" and not member.node.here and member.health and member.ports:
            return state if _reached(member.node.host, member.ports[member.health.port]) else "waiting"
        return state

    def ended(self) -> str | None:
        """Return which process that should run has ended and how, None while all run."""
        for member in reversed(self.members):
            if member.handle.pid is not None and (code := member.handle.poll()) is not None:
                self.fallen = log_of(self.spec, member.name, member.node.name)
                return f"{member} ended with {exit_text(code)}."
        return None

    def monitors(self) -> list[Monitor]:
        """Return what watches the nodes of load and server. The readings of the server's own node have no name."""
        found: list[Monitor] = []
        main = self.placement.main
        here = monitors_of(self.spec, self._here, say)
        found += here if main.here else [NamedMonitor(each, _here(self.placement).name) for each in here]
        for node in self._remote.found.values() if self._remote else ():
            found.append(node if node.node == main else NamedMonitor(node, node.node.name))
        return found

    def end(self, beat: Tick) -> None:
        """Ask every process to end, the server's own first and then its parts in reverse; insist on nothing."""
        server = self.spec.service.server
        assert server is not None
        for member in reversed(self.members):
            number = signal.Signals[server.stop_signal] if member.name == MAIN else signal.SIGTERM
            deadline_s = time.monotonic() + server.stop_timeout_s
            with contextlib.suppress(EndedError, OSError):
                if member.handle.pid is None or member.handle.poll() is not None:
                    continue
                member.handle.signal(number)
                while member.handle.poll() is None and time.monotonic() < deadline_s:
                    beat()
                    time.sleep(TICK_S)

    def close(self) -> None:
        """Let the agents end what is left on the other nodes, and wait for them."""
        if self._remote and not self._closed:
            self._closed = True
            self._remote.close()

    def pids(self) -> list[int]:
        """Return the processes of this machine that we started ourselves."""
        found = [process.pid for process in self._here] + [self._remote.pid if self._remote else None]
        return [pid for pid in found if pid is not None]

    def _seat(self) -> None:
        server = self.spec.service.server
        assert server is not None
        taken: set[int] = set()
        known: dict[str, int] = {}
        for name, node in self._places():
            handle = self._handle(name, node)
            ports = handle.choose(node.host, taken)
            taken |= set(ports.values())
            part = server.part(name)
            if part is None or part.nodes == "server":
                known |= ports
            health = part.health if part else server.health
            self.members.append(Member(name=name, node=node, handle=handle, health=health, ports=ports))
        places = {MAIN: self.placement.server[:1], **{part.name: self.placement.of(part) for part in server.parts}}
        addresses = {name: nodes[0].host for name, nodes in places.items() if nodes}
        for place, member in enumerate(self.members):
            slot = ProcessSlot(
                node=member.node.name,
                host=member.node.host,
                ports={**known, **member.ports},
                nodes=len(self.placement.server),
                addresses=addresses,
            )
            self.members[place] = replace(member, commands=member.handle.make(slot))

    def _places(self) -> Iterator[tuple[str, Node]]:
        assert self.spec.service.server is not None
        for part in self.spec.service.server.parts:
            for node in self.placement.of(part):
                yield part.name, node
        yield MAIN, self.placement.main

    def _handle(self, name: str, node: Node) -> ProcessHandle:
        if not node.here:
            assert self._remote is not None
            return RemoteProcess(self._remote.found[node.name], name)
        process = ServerProcess(self.spec, name, log_of(self.spec, name, node.name), self._cpus)
        self._here.append(process)
        return process


def _here(placement: Placement) -> Node:
    return next(node for node in placement.load if node.here)


def _reached(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True
