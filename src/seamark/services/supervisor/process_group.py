"""Process group of a deployment over the nodes of its server: started in order, probed, ended in reverse."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from seamark.config.recipe_checks import MAIN
from seamark.dispatch import identity
from seamark.dispatch.dispatcher import dispatcher_here
from seamark.dispatch.job import Node
from seamark.errors import UserError
from seamark.load.engine.http import in_url
from seamark.model.plurals import counted
from seamark.model.results.deployment_record import PartRecord
from seamark.model.service import Health, Part, Service
from seamark.model.trial import Deployment
from seamark.platform.process_tree import alive_below, lower_sessions
from seamark.services.supervisor.events import EndedError, FailedError, exit_text, log_event
from seamark.services.supervisor.health import ServerState, accepts
from seamark.services.supervisor.launch_spec import LaunchSpec, ProcessSlot
from seamark.services.supervisor.mps_clients import drain
from seamark.services.supervisor.process import ProcessCommands, ServerProcess, node_monitors, process_log
from seamark.services.supervisor.remote_node import RemoteNodes, RemoteProcess
from seamark.telemetry.sampler import Monitor, Reading


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The nodes of a deployment: those of its loads, and those of its server, of which the first has the server's own
    process. A node can be both."""

    load: tuple[Node, ...]
    server: tuple[Node, ...]

    @property
    def main(self) -> Node:
        """The node of the server's own process."""
        return self.server[0]

    @property
    def here(self) -> bool:
        """Whether anything of the server runs on our own node."""
        return any(node.here for node in self.server)

    @property
    def remote(self) -> tuple[Node, ...]:
        """The server's nodes that are not the one we run on."""
        return tuple(node for node in self.server if not node.here)

    def of(self, part: Part) -> tuple[Node, ...]:
        """Return the nodes of a part."""
        return {"server": self.server[:1], "others": self.server[1:], "each": self.server}[part.nodes]


def placement_of(deployment: Deployment, service: Service, address: str) -> Placement:
    """Return where the load and the server of a deployment run; `address` is ours where it has one node only.

    Raises UserError when the recipe needs more nodes, SiteError when this process runs in no batch job of as many.
    """
    require_enough(deployment, service)
    server = service.server
    if deployment.nodes == 1 or server is None:
        alone = (Node(name=identity.node(), host=address, here=True),)
        return Placement(load=alone, server=alone)
    found = dispatcher_here().nodes(deployment.nodes)
    places = server.nodes_of(len(found))
    load = found if server.load_nodes == "shared" else found[: places.start]
    return Placement(load=load, server=tuple(found[index] for index in places))


def require_enough(deployment: Deployment, service: Service) -> None:
    """Raise UserError when a deployment has fewer nodes or GPUs than its service needs."""
    if service.server is None:
        return
    for name, noun, has, fewest in (
        ("nodes", "node", deployment.nodes, service.server.fewest_nodes),
        ("gpus", "GPU", deployment.gpus, service.server.fewest_gpus),
    ):
        if has < fewest:
            raise UserError(
                f"service '{service.name}' needs {counted(fewest, noun)} at least, and the deployment has {has}."
                f" Write 'resources: {{{name}: {fewest}}}' in the scenario."
            )


