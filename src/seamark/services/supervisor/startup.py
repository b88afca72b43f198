"""Startup of a deployment in timed phases: setup, stage, start, populate, idle. Ending is the supervisor's part."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

import yaml

from seamark.config.recipe_checks import MAIN
from seamark.config.values_file import rendered
from seamark.datasets.prepare import prepared_settings
from seamark.dispatch.identity import allocation, node
from seamark.dispatch.placement import Place
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.load.engine.http import in_url
from seamark.load.workers.hooks import PreparationError, hooks_here, run_preparation
from seamark.model.results.deployment_record import Endpoint
from seamark.model.service import Health, Server
from seamark.model.trial import SCHEMA_VERSION
from seamark.platform.pinning import Split, cores_here, placed_split, split_cores
from seamark.platform.process_tree import pin
from seamark.services.runtimes.runtimes import copy_secrets, external_ports, hook_interpreter
from seamark.services.supervisor.control_files import write_control_file
from seamark.services.supervisor.events import EndedError, FailedError, log_event, timestamp
from seamark.services.supervisor.health import ANSWERED, GOOD, Probe, probe_from_outside
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.liveness import TICK_S, LivenessMonitor
from seamark.services.supervisor.process import node_monitors, probe_tls
from seamark.services.supervisor.process_group import Member, ProcessGroup, placement_of
from seamark.storage.paths import expanded
from seamark.storage.redaction import redacted
from seamark.telemetry.process import ProcessTree, listener
from seamark.telemetry.prometheus import Counters, Prometheus
from seamark.telemetry.sampler import Sampler

EXTERNAL_WAIT_S = 60.0
"""Longest wait for a server that should run already: the recipe's own limit is for one that loads its model."""


