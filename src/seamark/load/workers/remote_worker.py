"""A worker on another machine: `main([])`, run by isolated_main.py, with its launch spec in SEAMARK_CARRIED.

It connects to its coordinator, authenticates by token, reports its place and receives its assignment. It then runs
like any worker and sends over the connection what local workers print. It writes into the coordinator's folder if
that is shared, else into a temporary one whose files it sends at the end. It exits when the connection closes.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from seamark import __version__
from seamark.dispatch.identity import boot_id, node, task_rank
from seamark.load.coordinator.launchers.rendezvous import with_keepalive
from seamark.load.coordinator.launchers.task import LAUNCH_SPEC
from seamark.load.workers.assignment import WorkerAssignment
from seamark.load.workers.hooks import TAIL_LINES
from seamark.load.workers.worker import Line, work
from seamark.platform.process_tree import die_with_parent

CONNECT_S = 5.0
FINISH_S = 30.0
TAIL_BYTES = 1 << 14


class Connection:
    """Connection to the coordinator. A thread reads it: it answers pings at once, whatever the worker waits for, and
    ends this process when the coordinator closes it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._sending = threading.Lock()
        self._finishing = threading.Event()
        self.gone = threading.Event()
        self.folder: Path | None = None
        """Folder to remove when the coordinator is gone."""

    def start(self) -> None:
        """Start the reading thread."""
        threading.Thread(target=self._receive, daemon=True).start()

    def write(self, line: str) -> None:
        """Send a line that has its line end. A failure is preceded by the last lines of stderr."""
        if line.startswith("failed "):
            self.send_stderr_tail()
        with self._sending:
            self._connection.sendall(line.encode())

    def send_stderr_tail(self) -> None:
        """Send the last lines that this process wrote to stderr."""
        sys.stderr.flush()
        size = os.fstat(2).st_size
        kept = os.pread(2, min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)).decode(errors="replace")
        if lines := kept.splitlines()[-TAIL_LINES:]:
            self.write(f"tail {json.dumps(lines)}\n")

    def read(self) -> str:
        """Return the coordinator's next line."""
        return self._lines.get()

    def send_file(self, kind: str, path: Path) -> None:
        """Send a file."""
        with path.open("rb") as file, self._sending:
            self._connection.sendall(f"file {kind} {os.fstat(file.fileno()).st_size}\n".encode())
            self._connection.sendfile(file)

    def finish(self) -> None:
        """Announce the end and wait until the coordinator has read everything."""
        self._finishing.set()
        self.send_stderr_tail()
        self.write("done\n")
        self.gone.wait(FINISH_S)

    def _receive(self) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as received:
            for line in received:
                if line.startswith(b"ping"):
                    there_ns = time.monotonic_ns()
                    self.write(f"pong {int(line[5:])} {there_ns}\n")
                elif line == b"stop\n":
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    self._lines.put(line.decode())
        self.gone.set()
        if not self._finishing.is_set():
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(1)


def main(argv: list[str]) -> int:
    """Run one assignment of a load for a coordinator on another machine."""
    spec = json.loads(os.environ.pop(LAUNCH_SPEC))
    if spec.get("parent_pid"):
        die_with_parent(spec["parent_pid"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_stderr()
    worker = spec["worker"] if "worker" in spec else task_rank()
    connection = Connection(connect(spec["addresses"]))
    about = {"worker": worker, "host": node(), "pid": os.getpid(), "machine": boot_id()}
    connection.write(f"{spec['token']}\nhello {json.dumps(about | {'version': __version__})}\n")
    connection.start()
    word, _, rest = connection.read().partition(" ")
    if word != "assignment":
        return 1
    message = json.loads(rest)
    assignment, connection.folder = choose_files(WorkerAssignment.from_json(message["assignment"]), message["probe"])
    if connection.folder is not None:
        connection.write("apart\n")
    try:
        code = work(assignment, Line(connection.write, connection.read))
        if assignment.report.exists():
            deliver(assignment, connection)
    except OSError:
        traceback.print_exc()
        code = 1
    finally:
        if connection.folder is not None:
            shutil.rmtree(connection.folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a call cannot delay the exit


def keep_stderr() -> None:
    """Redirect stderr, and stdout with it, to a file that can be read back for its last lines."""
    if not stat.S_ISREG(os.fstat(2).st_mode):
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
    os.dup2(2, 1)


def connect(addresses: Sequence[tuple[str, int]]) -> socket.socket:
    """Return a connection to the first address that accepts one. Raises OSError with the failure of each."""
    failures = []
    for host, port in addresses:
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_S)
        except OSError as error:
            failures.append(f"{host}:{port} ({error})")
            continue
        connection.settimeout(None)
        return with_keepalive(connection)
    raise OSError(f"{socket.gethostname()} cannot reach the parent of its load: {', '.join(failures)}")


def choose_files(assignment: WorkerAssignment, probe: Mapping[str, Any]) -> tuple[WorkerAssignment, Path | None]:
    """Return the assignment with writable files, and the temporary folder that has them where the coordinator's
    folder cannot be written from here."""
    mark = assignment.report.with_suffix(".here")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if Path(probe["path"]).read_text(encoding="ascii") == probe["content"]:
            mark.touch()
            mark.unlink()
            return assignment, None
    folder = Path(tempfile.mkdtemp(prefix="seamark-shard-"))
    return replace(
        assignment, segment=folder / assignment.segment.name, report=folder / assignment.report.name
    ), folder


def deliver(assignment: WorkerAssignment, connection: Connection) -> None:
    """Wait for the second clock comparison, send the files that the coordinator lacks, and finish."""
    while connection.read() != "bye\n":
        pass
    if connection.folder is not None:
        for kind, path in (("samples", assignment.segment), ("chunks", assignment.chunks)):
            if path.exists():
                connection.send_file(kind, path)
    connection.write(f"report {assignment.report.read_text(encoding='utf-8')}\n")
    connection.finish()
