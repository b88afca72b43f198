"""Agent of a deployment on a remote node of its server: starts, probes and ends processes for the supervisor.

Run as a task of a Slurm step, through isolated_main.py. It connects to its supervisor and answers its requests
(remote_node.py). When the connection closes, or no request comes for the length of a lease, it ends every process
that it started. Its parent, the guard, does so when the agent is killed.
"""

import contextlib
import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seamark import __version__
from seamark.config.recipe_checks import MAIN
from seamark.dispatch.identity import node
from seamark.errors import UserError
from seamark.platform.pinning import cores_here, gpu_variables, server_cpus
from seamark.platform.process_tree import (
    alive_below,
    become_subreaper,
    kill_below,
    reap,
    send,
    set_parent_death_signal,
    wait_until_none,
)
from seamark.platform.rendezvous import connect
from seamark.services.supervisor.events import FailedError, log_event
from seamark.services.supervisor.launch_spec import LaunchSpec, ProcessSlot
from seamark.services.supervisor.process import ProcessCommands, ServerProcess, node_monitors, process_log
from seamark.services.supervisor.remote_node import AGENT_VARIABLE
from seamark.telemetry.sampler import Monitor, Reading

LEAST_SILENCE_S = 30.0
GRACE_S = 2.0


class Agent:
    """Processes of a deployment on this node, by name, and the requests on them."""

    def __init__(self, spec: LaunchSpec) -> None:
        assert spec.service.server is not None
        names = (MAIN, *(part.name for part in spec.service.server.parts))
        self.spec = spec
        self.processes = {name: ServerProcess(spec, name, process_log(spec, name, node())) for name in names}
        self._monitors: list[Monitor] = []
        self._failing: set[str] = set()

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Return the JSON result of one request."""
        if "process" in request:
            return self._on_process(self.processes[request["process"]], request)
        reap(but=[process.pid for process in self.processes.values() if process.pid is not None])
        if request["do"] == "poll":
            return {name: process.poll() for name, process in self.processes.items() if process.pid is not None}
        if request["do"] == "read":
            return [asdict(reading) for reading in self._readings()]
        raise UserError(f"an agent has no request '{request['do']}'.")

    def _on_process(self, process: ServerProcess, request: Mapping[str, Any]) -> Any:
        actions: Mapping[str, Callable[[], Any]] = {
            "choose_ports": lambda: process.choose_ports(request["host"], request["taken"]),
            "make": lambda: asdict(self._make(process, ProcessSlot(**request["slot"]))),
            "set_up": lambda: process.set_up(request["number"]),
            "set_up_code": process.set_up_code,
            "start": process.start,
            "probe": process.probe,
            "foreign_ports": process.foreign_ports,
            "signal": lambda: process.signal(request["number"]),
        }
        return actions[request["do"]]()

    def _make(self, process: ServerProcess, slot: ProcessSlot) -> ProcessCommands:
        process.cpus = server_cpus(self.spec.site.pinning, cores_here())
        return process.make(slot)

    def _readings(self) -> list[Reading]:
        started = [process for process in self.processes.values() if process.slot is not None]
        if not self._monitors and started:
            self._monitors = node_monitors(self.spec, started, log_event)
        readings: list[Reading] = []
        for monitor in self._monitors:
            try:
                readings += monitor.read()
            except Exception as cause:
                name = type(monitor).__name__
                if name not in self._failing:
                    self._failing.add(name)
                    log_event("monitor-failed", monitor=name, error=repr(cause))
        return readings


def serve(invitation: Mapping[str, Any]) -> None:
    """Answer the supervisor until it disconnects or falls silent; then end every process below this one."""
    agent = Agent(_launch_spec(Path(invitation["launch_spec"])))
    if place := agent.spec.place:
        os.environ.update(gpu_variables(place.gpus, place.share))  # its telemetry is of these
    try:
        about = {"node": node(), "pid": os.getpid(), "version": __version__}
        with connect(invitation["addresses"], invitation["token"], about) as connection:
            connection.settimeout(max(agent.spec.site.lease_s, LEAST_SILENCE_S))
            _answer_requests(agent, connection)
    finally:
        send(alive_below(os.getpid()), signal.SIGTERM)
        wait_until_none(os.getpid(), GRACE_S)
        kill_below(os.getpid())


def _answer_requests(agent: Agent, connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection.makefile("rb") as requests:
        for line in requests:
            try:
                answer: dict[str, Any] = {"result": agent.answer(json.loads(line))}
            except FailedError as failed:
                error = {"kind": "FailedError", "category": failed.category, "reason": failed.reason}
                answer = {"error": error | {"log_tail": failed.log_tail}}
            except (UserError, OSError) as cause:
                kind = "OSError" if isinstance(cause, OSError) else type(cause).__name__
                answer = {"error": {"kind": kind, "reason": str(cause)}}
            connection.sendall((json.dumps(answer) + "\n").encode())


def _launch_spec(path: Path) -> LaunchSpec:
    try:
        spec: LaunchSpec = pickle.loads(path.read_bytes())
    except OSError as error:
        raise SystemExit(
            f"{node()} does not see the supervisor's folder: {error}. Results must be on a shared file system."
        ) from error
    if not spec.data.is_dir():
        raise SystemExit(
            f"{node()} does not see {spec.data}: `paths.scratch` of the site must be on a file system that all nodes"
            " share."
        )
    return spec


def main(argv: list[str]) -> int:
    """Fork guard and agent; answer requests in the agent."""
    invitation = json.loads(os.environ.pop(AGENT_VARIABLE))
    become_subreaper()
    guard = os.getpid()
    if agent := os.fork():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: send([agent], signal.SIGTERM))
        _, status = os.waitpid(agent, 0)
        kill_below(os.getpid())
        return 0 if status == 0 else 1
    os.setsid()
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    set_parent_death_signal(signal.SIGTERM)
    if os.getppid() == guard:
        serve(invitation)
    return 0