class Startup:
    """Startup of one deployment; `answer` returns the current facts at any time."""

    def __init__(self, spec: LaunchSpec, liveness: LivenessMonitor) -> None:
        self.spec = spec
        self.liveness = liveness
        self.group: ProcessGroup | None = None
        self.sampler: Sampler | None = None
        self.host = spec.site.address
        self.ports: dict[str, int] = {}
        self.phases: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self.split = Split(why="not decided")
        self.started_at = timestamp()
        self.idle_unix_s: tuple[float, float] | None = None

    def run(self) -> None:
        """Run every phase. Raises FailedError, UserError or OSError when one fails, EndedError to end."""
        server = self.spec.service.server
        if self.spec.data.exists():
            shutil.rmtree(self.spec.data)
        self.spec.data.mkdir(parents=True)
        if server is not None and server.values is not None and self.spec.site.starts_servers:
            self._render_values()
        with self._phase("setup"):
            self._place(server)
            if self.group:
                self.group.set_up(self.liveness.tick)
        with self._phase("stage"):
            if self.spec.site.starts_servers:  # it makes what a server is started with
                self._run_hook("stage")
        with self._phase("start"):
            self._start(server)
        with self._phase("populate"):
            self._run_hook("populate")
        if self.spec.site.idle_s > 0:
            with self._phase("idle"):
                self._stay_idle()
        pin(os.getpid(), self.split.server or (self.spec.place.load_cores if self.spec.place else ()))

    def _render_values(self) -> None:
        """Write the values of the deployment for its processes, and keep them without secrets."""
        service, settings = self.spec.service, self.spec.deployment.settings
        self.spec.values.write_text(yaml.safe_dump(rendered(service, settings), sort_keys=False), encoding="utf-8")
        kept = redacted(rendered(service, redacted(settings)))
        self.spec.folder.values.write_text(yaml.safe_dump(kept, sort_keys=False), encoding="utf-8")

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.phases[f"{name}_s"] = round(time.monotonic() - began_s, 4)

    def _stay_idle(self) -> None:
        """Leave the server without load, so that telemetry measures its idle use."""
        began_unix_s, end_s = time.time(), time.monotonic() + self.spec.site.idle_s
        while time.monotonic() < end_s:
            self.liveness.tick()
            time.sleep(TICK_S)
        self.idle_unix_s = began_unix_s, time.time()

    def _place(self, server: Server | None) -> None:
        """Choose nodes and ports and resolve the commands; of an external server only the address."""
        place = self.spec.place and replace(self.spec.place, gpus=())  # each node has as many, with the same numbers
        if place not in (None, Place()) and self.spec.deployment.nodes > 1:
            nodes = self.spec.deployment.nodes
            raise UserError(
                f"a placement is for one machine, and the deployment has {nodes} nodes. Write 'nodes: 1'."
            )
        if server is None:
            self.split = self._split(server, server_here=False)
            return
        external = not self.spec.site.starts_servers
        placement = None if external else placement_of(self.spec.deployment, self.spec.service, self.host)
        here = self.spec.site.starts_servers and placement is not None and placement.here
        self.split = self._split(server, server_here=here)
        if placement is None:
            self.host, self.ports = external_ports(self.spec, server)
            copy_secrets(self.spec, server)
            return
        self.group = ProcessGroup(self.spec, placement, self.split.server)
        self.liveness.exit_reason = self.group.exit_reason
        self.group.make(self.liveness.tick)
        self.host, self.ports = placement.main.host, dict(self.group.members[-1].ports)
        write_control_file(self.liveness.control.ports, self.ports)

    def _split(self, server: Server | None, *, server_here: bool) -> Split:
        """Divide the cores between load and server: as the place says, else by the site."""
        if place := self.spec.place:
            cores = place.server_cores if server_here else ()
            return placed_split(client=place.load_cores, server=cores, cores=cores_here())
        if server is None:
            return Split(why="the service runs inside the load")
        return split_cores(
            self.spec.site.pinning,
            workers=self.spec.service.workers,
            shards=self.spec.shards,
            cores=cores_here(),
            server_here=server_here,
        )

    def _run_hook(self, hook: Literal["stage", "populate"]) -> None:
        hooks = hooks_here(self.spec.service.driver)
        if hooks is not None and vars(hooks)[hook] is None:
            return
        sets = expanded(self.spec.site.paths.data)
        settings = prepared_settings(self.spec.service, self.spec.deployment.settings, sets)
        target = Target(settings=settings, data=self.spec.data, host=self.host, ports=self.ports)
        python = hook_interpreter(self.spec, hook)
        try:
            facts = run_preparation(
                hook, self.spec.service.driver, target, self.spec.seed, python, on_tick=self.liveness.tick
            )
        except PreparationError as cause:
            raise FailedError("setup_failed", cause.reason, cause.log_tail) from cause
        self.facts.update(facts)

    def _start(self, server: Server | None) -> None:
        """Start each process once those before it are healthy, and the sampler with the first."""
        for together in self.group.started_together() if self.group else ():
            for member in together:
                member.handle.start()
                if self.sampler is None:
                    self._start_sampler(server)
            for member in together:
                self._wait_until_healthy(member)
        if server and not self.group:
            self._wait_for_external(server)
        if self.sampler is None:
            self._start_sampler(server)

    def _start_sampler(self, server: Server | None) -> None:
        monitors = self.group.monitors() if self.group else node_monitors(self.spec, (), log_event)
        if not self.group and server and (pid := listener(self.host, self.ports.values())) is not None:
            monitors.append(ProcessTree(pid))
        for member in self.group.members if self.group else ():
            part = server.part(member.name) if server else None
            if part is not None and part.counters:
                own = f"http://{in_url(member.node.host)}:{member.ports[part.ports[0]]}{part.metrics_path}"
                monitors.append(Counters(member.name, own, part.counters, log_event))
        if url := self._metrics_url(server):
            monitors.append(Prometheus(url, log_event, tls=probe_tls(self.spec)))
        self.sampler = Sampler(monitors, self.spec.folder.telemetry, self.spec.site.telemetry_interval_s, log_event)
        self.sampler.start()

    def _wait_until_healthy(self, member: Member) -> None:
        assert self.group is not None
        health = member.health or Health()
        deadline_s = time.monotonic() + health.timeout_s
        while True:
            self._tick_before_healthy(member)
            state = self.group.probe(member)
            if state == "healthy":
                return
            if state == "port_taken":
                raise FailedError("port_taken", _port_taken(member.handle.foreign_ports()))
            if time.monotonic() >= deadline_s:
                raise FailedError("server_never_healthy", _no_answer(member, health))
            time.sleep(health.interval_s)

    def _wait_for_external(self, server: Server) -> None:
        health = probe_from_outside(server.health, self.ports)
        statuses = ANSWERED if self.spec.service.setting("health") is None else GOOD
        wait_s = min(health.timeout_s, EXTERNAL_WAIT_S)
        deadline_s = time.monotonic() + wait_s
        while True:
            self.liveness.tick()
            tls = probe_tls(self.spec)
            if Probe(health=health, host=self.host, ports=self.ports, tls=tls, statuses=statuses).answers():
                return
            if time.monotonic() >= deadline_s:
                at = f"{self.host}:{self.ports[health.port]}{health.path if health.probe == 'http' else ''}"
                raise FailedError("server_never_healthy", f"{at}: no answer to the health probe in {wait_s:g} s.")
            time.sleep(health.interval_s)

    def _tick_before_healthy(self, member: Member) -> None:
        try:
            self.liveness.tick()
        except EndedError as ended:
            if ended.why != "crash":
                raise
            with suppress(EndedError):
                if ports := member.handle.foreign_ports():
                    raise FailedError("port_taken", f"{_port_taken(ports)} {ended.reason}") from ended
            raise FailedError("server_never_healthy", f"{ended.reason} It had not answered yet.") from ended

    def answer(self, status: Literal["ok", "failed"]) -> Endpoint:
        """Return the content of endpoint.json, as far as it is known."""
        spec, members = self.spec, self.group.members if self.group else []
        main = self.group.main if self.group else None
        nodes = self.group.placement if self.group and spec.deployment.nodes > 1 else None
        return Endpoint(
            schema_version=SCHEMA_VERSION,
            status=status,
            deployment=spec.deployment.id,
            scenario=spec.scenario,
            service=spec.service.name,
            runtime=spec.site.runtime,
            image=spec.image.facts() if spec.image else None,
            part_images={name: image.facts() for name, image in spec.part_images.items()},
            client_image=spec.client.facts() if spec.client else None,
            host=self.host,
            ports=dict(self.ports),
            data=str(spec.data),
            environment=str(spec.environment) if spec.environment else None,
            driver=spec.service.driver,
            workers=spec.service.workers,
            server_pid=main.handle.pid if main else None,
            keeper_pid=os.getpid(),
            node=node(),
            slurm_job_id=allocation(),
            load_nodes=tuple(node.name for node in nodes.load) if nodes else None,
            server_nodes=tuple(node.name for node in nodes.server) if nodes else None,
            parts=tuple(member.record() for member in members if member.name != MAIN),
            metrics_url=self._metrics_url(spec.service.server),
            command=tuple(main.commands.command) if main and main.commands else None,
            gpus=spec.deployment.gpus,
            pinning=self.split,
            niceness=spec.place.niceness if spec.place else None,
            threads=spec.place.threads if spec.place else None,
            phases=dict(self.phases),
            facts=self.facts,
            idle_unix_s=self.idle_unix_s,
            started_at=self.started_at,
            ready_at=timestamp() if status == "ok" else None,
        )

    def _metrics_url(self, server: Server | None) -> str | None:
        if server is None or server.metrics_port is None or server.metrics_port not in self.ports:
            return None
        scheme = "http" if self.spec.deployment.settings.get("tls") is None else "https"
        return f"{scheme}://{in_url(self.host)}:{self.ports[server.metrics_port]}{server.metrics_path}"


def _port_taken(ports: list[str]) -> str:
    return f"Another process listens on a port chosen for the server ({', '.join(ports) or 'closed again'})."


def _no_answer(member: Member, health: Health) -> str:
    if member.name == MAIN and member.node.here:
        return f"No answer to the health probe in {health.timeout_s:g} s."
    where = "" if member.node.here else f", there and from here at {member.node.host}"
    return f"{member} gave no answer to its health probe in {health.timeout_s:g} s{where}."
