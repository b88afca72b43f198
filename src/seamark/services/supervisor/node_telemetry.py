"""The monitors of a deployment on one node, and whose readings are whose when there are several nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.process import ServerProcess
from seamark.telemetry.connections import Connections
from seamark.telemetry.gpu import Gpus
from seamark.telemetry.host import Host
from seamark.telemetry.process import ProcessTree
from seamark.telemetry.rapl import Rapl
from seamark.telemetry.sampler import Monitor, Reading, Say


class ProcessMonitor:
    """The processes of a piece, from its start on: `server` for the server's own, else named as the part."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._monitors: list[Monitor] = []

    def read(self) -> Iterator[Reading]:
        """Return what its processes use, and what its connections have moved; nothing before it is started."""
        if not self._monitors and self._process.pid is not None:
            self._monitors.append(ProcessTree(self._process.pid, self._process.name))
            if self._process.part is None:
                self._monitors.append(Connections(self._process.ports.values()))
        for monitor in self._monitors:
            yield from monitor.read()


class NamedMonitor:
    """A monitor of a node, whose readings say so: `host@n2`."""

    def __init__(self, monitor: Monitor, node: str) -> None:
        self._monitor = monitor
        self._node = node

    def read(self) -> Iterable[Reading]:
        """Return the readings with the node's name in their source."""
        return [replace(one, source=f"{one.source}@{self._node}") for one in self._monitor.read()]


def monitors_of(spec: LaunchSpec, group: Sequence[ServerProcess], say: Say) -> list[Monitor]:
    """Return what watches this node, these processes, and the deployment's GPUs here."""
    monitors: list[Monitor] = [Rapl(), Host(), *map(ProcessMonitor, group)]
    if spec.gpus_per_node:
        monitors.append(Gpus(spec.gpus_per_node, say))
    return monitors
