"""The agent of a deployment on one of its server's other nodes: does there what the keeper asks, and nothing else.

Run as a task of a Slurm step, through isolated_main.py. It connects to its keeper and answers its questions
(remote_node.py). When the connection closes, whatever the reason, it ends everything that it has started; so it does
when the keeper has asked nothing for as long as a lease. Like the keeper it has a guard, its parent, that does so
when it is killed.
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
from seamark.load.workers.remote_worker import connect
from seamark.platform.pinning import cores_here, server_cpus
from seamark.platform.process_stat import alive_below
from seamark.platform.process_tree import become_subreaper, die_with_parent, kill_below, reap, send, wait_until_none
from seamark.services.supervisor.commands import ProcessSlot
from seamark.services.supervisor.failure import FailedError
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.node_telemetry import monitors_of
from seamark.services.supervisor.process import ProcessCommands, ServerProcess, log_of
from seamark.services.supervisor.remote_node import TOLD
from seamark.services.supervisor.scratch import data_folder
from seamark.services.supervisor.supervisor_log import say
from seamark.telemetry.sampler import Monitor, Reading

LEAST_SILENCE_S = 30.0
GRACE_S = 2.0


class Agent:
    """The pieces of a deployment on this node, by name, and what can be asked of them."""

    def __init__(self, spec: LaunchSpec) -> None:
        assert spec.service.server is not None
        names = (MAIN, *(part.name for part in spec.service.server.parts))
        self.spec = spec
        self.processes = {name: ServerProcess(spec, name, log_of(spec, name, node())) for name in names}
        self._monitors: list[Monitor] = []
        self._failing: set[str] = set()

    def answer(self, question: Mapping[str, Any]) -> Any:
        """Return the answer to one question, as JSON has it."""
        asked = {name: value for name, value in question.items() if name not in ("do", "process")}
        if "process" in question:
            return self._of_process(self.processes[question["process"]], question["do"], asked)
        reap(but=[process.pid for process in self.processes.values() if process.pid is not None])
        if question["do"] == "poll":
            return {name: process.poll() for name, process in self.processes.items() if process.pid is not None}
        if question["do"] == "read":
            return [asdict(one) for one in self._readings()]
        raise UserError(f"an agent cannot '{question['do']}'.")

    def _of_process(self, process: ServerProcess, do: str, asked: Mapping[str, Any]) -> Any:
        known: Mapping[str, Callable[[], Any]] = {
            "choose": lambda: process.choose(asked["host"], asked["taken"]),
            "make": lambda: asdict(self._make(process, ProcessSlot(**asked["slot"]))),
            "set_up": lambda: process.set_up(asked["number"]),
            "set_up_code": process.set_up_code,
            "start": process.start,
            "look": process.look,
            "taken": process.taken,
            "signal": lambda: process.signal(asked["number"]),
        }
        return known[do]()

    def _make(self, process: ServerProcess, slot: ProcessSlot) -> ProcessCommands:
        process.cpus = server_cpus(self.spec.site.pinning, cores_here())
        return process.make(slot)

    def _readings(self) -> list[Reading]:
        started = [process for process in self.processes.values() if process.slot is not None]
        if not self._monitors and started:
            self._monitors = monitors_of(self.spec, started, say)
        found: list[Reading] = []
        for monitor in self._monitors:
            try:
                found += monitor.read()
            except Exception as cause:
                name = type(monitor).__name__
                if name not in self._failing:
                    self._failing.add(name)
                    say("monitor-failed", monitor=name, error=repr(cause))
        return found


def serve(told: Mapping[str, Any]) -> None:
    """Answer the keeper until it hangs up or falls silent; then end everything below this process."""
    agent = Agent(_spec(Path(told["launch_spec"])))
    try:
        with connect(told["addresses"]) as connection:
            about = {"node": node(), "pid": os.getpid(), "version": __version__}
            connection.sendall(f"{told['token']}\nhello {json.dumps(about)}\n".encode())
            connection.settimeout(max(agent.spec.site.lease_s, LEAST_SILENCE_S))
            _converse(agent, connection)
    finally:
        send(alive_below(os.getpid()), signal.SIGTERM)
        wait_until_none(os.getpid(), GRACE_S)
        kill_below(os.getpid())


def _converse(agent: Agent, connection: socket.socket) -> None:
    with contextlib.suppress(OSError), connection.makefile("rb") as questions:
        for line in questions:
            try:
                answer: dict[str, Any] = {"is": agent.answer(json.loads(line))}
            except FailedError as failed:
                answer = {"error": _error(failed, failed.reason) | {"category": failed.category}}
            except (UserError, OSError) as cause:
                answer = {"error": _error(cause, str(cause))}
            connection.sendall((json.dumps(answer) + "\n").encode())


def _error(cause: Exception, reason: str) -> dict[str, Any]:
    kind = "OSError" if isinstance(cause, OSError) else type(cause).__name__
    return {"kind": kind, "reason": reason, "log_tail": getattr(cause, "log_tail", [])}


def _spec(path: Path) -> LaunchSpec:
    try:
        spec: LaunchSpec = pickle.loads(path.read_bytes())
    except OSError as error:
        raise SystemExit(
            f"{node()} does not see the keeper's folder: {error}. Results must be on a shared file system."
        ) from error
    if not data_folder(spec).is_dir():
        raise SystemExit(
            f"{node()} does not see {data_folder(spec)}: `paths.scratch` of the site must be on a file system that"
            " all nodes share."
        )
    return spec


def main(argv: list[str]) -> int:
    """Fork guard and agent, and serve."""
    told = json.loads(os.environ.pop(TOLD))
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
    die_with_parent(signal.SIGTERM)
    if os.getppid() == guard:
        serve(told)
    return 0
