"""Brings a deployment up: ports, setup, stage, start, health, populate; each timed. Ends nothing itself."""

import os
import random
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.load.pinning import Split, cores_here, pin, split_cores
from seamark.load.preparation import PreparationError, run_preparation
from seamark.load.tls import tls_context
from seamark.model.service import Server
from seamark.model.trial import SCHEMA_VERSION
from seamark.monitors.connections import Connections
from seamark.monitors.gpu import Gpus
from seamark.monitors.host import Host
from seamark.monitors.proc import alive_below
from seamark.monitors.process import ProcessTree
from seamark.monitors.prometheus import Prometheus
from seamark.monitors.sampler import Monitor, Sampler
from seamark.servers.failure import EndedError, FailedError
from seamark.servers.health import look
from seamark.servers.hooks import offers
from seamark.servers.keeperlog import say, spoken, timestamp
from seamark.servers.launch import Launch
from seamark.servers.order import Order
from seamark.servers.ports import choose_ports, owners
from seamark.servers.privilege import give_to
from seamark.servers.runtimes import external_ports, hook_interpreter, launch_of
from seamark.servers.scratch import data_folder, empty
from seamark.servers.signs import node, write_sign
from seamark.servers.tree import die_with_parent, give_way
from seamark.servers.watch import TICK_S, Watch


