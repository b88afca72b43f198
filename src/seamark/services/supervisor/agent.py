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
from seamark.services.supervisor.commands import Seat
from seamark.services.supervisor.failure import FailedError
from seamark.services.supervisor.launch_spec import Order
from seamark.services.supervisor.node_telemetry import monitors_of
from seamark.services.supervisor.process import Commands, Piece, log_of
from seamark.services.supervisor.remote_node import TOLD
from seamark.services.supervisor.scratch import data_folder
from seamark.services.supervisor.supervisor_log import say
from seamark.telemetry.sampler import Monitor, Reading

LEAST_SILENCE_S = 30.0
GRACE_S = 2.0


class Agent:
    """The pieces of a deployment on this node, by name, and what can be asked of them."""

    def __init__(self, order: Order) -> None:
        assert order.service.server is not None
        names = (MAIN, *(part.name for part in order.service.server.parts))
        self.order = order
        self.pieces = {name: Piece(order, name, log_of(order, name, node())) for name in names}
        self._monitors: list[Monitor] = []
        self._failing: set[str] = set()

    def answer(self, question: Mapping[str, Any]) -> Any:
        """Return the answer to one question, as JSON has it."""
        asked = {name: value for name, value in question.items() if name not in ("do", "piece")}
        if "piece" in question:
            return self._of_piece(self.pieces[question["piece"]], question["do"], asked)
        reap(but=[piece.pid for piece in self.pieces.values() if piece.pid is not None])
        if question["do"] == "poll":
            return {name: piece.poll() for name, piece in self.pieces.items() if piece.pid is not None}
        if question["do"] == "read":
            return [asdict(one) for one in self._readings()]
        raise UserError(f"an agent cannot '{question['do']}'.")

    def _of_piece(self, piece: Piece, do: str, asked: Mapping[str, Any]) -> Any:
        known: Mapping[str, Callable[[], Any]] = {
            "choose": lambda: piece.choose(asked["host"], asked["taken"]),
            "make": lambda: asdict(self._make(piece, Seat(**asked["seat"]))),
            "set_up": lambda: piece.set_up(asked["number"]),
            "set_up_code": piece.set_up_code,
            "start": piece.start,
            "look": piece.look,
            "taken": piece.taken,
            "signal": lambda: piece.signal(asked["number"]),
        }
        return known[do]()

    def _make(self, piece: Piece, seat: Seat) -> Commands:
        piece.cpus = server_cpus(self.order.site.pinning, cores_here())
        return piece.make(seat)

    def _readings(self) -> list[Reading]:
        started = [piece for piece in self.pieces.values() if piece.seat is not None]
        if not self._monitors and started:
            self._monitors = monitors_of(self.order, started, say)
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
    agent = Agent(_order(Path(told["order"])))
    try:
        with connect(told["addresses"]) as connection:
            about = {"node": node(), "pid": os.getpid(), "version": __version__}
            connection.sendall(f"{told['token']}\nhello {json.dumps(about)}\n".encode())
            connection.settimeout(max(agent.order.site.lease_s, LEAST_SILENCE_S))
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


def _order(path: Path) -> Order:
    try:
        order: Order = pickle.loads(path.read_bytes())
    except OSError as error:
        raise SystemExit(
            f"{node()} does not see the keeper's folder: {error}. Results must be on a shared file system."
        ) from error
    if not data_folder(order).is_dir():
        raise SystemExit(
            f"{node()} does not see {data_folder(order)}: `paths.scratch` of the site must be on a file system that"
            " all nodes share."
        )
    return order


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
