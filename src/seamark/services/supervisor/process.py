"""One process of a deployment on this node, the server itself or a part of it: made ready, started, looked at."""

import os
import random
import signal
import ssl
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seamark.config.recipe_checks import MAIN
from seamark.errors import UserError
from seamark.model.service import Health, Server
from seamark.platform.ports import choose_ports, owners
from seamark.platform.privilege import give_to
from seamark.platform.process_stat import alive_below
from seamark.platform.process_tree import die_with_parent, give_way
from seamark.platform.tls import tls_context
from seamark.services.runtimes.runtimes import launch_of
from seamark.services.supervisor.commands import Launch, ProcessSlot
from seamark.services.supervisor.failure import FailedError
from seamark.services.supervisor.health import State, look
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.scratch import data_folder
from seamark.services.supervisor.supervisor_log import say


@dataclass(frozen=True, kw_only=True)
class ProcessCommands:
    """What is executed: the process itself, and what comes before it, one after another."""

    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...] = ()


class ProcessHandle(Protocol):
    """One process of a deployment, here or on another node."""

    @property
    def pid(self) -> int | None:
        """Its process id on its node, once it was started."""

    def choose(self, host: str, taken: Collection[int]) -> dict[str, int]:
        """Return free ports for it, none of them in `taken`."""

    def make(self, slot: ProcessSlot) -> ProcessCommands:
        """Find out what is to be executed in its seat."""

    def set_up(self, number: int) -> None:
        """Begin with a set-up command."""

    def set_up_code(self) -> int | None:
        """Return the exit code of the set-up command, None while it runs."""

    def start(self) -> int:
        """Start it; return its process id there."""

    def look(self) -> State:
        """Return whether it answers as its health probe wants."""

    def taken(self) -> list[str]:
        """Return those of its ports, as NAME=NUMBER, on which somebody else listens."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def signal(self, number: int) -> None:
        """Send it a signal."""


class ServerProcess:
    """One process of a deployment that runs here."""

    def __init__(self, spec: LaunchSpec, name: str, log: Path, cpus: Collection[int] = ()) -> None:
        assert spec.service.server is not None
        self.spec = spec
        self.name = name
        self.log = log
        self.cpus = tuple(cpus)
        self.server: Server = spec.service.server
        self.part = self.server.part(name)
        self.data = data_folder(spec)
        self.process: subprocess.Popen[bytes] | None = None
        self.launch: Launch | None = None
        self.slot: ProcessSlot | None = None
        self._setting_up: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id, once it was started."""
        return self.process.pid if self.process else None

    @property
    def port_names(self) -> tuple[str, ...]:
        """The names of its own ports."""
        return self.part.ports if self.part else self.server.ports

    @property
    def health(self) -> Health | None:
        """How it is looked at; None for one that only has to run."""
        return self.part.health if self.part else self.server.health

    @property
    def ports(self) -> dict[str, int]:
        """Its own ports."""
        assert self.slot is not None
        return {name: self.slot.ports[name] for name in self.port_names}

    def choose(self, host: str, taken: Collection[int]) -> dict[str, int]:
        """Return free ports for it, none of them in `taken`."""
        while True:
            chosen = choose_ports(self.port_names, host, random.SystemRandom()) if self.port_names else {}
            if not set(taken) & set(chosen.values()):
                return chosen

    def make(self, slot: ProcessSlot) -> ProcessCommands:
        """Find out what is to be executed in its seat."""
        self.slot = slot
        spec, place = self.spec, self.data
        self.launch = launch_of(
            spec, self.server, slot=slot, data=place, environment=spec.environment, part=self.part
        )
        if self.launch.user:
            give_to(self.launch.user, self.data)
        return ProcessCommands(command=self.launch.command, setup=self.launch.setup)

    def set_up(self, number: int) -> None:
        """Begin with a set-up command."""
        assert self.launch is not None
        self._setting_up = self._execute(self.launch.setup[number])

    def set_up_code(self) -> int | None:
        """Return the exit code of the set-up command, None while it runs."""
        assert self._setting_up is not None
        return self._setting_up.poll()

    def start(self) -> int:
        """Start it; return its process id."""
        assert self.launch is not None
        if self.launch.user:
            give_to(self.launch.user, self.data, but=self.server.secrets)
        self.process = self._execute(self.launch.command)
        if self.server.busy_waits:
            give_way(self.process.pid)
        say("server-started", name=self.name, pid=self.process.pid, command=list(self.launch.command))
        return self.process.pid

    def look(self) -> State:
        """Return whether it answers as its health probe wants. Raises FailedError as health.look does."""
        assert self.launch is not None
        assert self.slot is not None
        if self.health is None:
            return "healthy" if self.poll() is None else "waiting"
        return look(
            self.health,
            host=self.slot.host,
            ports=self.ports,
            command=self.launch.health_command,
            environment=self.launch.environment,
            folder=self.data,
            pids=alive_below(os.getpid()),
            tls=self.tls(),
        )

    def taken(self) -> list[str]:
        """Return those of its ports, as NAME=NUMBER, on which somebody else listens."""
        found = owners(self.ports, alive_below(os.getpid()))
        return [f"{name}={self.ports[name]}" for name, owner in found.items() if owner == "foreign"]

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.process.poll() if self.process else None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self.process is not None:
            self.process.send_signal(number)

    def tls(self) -> ssl.SSLContext | None:
        """Return how its HTTP probe connects, None plainly."""
        return tls_of(self.spec)

    def _execute(self, words: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        assert self.launch is not None
        with self.log.open("ab") as log:
            return subprocess.Popen(
                (*self.launch.prefix, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.launch.environment),
                cwd=self.data,
                start_new_session=True,
                preexec_fn=self._before_exec,
            )

    def _before_exec(self) -> None:
        die_with_parent(signal.SIGKILL)
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)


def tls_of(spec: LaunchSpec) -> ssl.SSLContext | None:
    """Return how the order's server is connected to. Raises FailedError for a certificate that cannot be read."""
    try:
        return tls_context(spec.deployment.settings)
    except UserError as mistake:
        raise FailedError("setup_failed", str(mistake)) from mistake


def log_of(spec: LaunchSpec, name: str, node: str) -> Path:
    """Return where a process of the order's server writes what it prints."""
    return spec.folder.server_log if name == MAIN else spec.folder.part_log(name, node)
