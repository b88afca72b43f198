"""The fork server: `main([NAME, OWNER_PID, KIND, PRELOAD...])`, run through isolated_main.py. One thread, one loop.

It listens, then imports, then forks for each request: who asks while it imports waits, so nothing is imported beside
a load. The child has its client's folder, environment, umask and files, and gets a signal when the client has gone;
limits, niceness and affinity are the server's. The server tells the client the child's process id and, in the end,
its exit code.
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
LOOK_S = 1.0
"""How often the server looks whether its run still lives."""
ORPHAN_GRACE_S = 5.0
"""How long a process may take to end after the signal that its client has gone."""
OWN_NAME = Path("/proc/self/comm")
BACKLOG = 64


def main(argv: list[str]) -> int:
    """Serve the run of process `OWNER_PID`. PRELOAD names modules to import."""
    name, owner, kind, *preload = argv
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address(name))
        started = start_of(int(owner))
    except OSError:  # another was quicker, and that one serves; or the run has ended already
        return 0
    listener.listen(BACKLOG)
    for module in preload:
        with contextlib.suppress(Exception):  # a job that needs it says so itself
            importlib.import_module(module)
    sys.stdout.flush()  # what a module prints belongs to no child
    sys.stderr.flush()
    gc.collect()
    gc.freeze()
    ForkServer(listener, int(owner), started, kind).run()
    return 0


class ForkServer:
    """The loop: a child for each request, and a word to the client when it has ended."""

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
        """Serve until the owner has gone, or nobody wants anything for a while; then wait for the children."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        asked_s, listening = time.monotonic(), True
        while listening or self._clients:
            ready = [key.fileobj for key, _ in self._selector.select(LOOK_S)]
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            self._bury()
            if listening and self._listener in ready:
                self._answer()
            if self._clients or self._listener in ready:
                asked_s = time.monotonic()
            if listening and (not self._owner_lives() or time.monotonic() - asked_s > IDLE_S):
                listening = False
                self._selector.unregister(self._listener)
                self._listener.close()

    def _owner_lives(self) -> bool:
        try:
            return start_of(self._owner) == self._started
        except ProcessLookupError:
            return False

    def _answer(self) -> None:
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
        except OSError:  # no process to be had: the client sees to itself
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
        self._tell(connection, f"pid {pid}")

    def _bury(self) -> None:
        """Tell the clients of children that have ended."""
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            connection = self._clients.pop(pid)
            self._tell(connection, f"exit {os.waitstatus_to_exitcode(status)}")
            connection.close()

    def _leave(self) -> None:
        """Close, in a child, what belongs to the server and to its other children."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in (self._listener, self._woken, self._wake, *self._clients.values()):
            other.close()

    @staticmethod
    def _tell(connection: socket.socket, line: str) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(line.encode() + b"\n")


def become(request: dict[str, Any], files: list[int], connection: socket.socket) -> NoReturn:
    """Turn this fresh child into the process that was asked for, and end with it."""
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environment"])
        random.seed()
        module, _, function = request["target"].partition(":")
        with contextlib.suppress(OSError):
            OWN_NAME.write_text(f"{module.rpartition('.')[2]}:{function}"[:15], encoding="utf-8")  # what `ps` shows
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
        os._exit(code)  # nothing to finalise: the interpreter's memory goes with the process


def _end(number: int, frame: object) -> NoReturn:
    """Turn a signal into an exception, so that what was opened is closed."""
    raise SystemExit(128 + number)


def _end_with(connection: socket.socket, number: int) -> None:
    """Wait for the client to go, and end this process then. Waits in the kernel, so it costs a load nothing."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), number)
    time.sleep(ORPHAN_GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
