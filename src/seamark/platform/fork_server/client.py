"""Requests a process from a fork server, and starts the server if there is none."""

import contextlib
import os
import select
import signal
import socket
import sys
import time

from seamark.platform.fork_server.protocol import (
    DEVICE,
    PACKAGE,
    address,
    function_of,
    is_ours,
    kind_of,
    name_of,
    send,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn

ISOLATED_MAIN = f"{PACKAGE}/platform/isolated_main.py"
OF_JOBS = ("seamark.workflow.preloaded",)
"""Preloaded modules of the fork server of a run's jobs."""
START_S = 20.0
"""Time for a fork server to listen. It imports afterwards."""
RETRY_S = 0.002
WAIT_S = 0.1
LEADER = "SEAMARK_LEADER"
"""Environment variable with the process to which the scripts of a run belong: their parent, while it lives."""
RUN = "SEAMARK_RUN"
"""Environment variable with the owner of the fork server of all jobs of a run, those of lanes too: Snakemake."""
INSIDE_A_CONTAINER = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""In a container a server might end with the container of the job that started it."""


class Forked:
    """A process made by a fork server, with the interface of `subprocess.Popen`. It ends with its client."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the process has ended."""
        return self._connection.fileno()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process lives."""
        return self._receive(0.0)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        code = self._receive(None)
        assert code is not None
        return code

    def terminate(self) -> None:
        """Send SIGTERM, which the process receives as SystemExit."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _receive(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and _readable(self._connection, timeout_s):
            line = _line(self._connection)
            # a killed server sends no exit code, and its child has been killed too
            self.returncode = -int(signal.SIGKILL) if line is None else int(line.removeprefix("exit "))
            self._connection.close()
        return self.returncode


def fork(
    target: str,
    arguments: "Sequence[str]",
    *,
    owner: int,
    files: "Sequence[int]",
    preload: "Sequence[str]" = (),
    python: "Path | None" = None,
    orphan_signal: int = signal.SIGTERM,
    import_environment: bool = False,
    variables: "Mapping[str, str] | None" = None,
    on_wait: "Callable[[], object]" = lambda: None,
) -> Forked | None:
    """Return a new process of the interpreter `python` (None: this one) that calls `target`, `module:function`.

    The fork server ends with the process `owner`; `preload` are the modules that it has imported. `files` are the new
    process's standard input, output and error; it gets `orphan_signal` when its client is gone. Its environment is
    that of this process and `variables`. With `import_environment` the server must have imported with the same
    settings of libraries (numbers of threads).
    `on_wait` is called about every 0.1 s while the server imports; what it raises ends the wait. None where no fork
    server is available: the caller then starts a process of its own.
    """
    if any(name in os.environ for name in INSIDE_A_CONTAINER):
        return None
    interpreter = str(python or sys.executable)
    environment = {**os.environ, **(variables or {})}
    kind = kind_of(interpreter, preload, environment if import_environment else {})
    umask = os.umask(0o077)
    os.umask(umask)
    request = {
        "kind": kind,
        "target": target,
        "arguments": list(arguments),
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": environment,
        "umask": umask,
        # the server of a lane's jobs lives longer than one unit: the next one may have another device
        "affinity": sorted(os.sched_getaffinity(0)) if DEVICE in os.environ else None,
        "orphan_signal": int(orphan_signal),
    }
    try:
        connection = _connect(owner, interpreter, kind, preload, environment, on_wait)
    except OSError:
        return None
    line = None
    try:
        send(connection, request, files)
        while not _readable(connection, WAIT_S):
            on_wait()
        line = _line(connection)
    except OSError:
        pass
    finally:
        if line is None:
            connection.close()
    return None if line is None else Forked(connection, int(line.removeprefix("pid ")))


def run(target: str, arguments: "Sequence[str]") -> "NoReturn":
    """Run the job `target` in a process of the fork server of the run, or in this process without one, and exit with
    its code. It ends with the parent."""
    parent = os.getppid()
    if os.environ.get(LEADER, str(parent)) != str(parent):  # the parent was killed before this check
        os._exit(1)

    def end_with_parent() -> None:
        if os.getppid() != parent:
            os._exit(1)

    owner = int(os.environ.get(RUN, parent))
    process = fork(target, arguments, owner=owner, files=(0, 1, 2), preload=OF_JOBS, on_wait=end_with_parent)
    if process is None:
        end_with_parent()
        function_of(target)(*arguments)
        raise SystemExit(0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _pass_on(process.pid))
    while not _readable(process, WAIT_S):
        end_with_parent()
    code = process.wait()
    os._exit(code if code >= 0 else 128 - code)  # skips finalisation: every job of every trial ends here


def _pass_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def start_server(owner: int) -> None:
    """Start the fork server of a run ahead of its jobs, so that it imports meanwhile."""
    with contextlib.suppress(OSError):
        kind = kind_of(sys.executable, OF_JOBS, {})
        _start_server(name_of(owner, kind), owner, sys.executable, kind, OF_JOBS, os.environ)


def _connect(
    owner: int,
    python: str,
    kind: str,
    preload: "Sequence[str]",
    environment: "Mapping[str, str]",
    on_wait: "Callable[[], object]",
) -> socket.socket:
    """Return a connection to the fork server; start it if there is none, and wait until it listens."""
    name = name_of(owner, kind)
    server: subprocess.Popen[bytes] | None = None
    limit_s = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address(name))
        except OSError:
            connection.close()
            if server is not None and (server.poll() or time.monotonic() > limit_s):
                raise
            if server is None:
                server = _start_server(name, owner, python, kind, preload, environment)
            on_wait()
            time.sleep(RETRY_S)
        else:
            if is_ours(connection):
                return connection
            connection.close()
            raise PermissionError("another user listens there")


def _start_server(
    name: str, owner: int, python: str, kind: str, preload: "Sequence[str]", environment: "Mapping[str, str]"
) -> "subprocess.Popen[bytes]":
    import subprocess

    return subprocess.Popen(
        [python, ISOLATED_MAIN, "seamark.platform.fork_server.server", name, str(owner), kind, *preload],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment,
        start_new_session=True,
    )


def _readable(file: "socket.socket | Forked", timeout_s: float | None) -> bool:
    """Wait until data or the end of the file is there. `select` would fail above 1,024 open files."""
    look = select.poll()
    look.register(file, select.POLLIN)
    return bool(look.poll(None if timeout_s is None else timeout_s * 1000))


def _line(connection: socket.socket) -> str | None:
    """Return the next line, None if the other side closed without one."""
    received = b""
    while not received.endswith(b"\n"):
        try:
            byte = connection.recv(1)
        except ConnectionResetError:
            return None
        if not byte:
            return None
        received += byte
    return received[:-1].decode()
