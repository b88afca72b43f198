"""The fork server: `main([NAME, OWNER_PID, KIND, PRELOAD...])`, run through isolated_main.py. One thread, one loop.

It listens, then imports, then forks for each request: clients wait while it imports, so no import runs beside a load.
The child has its client's folder, environment, umask and files, in a lane also its CPUs, and gets a signal when the
client is gone; limits, niceness and otherwise affinity are the server's. The client receives the child's process id
and finally its exit code.
"""

import contextlib
import gc
import importlib
import os
import random
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

from seamark.platform.fork_server.protocol import address, function_of, is_ours, receive, start_of

IDLE_S = 30.0
OWNER_CHECK_S = 1.0
"""Interval of checks whether the run is alive."""
ORPHAN_GRACE_S = 5.0
"""Time for a process to end after its orphan signal."""
OWN_NAME = Path("/proc/self/comm")
BACKLOG = 64


def main(argv: list[str]) -> int:
    """Serve the run of process `OWNER_PID`. PRELOAD are modules to import."""
    name, owner, kind, *preload = argv
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address(name))
        started = start_of(int(owner))
    except OSError:  # another server was faster and serves; or the run has ended
        return 0
    listener.listen(BACKLOG)
    for module in preload:
        with contextlib.suppress(Exception):  # a job that needs the module reports the error
            importlib.import_module(module)
    sys.stdout.flush()  # so that no child prints output of a module again
    sys.stderr.flush()
    gc.collect()
    gc.freeze()
    ForkServer(listener, int(owner), started, kind).run()
    return 0


class ForkServer:
    """The loop: forks a child per request and reports its end to the client."""

    def __init__(self, listener: socket.socket, owner: int, started: str, kind: str) -> None:
        self._listener = listener
        self._owner, self._started = owner, started
        self._kind = kind
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def run(self) -> None:
        """Serve until the owner is gone or the server is idle too long; then wait for the children."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        last_request_s, listening = time.monotonic(), True
        while listening or self._clients:
            ready = [key.fileobj for key, _ in self._selector.select(OWNER_CHECK_S)]
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            self._reap_children()
            if listening and self._listener in ready:
                self._serve_request()
            if self._clients or self._listener in ready:
                last_request_s = time.monotonic()
            if listening and (not self._owner_lives() or time.monotonic() - last_request_s > IDLE_S):
                listening = False
                self._selector.unregister(self._listener)
                self._listener.close()

    def _owner_lives(self) -> bool:
        try:
            return start_of(self._owner) == self._started
        except ProcessLookupError:
            return False

    def _serve_request(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        try:
            if not is_ours(connection):
                raise PermissionError("a client of another user")
            request, files = receive(connection)
        except (OSError, EOFError, ValueError):
            connection.close()
            return
        try:
            pid = -1 if request.get("kind") != self._kind else os.fork()
        except OSError:  # no process available: the client starts its own
            pid = -1
        if pid == 0:
            self._leave()
            become(request, files, connection)
        for file in files:
            os.close(file)
        if pid < 0:
            connection.close()
            return
        self._clients[pid] = connection
        self._send_line(connection, f"pid {pid}")

    def _reap_children(self) -> None:
        """Report ended children to their clients."""
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            connection = self._clients.pop(pid)
            self._send_line(connection, f"exit {os.waitstatus_to_exitcode(status)}")
            connection.close()

    def _leave(self) -> None:
        """Close, in a child, the files of the server and of its other children."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in (self._listener, self._woken, self._wake, *self._clients.values()):
            other.close()

    @staticmethod
    def _send_line(connection: socket.socket, line: str) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(line.encode() + b"\n")


def become(request: dict[str, Any], files: list[int], connection: socket.socket) -> NoReturn:
    """Turn this fresh child into the requested process, and exit with its result."""
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.umask(request["umask"])
        if affinity := request.get("affinity"):
            os.sched_setaffinity(0, affinity)
        os.environ.clear()
        os.environ.update(request["environment"])
        random.seed()
        module, _, function = request["target"].partition(":")
        with contextlib.suppress(OSError):
            OWN_NAME.write_text(
                f"{module.rpartition('.')[2]}:{function}"[:15], encoding="utf-8"
            )  # name shown by `ps`
        signal.signal(signal.SIGTERM, _end)
        watch = threading.Thread(target=_end_with, args=(connection, request["orphan_signal"]), daemon=True)
        watch.start()
        answer = function_of(request["target"])(*request["arguments"])
        code = answer if isinstance(answer, int) else 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # skips finalisation of the interpreter


def _end(number: int, frame: object) -> NoReturn:
    """Turn a signal into an exception, so that open resources are closed."""
    raise SystemExit(128 + number)


def _end_with(connection: socket.socket, number: int) -> None:
    """Wait for the client to disconnect and end this process then. The wait is in the kernel, so it costs a load
    nothing."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), number)
    time.sleep(ORPHAN_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