TICK_S = 0.05
SESSIONS_INTERVAL_S = 0.5
Tick = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One process of the group: its name, node, handle and own ports; its commands once they are resolved.

    `health` is None for a part that only has to run.
    """

    name: str
    node: Node
    handle: ServerProcess | RemoteProcess
    health: Health | None
    ports: Mapping[str, int]
    commands: ProcessCommands | None = None

    @property
    def number(self) -> int | None:
        """The number of a copy of a part, None for every other process."""
        number = self.name.rpartition("-")[2]
        return int(number) if number.isdigit() else None

    def record(self) -> PartRecord:
        """Return its entry in endpoint.json."""
        return PartRecord(
            name=self.name,
            node=self.node.name,
            host=self.node.host,
            ports=self.ports,
            pid=self.handle.pid,
            command=tuple(self.commands.command) if self.commands else None,
        )

    def __str__(self) -> str:
        what = "The server" if self.name == MAIN else f"The part '{self.name}' of the server"
        return what if self.node.here else f"{what} on {self.node.name}"


class NodeMonitor:
    """Monitor whose readings name their node: `host@n2`."""

    def __init__(self, monitor: Monitor, node: str) -> None:
        self._monitor = monitor
        self._node = node

    def read(self) -> Iterator[Reading]:
        """Yield the readings with the node's name in their source."""
        for reading in self._monitor.read():
            yield replace(reading, source=f"{reading.source}@{self._node}")


