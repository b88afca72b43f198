"""The keeper of one deployment: owns its server's processes, watches for every reason to end them, records the end.

Run as `python -m seamark.servers.keeper FOLDER` with an Order on standard input. It forks: the parent stays behind
as a guard that ends whatever a killed keeper leaves; both adopt orphans, so that no child can hide from them.
"""

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.load.preparation import PreparationError, run_preparation
from seamark.model.service import Server
from seamark.model.trial import SCHEMA_VERSION
from seamark.monitors.gpu import Gpus
from seamark.monitors.host import Host
from seamark.monitors.process import ProcessTree
from seamark.monitors.prometheus import Prometheus
from seamark.monitors.sampler import Monitor, Sampler
from seamark.servers.failure import EndedError, FailedError
from seamark.servers.health import look
from seamark.servers.keeperlog import say, tail, timestamp
from seamark.servers.launch import Launch
from seamark.servers.order import Order, expanded
from seamark.servers.ports import choose_ports, owners
from seamark.servers.privilege import give_to
from seamark.servers.runtimes import external_ports, interpreter, launch_of
from seamark.servers.signs import (
    BEAT_INTERVAL_S,
    Signs,
    hold,
    modified_ns,
    node,
    read_sign,
    signs_of,
    write_beat,
    write_sign,
)
from seamark.servers.tree import (
    alive_below,
    become_subreaper,
    die_with_parent,
    kill_below,
    reap,
    send,
    wait_until_none,
)

TICK_S = 0.05
FILES_INTERVAL_S = 0.2
CHILDREN_GRACE_S = 2.0


