"""One process of a deployment on this node, the server's main process or a part: set up, start, probe, monitor."""

import os
import random
import signal
import ssl
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamark.config.recipe_checks import MAIN
from seamark.errors import UserError
from seamark.model.service import Health, Server
from seamark.platform.ports import choose_ports, owners
from seamark.platform.privilege import give_to
from seamark.platform.process_tree import alive_below, lower_session_priority, set_parent_death_signal
from seamark.platform.tls import tls_context
from seamark.services.runtimes.runtimes import launch_of
from seamark.services.supervisor.events import FailedError, log_event
from seamark.services.supervisor.health import Probe, ServerState
from seamark.services.supervisor.launch_spec import Launch, LaunchSpec, ProcessSlot
from seamark.telemetry.energy import Rapl
from seamark.telemetry.gpu import Gpus
from seamark.telemetry.host import Host
from seamark.telemetry.process import Connections, ProcessTree
from seamark.telemetry.sampler import Monitor, Reading, Say


@dataclass(frozen=True, kw_only=True)
class ProcessCommands:
    """Command line of a process, and the set-up commands that run before it, in order."""

    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...] = ()


class ServerProcess:
    """One process of a deployment on this node."""

    def __init__(self, spec: LaunchSpec, name: str, log: Path, cpus: Collection[int] = ()) -> None:
        assert spec.service.server is not None
        self.spec = spec
        self.name = name
        self.log = log
        self.cpus = tuple(cpus)
        self.niceness = spec.place.niceness if spec.place else 0
        self.server: Server = spec.service.server
        self.part = self.server.part(name)
        self.process: subprocess.Popen[bytes] | None = None
        self.launch: Launch | None = None
        self.slot: ProcessSlot | None = None
        self._set_up: subprocess.Popen[bytes] | None = None
        self._gives_way = False

    @property
    def pid(self) -> int | None:
        """Process id, None before it starts."""
        return self.process.pid if self.process else None

    @property
    def port_names(self) -> tuple[str, ...]:
        """Names of its own ports."""
        return self.part.ports if self.part else self.server.ports

    @property
    def health(self) -> Health | None:
        """Its health probe; None for a part that only has to run."""
        return self.part.health if self.part else self.server.health

    @property
    def ports(self) -> dict[str, int]:
        """Its own ports by name."""
        assert self.slot is not None
        return {name: self.slot.ports[name] for name in self.port_names}

    def choose_ports(self, host: str, taken: Collection[int]) -> dict[str, int]:
        """Return free ports by name, none of them in `taken`."""
        while True:
            ports = choose_ports(self.port_names, host, random.SystemRandom()) if self.port_names else {}
            if not set(taken) & set(ports.values()):
                return ports

    def make(self, slot: ProcessSlot) -> ProcessCommands:
        """Resolve what to execute in a slot."""
        self.slot = slot
        self.launch = launch_of(self.spec, slot, self.part)
        if self.launch.user:
            give_to(self.launch.user, self.spec.data)
        return ProcessCommands(command=self.launch.command, setup=self.launch.setup)

    def set_up(self, number: int) -> None:
        """Start a set-up command."""
        assert self.launch is not None
        self._set_up = self._execute(self.launch.setup[number])

    def set_up_code(self) -> int | None:
        """Return the exit code of the set-up command, None while it runs."""
        assert self._set_up is not None
        return self._set_up.poll()

    def start(self) -> int:
        """Start the process; return its process id."""
        assert self.launch is not None
        if self.launch.user:
            give_to(self.launch.user, self.spec.data, but=self.server.secrets)
        self.process = self._execute(self.launch.command)
        if self.niceness:
            lower_session_priority(self.process.pid, self.niceness)
        log_event("server-started", name=self.name, pid=self.process.pid, command=list(self.launch.command))
        return self.process.pid

    def probe(self) -> ServerState:
        """Return the state that its health probe finds. Raises FailedError as Probe.state does.

        One that spins while idle gives way from its first good answer on: before, on a busy machine, it would hardly
        start.
        """
        state = self._state()
        if state == "healthy" and not self._gives_way and self.process is not None:
            niceness = self.spec.session_niceness
            self._gives_way = niceness <= self.niceness or lower_session_priority(self.process.pid, niceness)
        return state

    def _state(self) -> ServerState:
        assert self.launch is not None
        assert self.slot is not None
        if self.health is None:
            return "healthy" if self.poll() is None else "waiting"
        return Probe(
            health=self.health,
            host=self.slot.host,
            ports=self.ports,
            command=self.launch.health_command,
            environment=self.launch.environment,
            folder=self.spec.data,
            tls=probe_tls(self.spec),
        ).state(alive_below(os.getpid()))

    def foreign_ports(self) -> list[str]:
        """Return its ports, as NAME=NUMBER, on which a process of another owner listens."""
        owner_of = owners(self.ports, alive_below(os.getpid()))
        return [f"{name}={self.ports[name]}" for name, owner in owner_of.items() if owner == "foreign"]

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.process.poll() if self.process else None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    def _execute(self, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        assert self.launch is not None
        with self.log.open("ab") as log:
            return subprocess.Popen(
                (*self.launch.prefix, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.launch.environment),
                cwd=self.spec.data,
                start_new_session=True,
                preexec_fn=self._before_exec,
            )

    def _before_exec(self) -> None:
        set_parent_death_signal(signal.SIGKILL)
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        if self.niceness > os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)


class ProcessMonitor:
    """Monitor of a server process from its start on; its source is `server`, or the name of the part."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._monitors: list[Monitor] = []

    def read(self) -> Iterator[Reading]:
        """Yield the use of its process tree and the bytes of its connections; nothing before it starts."""
        if not self._monitors and self._process.pid is not None:
            self._monitors.append(ProcessTree(self._process.pid, self._process.name))
            if self._process.part is None:
                self._monitors.append(Connections(self._process.ports.values()))
        for monitor in self._monitors:
            yield from monitor.read()


def node_monitors(spec: LaunchSpec, processes: Sequence[ServerProcess], say: Say) -> list[Monitor]:
    """Return the monitors of this node, of these processes, and of the deployment's GPUs here."""
    monitors: list[Monitor] = [Rapl(), Host(), *map(ProcessMonitor, processes)]
    if spec.gpus_per_node:
        monitors.append(Gpus(spec.gpus_per_node, say))
    return monitors


def probe_tls(spec: LaunchSpec) -> ssl.SSLContext | None:
    """Return how HTTP probes connect to the server, None for plain HTTP.

    Raises FailedError for a certificate that cannot be read.
    """
    try:
        return tls_context(spec.deployment.settings)
    except UserError as mistake:
        raise FailedError("setup_failed", str(mistake)) from mistake


def process_log(spec: LaunchSpec, name: str, node: str) -> Path:
    """Return the log file of a server process."""
    return spec.folder.server_log if name == MAIN else spec.folder.part_log(name, node)