class ProcessGroup:
    """All processes of one deployment. `members` are in order of start, the main process last."""

    def __init__(self, spec: LaunchSpec, placement: Placement, cpus: Collection[int]) -> None:
        assert spec.service.server is not None
        self.spec = spec
        self.placement = placement
        self.members: list[Member] = []
        self.exited_log: Path | None = None
        """Log of the process that `exit_reason` found to have exited."""
        self._server = spec.service.server
        self._cpus = cpus
        self._remote: RemoteNodes | None = None
        self._local: list[ServerProcess] = []
        self._closed = False
        self._niceness = spec.session_niceness if spec.place and spec.place.niceness else 0
        self._lowered: set[int] = set()
        self._lowered_s = float("-inf")

    @property
    def main(self) -> Member | None:
        """The server's main process, None before it has a slot."""
        return next((member for member in self.members if member.name == MAIN), None)

    def make(self, tick: Tick) -> None:
        """Connect to the other nodes, choose the ports and resolve the commands of every process."""
        if remote := self.placement.remote:
            self._remote = RemoteNodes(self.spec, remote, self._own_node().host)
            self._remote.connect(tick)
        shared_ports = self._add_members()
        first_nodes = {MAIN: self.placement.server[:1]}
        first_nodes |= {part.name: self.placement.of(part) for part in self._server.parts}
        addresses = {name: nodes[0].host for name, nodes in first_nodes.items() if nodes}
        urls = {part.name: self._urls(part) for part in self._server.parts if part.count is not None and part.ports}
        for index, member in enumerate(self.members):
            slot = ProcessSlot(
                node=member.node.name,
                host=member.node.host,
                ports={**shared_ports, **member.ports},
                nodes=len(self.placement.server),
                addresses=addresses,
                urls=urls,
                number=member.number,
            )
            self.members[index] = replace(member, commands=member.handle.make(slot))

    def set_up(self, tick: Tick) -> None:
        """Run the set-up commands of every process, in order. Raises FailedError when one fails."""
        for member in self.members:
            for number, command in enumerate(member.commands.setup if member.commands else ()):
                member.handle.set_up(number)
                while (code := member.handle.set_up_code()) is None:
                    tick()
                    time.sleep(TICK_S)
                if code != 0:
                    raise FailedError("setup_failed", f"`{' '.join(command)}` ended with {exit_text(code)}.")

    def probe(self, member: Member) -> ServerState:
        """Return the state of a process as probed on its own node and, where it listens, from this one."""
        state = member.handle.probe()
        if state == "healthy" and not member.node.here and member.health and member.ports:
            return state if accepts(member.node.host, member.ports[member.health.port]) else "waiting"
        return state

    def exit_reason(self) -> str | None:
        """Return which process has exited and how, None while all run."""
        for member in reversed(self.members):
            if member.handle.pid is not None and (code := member.handle.poll()) is not None:
                self.exited_log = process_log(self.spec, member.name, member.node.name)
                return f"{member} ended with {exit_text(code)}."
        return None

    def keep_niceness(self) -> None:
        """Give sessions that the server's processes have started since the niceness of its place."""
        if self._niceness and time.monotonic() - self._lowered_s >= SESSIONS_INTERVAL_S:
            self._lowered = lower_sessions(alive_below(os.getpid()), self._niceness, self._lowered)
            self._lowered_s = time.monotonic()

    def monitors(self) -> list[Monitor]:
        """Return the monitors of the nodes of load and server. Only those of the main process have no node's name."""
        main = self.placement.main
        monitors = node_monitors(self.spec, self._local, log_event)
        if not main.here:
            monitors = [NodeMonitor(monitor, self._own_node().name) for monitor in monitors]
        for remote in self._remote.connected.values() if self._remote else ():
            monitors.append(remote if remote.node == main else NodeMonitor(remote, remote.node.name))
        return monitors

    def end(self, heartbeat: Tick) -> None:
        """Send every process its stop signal, the main process first, then the parts in reverse; kill none. Clients
        of MPS are drained before."""
        share = self.spec.place.share if self.spec.place else None
        if share is not None and share.pipes is not None:
            drain(share, alive_below(os.getpid()), heartbeat)
        for member in reversed(self.members):
            number = signal.Signals[self._server.stop_signal] if member.name == MAIN else signal.SIGTERM
            deadline_s = time.monotonic() + self._server.stop_timeout_s
            with contextlib.suppress(EndedError, OSError):
                if member.handle.pid is None or member.handle.poll() is not None:
                    continue
                member.handle.signal(number)
                while member.handle.poll() is None and time.monotonic() < deadline_s:
                    heartbeat()
                    time.sleep(TICK_S)

    def close(self) -> None:
        """Disconnect from the agents, which end what is left on their nodes, and wait for them."""
        if self._remote and not self._closed:
            self._closed = True
            self._remote.close()

    def pids(self) -> list[int]:
        """Return the processes of this node that this process started itself."""
        pids = [process.pid for process in self._local] + [self._remote.pid if self._remote else None]
        return [pid for pid in pids if pid is not None]

    def _own_node(self) -> Node:
        return next(node for node in self.placement.load if node.here)

    def _add_members(self) -> dict[str, int]:
        """Add a member for each process, with its own ports; return the ports that all processes know."""
        taken: set[int] = set()
        shared_ports: dict[str, int] = {}
        nodes_of = [
            (name, node)
            for part in self._server.parts
            for node in self.placement.of(part)
            for name in part.copies(self.spec.deployment.settings)
        ]
        for name, node in [*nodes_of, (MAIN, self.placement.main)]:
            handle = self._handle(name, node)
            ports = handle.choose_ports(node.host, taken)
            taken |= set(ports.values())
            part = self._server.part(name)
            if part is None or (part.nodes == "server" and part.count is None):
                shared_ports |= ports
            health = part.health if part else self._server.health
            self.members.append(Member(name=name, node=node, handle=handle, health=health, ports=ports))
        return shared_ports

    def _urls(self, part: Part) -> tuple[str, ...]:
        """Return the addresses of the copies of a part, by their first port."""
        copies = [member for member in self.members if self._server.part(member.name) == part]
        return tuple(f"http://{in_url(member.node.host)}:{member.ports[part.ports[0]]}" for member in copies)

    def started_together(self) -> Iterator[list[Member]]:
        """Yield the members in the order in which they start: the copies of a part on a node at once."""

        def whole(member: Member) -> tuple[str, Node]:
            part = self._server.part(member.name)
            return part.name if part else MAIN, member.node

        for _, together in groupby(self.members, whole):
            yield list(together)

    def _handle(self, name: str, node: Node) -> ServerProcess | RemoteProcess:
        if not node.here:
            assert self._remote is not None
            return RemoteProcess(self._remote.connected[node.name], name)
        process = ServerProcess(self.spec, name, process_log(self.spec, name, node.name), self._cpus)
        self._local.append(process)
        return process