class Keeper:
    """Brings one deployment up, keeps it while it is needed, and takes it down."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.signs: Signs = signs_of(order.folder)
        self.server: subprocess.Popen[bytes] | None = None
        self.launch: Launch | None = None
        self.host = order.site.address
        self.ports: dict[str, int] = {}
        self.phases: dict[str, float] = {}
        self.facts: dict[str, Any] = {}
        self.started_at = timestamp()
        self.data = _data_folder(order)
        self._log_start = order.folder.server_log.stat().st_size if order.folder.server_log.exists() else 0
        self._signalled = False
        self._beat_s = self._files_s = float("-inf")
        self._lease_ns = modified_ns(self.signs.lease)
        self._lease_s = time.monotonic()

    def run(self) -> int:
        """Serve until there is a reason to end. What went wrong is in the signs, not in the exit code, which is 0."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        sampler: Sampler | None = None
        data_lock = None
        end: dict[str, Any] = {"why": "crash", "reason": "The keeper itself failed; see its log."}
        try:
            self.tick()
            data_lock = hold(self.data.with_name(f".{self.data.name}.lock"))
            if data_lock is None:
                raise FailedError("setup_failed", f"{self.data}: another run's server is using this folder.")
            sampler = self._bring_up()
            write_sign(self.signs.answer, self._answer("ok"))
            say("server-up", phases=self.phases, ports=self.ports)
            while True:
                self.tick()
                reap(but=self.server.pid if self.server else None)
                time.sleep(TICK_S)
        except EndedError as ended:
            end = {"why": ended.why, "reason": ended.reason}
            if ended.why == "crash":
                end["log_tail"] = self._tail()
        except FailedError as failed:
            end = {"why": "failed", "category": failed.category, "reason": failed.reason}
            end["log_tail"] = failed.log_tail or self._tail()
        except (UserError, OSError) as cause:
            end = {"why": "failed", "category": "setup_failed", "reason": str(cause), "log_tail": self._tail()}
        finally:
            self._take_down(end, sampler, keep_data=data_lock is None)
        return 0

    def tick(self) -> None:
        """Beat, and raise EndedError as soon as there is a reason to end. To be called at least every second."""
        now_s = time.monotonic()
        if now_s - self._beat_s >= BEAT_INTERVAL_S:
            self._beat_s = now_s
            with contextlib.suppress(OSError):
                write_beat(self.signs, os.getpid())
        if self.server is not None and (returncode := self.server.poll()) is not None:
            raise EndedError("crash", f"The server ended with {_spoken(returncode)}.")
        if self._signalled:
            raise EndedError("sigterm", "The keeper was told to end by a signal.")
        if now_s - self._files_s >= FILES_INTERVAL_S:
            self._files_s = now_s
            self._look_at_files(now_s)

    def _look_at_files(self, now_s: float) -> None:
        if stop := read_sign(self.signs.stop):
            raise EndedError(str(stop.get("why", "stop")), "It was asked to stop.")
        if self.signs.published.exists() and not self.order.folder.endpoint.exists():
            raise EndedError("endpoint-removed", "Its endpoint.json was removed: nobody needs it any more.")
        lease_ns = modified_ns(self.signs.lease)
        if lease_ns != self._lease_ns:
            self._lease_ns, self._lease_s = lease_ns, now_s
        elif now_s - self._lease_s > self.order.site.lease_s:
            raise EndedError("lease", f"Nobody renewed its lease for {self.order.site.lease_s:g} s.")

    def _on_signal(self, number: int, frame: object) -> None:
        self._signalled = True

    # Bringing up

    def _bring_up(self) -> Sampler:
        server = self.order.service.server
        _empty(self.data)
        with self._phase("setup"):
            self._choose(server)
            for command in self.launch.setup if self.launch else ():
                self._setup(command)
        with self._phase("stage"):
            self._prepare("stage")
        with self._phase("start"):
            if self.launch:
                self._spawn(self.launch)
            sampler = self._watch(server)
            if server:
                self._wait_until_healthy(server)
        with self._phase("populate"):
            self._prepare("populate")
        return sampler

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
            return
        if self.order.site.runtime == "external":
            self.host, self.ports = external_ports(self.order, server)
            return
        self.ports = choose_ports(server.ports, self.host, random.SystemRandom())
        self.launch = launch_of(
            self.order, server, ports=self.ports, data=self.data, environment=self.order.environment
        )
        if self.launch.user:
            give_to(self.launch.user, self.data)
        write_sign(self.signs.ports, self.ports)

    def _setup(self, command: tuple[str, ...]) -> None:
        process = self._start(command)
        while process.poll() is None:
            self.tick()
            time.sleep(TICK_S)
        if process.returncode != 0:
            raise FailedError("setup_failed", f"`{' '.join(command)}` ended with {_spoken(process.returncode)}.")

    def _prepare(self, hook: Any) -> None:
        target = Target(settings=self.order.deployment.settings, data=self.data, host=self.host, ports=self.ports)
        python = interpreter(self.order.environment)
        try:
            facts = run_preparation(
                hook, self.order.service.driver, target, self.order.seed, python, on_tick=self.tick
            )
        except PreparationError as cause:
            raise FailedError("setup_failed", cause.reason, cause.log_tail) from cause
        self.facts.update(facts)

    def _spawn(self, launch: Launch) -> None:
        if launch.user:
            give_to(launch.user, self.data)
        self.server = self._start(launch.command)
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
                preexec_fn=lambda: die_with_parent(signal.SIGKILL),
            )

    def _watch(self, server: Server | None) -> Sampler:
        monitors: list[Monitor] = [Host()]
        if self.server:
            monitors.append(ProcessTree(self.server.pid))
        if self.order.deployment.gpus > 0:
            monitors.append(Gpus(self.order.deployment.gpus, say))
        if url := self._metrics_url(server):
            monitors.append(Prometheus(url, say))
        sampler = Sampler(monitors, self.order.folder.telemetry, self.order.site.telemetry_interval_s, say)
        sampler.start()
        return sampler

    def _wait_until_healthy(self, server: Server) -> None:
        health = server.health
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
            self.tick()
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

    # What is said of it

    def _answer(self, status: str) -> dict[str, Any]:
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
            "host": self.host,
            "ports": self.ports,
            "data": str(self.data),
            "environment": str(self.order.environment) if self.order.environment else None,
            "server_pid": self.server.pid if self.server else None,
            "keeper_pid": os.getpid(),
            "node": node(),
            "metrics_url": self._metrics_url(server),
            "command": list(self.launch.command) if self.launch else None,
            "gpus": self.order.deployment.gpus,
            "phases": self.phases,
            "facts": self.facts,
            "log_tail": [],
            "started_at": self.started_at,
            "ready_at": timestamp() if status == "ok" else None,
        }

    def _metrics_url(self, server: Server | None) -> str | None:
        if server is None or server.metrics_port is None or server.metrics_port not in self.ports:
            return None
        return f"http://{self.host}:{self.ports[server.metrics_port]}{server.metrics_path}"

    def _tail(self) -> list[str]:
        return tail(self.order.folder.server_log, self._log_start)

    # Taking down

    def _take_down(self, end: dict[str, Any], sampler: Sampler | None, *, keep_data: bool) -> None:
        """Say why at once, so that a load sees it; then end every process; then say how the server ended."""
        end = {"schema_version": SCHEMA_VERSION, "returncode": None, "log_tail": [], **end, "at": timestamp()}
        if self.server:
            end["returncode"] = self.server.poll()
        write_sign(self.signs.end, end)
        say("server-down", why=end["why"], reason=end["reason"])
        if sampler:
            sampler.stop()
        if not self.signs.answer.exists():
            told = {key: end.get(key) for key in ("category", "reason", "log_tail")}
            told["category"] = told["category"] or ("server_died" if end["why"] == "crash" else "interrupted")
            write_sign(self.signs.answer, self._answer("failed") | told)
        self._end_processes()
        if self.server:
            write_sign(self.signs.end, end | {"returncode": self.server.poll()})
        if not keep_data:
            shutil.rmtree(self.data, ignore_errors=True)
        self.signs.beat.unlink(missing_ok=True)

    def _end_processes(self) -> None:
        """Ask the server, then whatever it left behind, then insist."""
        server = self.order.service.server
        if self.server and server and self.server.poll() is None:
            self.server.send_signal(signal.Signals[server.stop_signal])
            self._beating_wait(lambda: self.server is None or self.server.poll() is not None, server.stop_timeout_s)
        if left := alive_below(os.getpid()):
            send(left, signal.SIGTERM)
            wait_until_none(os.getpid(), CHILDREN_GRACE_S)
        if not kill_below(os.getpid()):
            say("left-behind", pids=alive_below(os.getpid()))
        if self.server:
            self.server.poll()

    def _beating_wait(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not done() and time.monotonic() < deadline_s:
            write_beat(self.signs, os.getpid())
            time.sleep(TICK_S)


def guard(keeper: int, signs: Signs) -> int:
    """Wait for the keeper; if it was killed, end all that it left and record that."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: send([keeper], number))
    _, waited = os.waitpid(keeper, 0)
    kill_below(os.getpid())
    reap()
    returncode = os.waitstatus_to_exitcode(waited)
    if read_sign(signs.end) is None:
        reason = f"The keeper ended with {_spoken(returncode)}; its server was ended with it."
        end = {"schema_version": SCHEMA_VERSION, "why": "crash", "returncode": None, "reason": reason}
        write_sign(signs.end, {**end, "log_tail": [], "at": timestamp()})
        say("keeper-killed", **end)
    signs.beat.unlink(missing_ok=True)
    return 0 if returncode == 0 else 1


def _data_folder(order: Order) -> Path:
    return expanded(order.site.paths.scratch) / order.scenario / order.deployment.id


def _empty(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _spoken(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"


def main(argv: list[str]) -> int:
    """Hold the deployment's lock, fork guard and keeper, and keep."""
    order: Order = pickle.load(sys.stdin.buffer)
    sys.stdin.close()
    signs = signs_of(order.folder)
    held = hold(signs.lock, wait_s=2.0)
    if held is None:
        print(f"{argv[0]}: another keeper holds this deployment", file=sys.stderr)
        return 3
    become_subreaper()
    parent = os.getpid()
    if keeper := os.fork():
        status = guard(keeper, signs)
        held.close()
        return status
    os.setsid()
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        return 1
    return Keeper(order).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