class BringUp:
    """One deployment on its way from nothing to answering. What is known of it so far can be asked at any time."""

    def __init__(self, order: Order, watch: Watch) -> None:
        self.order = order
        self.watch = watch
        self.server: subprocess.Popen[bytes] | None = None
        self.sampler: Sampler | None = None
        self.launch: Launch | None = None
        self.host = order.site.address
        self.ports: dict[str, int] = {}
        self.phases: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self.split = Split(why="not decided")
        self.started_at = timestamp()
        self.data = data_folder(order)

    def run(self) -> None:
        """Go through all phases. Raises FailedError, UserError or OSError when one fails, EndedError to end."""
        server = self.order.service.server
        empty(self.data)
        with self._phase("setup"):
            self._choose(server)
            for command in self.launch.setup if self.launch else ():
                self._setup(command)
        with self._phase("stage"):
            self._prepare("stage")
        with self._phase("start"):
            if self.launch:
                self._spawn(self.launch)
            self._sample(server)
            if server:
                self._wait_until_healthy(server)
        with self._phase("populate"):
            self._prepare("populate")
        pin(os.getpid(), self.split.server)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.phases[f"{name}_s"] = round(time.monotonic() - began_s, 4)

    def _choose(self, server: Server | None) -> None:
        """Find ports and what is to be executed; for a server of someone else's only its address."""
        if server is None:
            self.split = Split(why="the service runs inside the load")
            return
        self.split = split_cores(
            self.order.site.pinning,
            workers=self.order.service.workers,
            shards=self.order.shards,
            cores=cores_here(),
            server_here=self.order.site.runtime in ("venv", "apptainer"),
        )
        if self.order.site.runtime == "external":
            self.host, self.ports = external_ports(self.order, server)
            return
        self.ports = choose_ports(server.ports, self.host, random.SystemRandom())
        self.launch = launch_of(
            self.order, server, ports=self.ports, data=self.data, environment=self.order.environment
        )
        if self.launch.user:
            give_to(self.launch.user, self.data)
        write_sign(self.watch.signs.ports, self.ports)

    def _setup(self, command: tuple[str, ...]) -> None:
        process = self._start(command)
        while process.poll() is None:
            self.watch.tick()
            time.sleep(TICK_S)
        if process.returncode != 0:
            raise FailedError("setup_failed", f"`{' '.join(command)}` ended with {spoken(process.returncode)}.")

    def _prepare(self, hook: Literal["stage", "populate"]) -> None:
        if not offers(self.order.service.driver, hook):
            return
        target = Target(settings=self.order.deployment.settings, data=self.data, host=self.host, ports=self.ports)
        python = hook_interpreter(self.order, hook)
        try:
            facts = run_preparation(
                hook, self.order.service.driver, target, self.order.seed, python, on_tick=self.watch.tick
            )
        except PreparationError as cause:
            raise FailedError("setup_failed", cause.reason, cause.log_tail) from cause
        self.facts.update(facts)

    def _spawn(self, launch: Launch) -> None:
        if launch.user:
            give_to(launch.user, self.data)
        self.server = self.watch.server = self._start(launch.command)
        if self.order.service.server and self.order.service.server.busy_waits:
            give_way(self.server.pid)
        say("server-started", pid=self.server.pid, command=list(launch.command))

    def _start(self, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        assert self.launch is not None
        with self.order.folder.server_log.open("ab") as log:
            return subprocess.Popen(
                command,
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
        if self.split.server:
            os.sched_setaffinity(0, self.split.server)

    def _sample(self, server: Server | None) -> None:
        monitors: list[Monitor] = [Host()]
        if self.server:
            monitors.append(ProcessTree(self.server.pid))
            monitors.append(Connections(self.ports.values()))
        if self.order.deployment.gpus > 0:
            monitors.append(Gpus(self.order.deployment.gpus, say))
        if url := self._metrics_url(server):
            monitors.append(Prometheus(url, say, tls=self._tls()))
        self.sampler = Sampler(monitors, self.order.folder.telemetry, self.order.site.telemetry_interval_s, say)
        self.sampler.start()

    def _wait_until_healthy(self, server: Server) -> None:
        health, tls = server.health, self._tls()
        deadline_s = time.monotonic() + health.timeout_s
        while True:
            self._tick_before_healthy()
            state = look(
                health,
                host=self.host,
                ports=self.ports,
                command=self.launch.health_command if self.launch else (),
                environment=self.launch.environment if self.launch else os.environ,
                folder=self.data,
                pids=alive_below(os.getpid()) if self.server else None,
                tls=tls,
            )
            if state == "healthy":
                return
            if state == "taken":
                raise FailedError("port_taken", self._taken())
            if time.monotonic() >= deadline_s:
                raise FailedError("server_never_healthy", f"No answer to the health probe in {health.timeout_s:g} s.")
            time.sleep(health.interval_s)

    def _tick_before_healthy(self) -> None:
        try:
            self.watch.tick()
        except EndedError as ended:
            if ended.why != "crash":
                raise
            if "foreign" in owners(self.ports, alive_below(os.getpid())).values():
                raise FailedError("port_taken", f"{self._taken()} {ended.reason}") from ended
            raise FailedError("server_never_healthy", f"{ended.reason} It had not answered yet.") from ended

    def _taken(self) -> str:
        found = owners(self.ports, alive_below(os.getpid()))
        taken = [f"{name}={self.ports[name]}" for name, owner in found.items() if owner == "foreign"]
        return f"Another process listens on a port chosen for the server ({', '.join(taken) or 'just gone'})."

    def answer(self, status: Literal["ok", "failed"]) -> dict[str, Any]:
        """Return the content of endpoint.json as far as it is known."""
        server = self.order.service.server
        return {
            "schema_version": SCHEMA_VERSION,
            "status": status,
            "category": None,
            "reason": None,
            "deployment": self.order.deployment.id,
            "scenario": self.order.scenario,
            "service": self.order.service.name,
            "runtime": self.order.site.runtime,
            "image": self.order.image.facts() if self.order.image else None,
            "client_image": self.order.client.facts() if self.order.client else None,
            "host": self.host,
            "ports": dict(self.ports),
            "data": str(self.data),
            "environment": str(self.order.environment) if self.order.environment else None,
            "driver": self.order.service.driver,
            "workers": self.order.service.workers,
            "server_pid": self.server.pid if self.server else None,
            "keeper_pid": os.getpid(),
            "node": node(),
            "metrics_url": self._metrics_url(server),
            "command": list(self.launch.command) if self.launch else None,
            "gpus": self.order.deployment.gpus,
            "pinning": self.split.to_json(),
            "phases": self.phases,
            "facts": self.facts,
            "log_tail": [],
            "started_at": self.started_at,
            "ready_at": timestamp() if status == "ok" else None,
        }

    def _metrics_url(self, server: Server | None) -> str | None:
        if server is None or server.metrics_port is None or server.metrics_port not in self.ports:
            return None
        scheme = "http" if self.order.deployment.settings.get("tls") is None else "https"
        return f"{scheme}://{self.host}:{self.ports[server.metrics_port]}{server.metrics_path}"

    def _tls(self) -> ssl.SSLContext | None:
        try:
            return tls_context(self.order.deployment.settings)
        except UserError as mistake:
            raise FailedError("setup_failed", str(mistake)) from mistake
