"""One worker of a load on another machine: `main([])`, run by isolated_main.py, with its order in SEAMARK_CARRIED.

It connects to its parent, shows its token, says where it is and gets its share. Then it works as any worker does, and
says over the connection what the others say on standard output. It writes into the parent's folder where it can, else
beside itself, and sends that at the end. When the connection closes, it ends.
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
from seamark.load.coordinator.launchers.rendezvous import watched
from seamark.load.coordinator.launchers.task import ORDER
from seamark.load.workers.assignment import Share
from seamark.load.workers.hooks import TAIL_LINES
from seamark.load.workers.worker import Line, work
from seamark.platform.parent_death import die_with_parent

CONNECT_S = 5.0
PARTING_S = 30.0
TAIL_BYTES = 1 << 14


class Connection:
    """The connection to the parent. A thread hears it: it answers pings at once, whatever the worker waits for, and
    ends this process when the parent hangs up."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._sending = threading.Lock()
        self._parting = threading.Event()
        self.gone = threading.Event()
        self.folder: Path | None = None
        """What is removed when the parent has gone."""

    def start(self) -> None:
        """Hear from now on."""
        threading.Thread(target=self._hear, daemon=True).start()

    def write(self, line: str) -> None:
        """Send a line, with its end. Why a worker cannot go on is said with its last lines on stderr."""
        if line.startswith("failed "):
            self.say_tail()
        with self._sending:
            self._connection.sendall(line.encode())

    def say_tail(self) -> None:
        """Send the last lines that this process has written to stderr."""
        sys.stderr.flush()
        size = os.fstat(2).st_size
        kept = os.pread(2, min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)).decode(errors="replace")
        if lines := kept.splitlines()[-TAIL_LINES:]:
            self.write(f"tail {json.dumps(lines)}\n")

    def read(self) -> str:
        """Return the parent's next line."""
        return self._lines.get()

    def send(self, kind: str, path: Path) -> None:
        """Send a file."""
        with path.open("rb") as file, self._sending:
            self._connection.sendall(f"file {kind} {os.fstat(file.fileno()).st_size}\n".encode())
            self._connection.sendfile(file)

    def part(self) -> None:
        """Say that all is said, and wait until the parent has read it."""
        self._parting.set()
        self.say_tail()
        self.write("done\n")
        self.gone.wait(PARTING_S)

    def _hear(self) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as heard:
            for line in heard:
                if line.startswith(b"ping"):
                    there_ns = time.monotonic_ns()
                    self.write(f"pong {int(line[5:])} {there_ns}\n")
                elif line == b"stop\n":
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    self._lines.put(line.decode())
        self.gone.set()
        if not self._parting.is_set():
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(1)


def main(argv: list[str]) -> int:
    """Run one share of a load for a parent on another machine."""
    order = json.loads(os.environ.pop(ORDER))
    if order.get("parent_pid"):
        die_with_parent(order["parent_pid"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_stderr()
    worker = order["worker"] if "worker" in order else task_rank()
    connection = Connection(connect(order["addresses"]))
    about = {"worker": worker, "host": node(), "pid": os.getpid(), "machine": boot_id()}
    connection.write(f"{order['token']}\nhello {json.dumps(about | {'version': __version__})}\n")
    connection.start()
    word, _, rest = connection.read().partition(" ")
    if word != "share":
        return 1
    told = json.loads(rest)
    share, connection.folder = place(Share.from_json(told["share"]), told["probe"])
    if connection.folder is not None:
        connection.write("apart\n")
    try:
        code = work(share, Line(connection.write, connection.read))
        if share.report.exists():
            deliver(share, connection)
    except OSError:
        traceback.print_exc()
        code = 1
    finally:
        if connection.folder is not None:
            shutil.rmtree(connection.folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a call cannot keep us


def keep_stderr() -> None:
    """Let stderr be a file that can be read again, and so what libraries print."""
    if not stat.S_ISREG(os.fstat(2).st_mode):
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
    os.dup2(2, 1)


def connect(addresses: Sequence[tuple[str, int]]) -> socket.socket:
    """Return a connection to the first of those addresses that answers. Raises OSError with what each said."""
    said = []
    for host, port in addresses:
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_S)
        except OSError as error:
            said.append(f"{host}:{port} ({error})")
            continue
        connection.settimeout(None)
        return watched(connection)
    raise OSError(f"{socket.gethostname()} cannot reach the parent of its load: {', '.join(said)}")


def place(share: Share, probe: Mapping[str, Any]) -> tuple[Share, Path | None]:
    """Return the share with files that it can write, and the folder of ours that they are in where the parent's
    cannot be written from here."""
    mark = share.report.with_suffix(".here")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if Path(probe["path"]).read_text(encoding="ascii") == probe["content"]:
            mark.touch()
            mark.unlink()
            return share, None
    folder = Path(tempfile.mkdtemp(prefix="seamark-shard-"))
    return replace(share, segment=folder / share.segment.name, report=folder / share.report.name), folder


def deliver(share: Share, connection: Connection) -> None:
    """Wait until the parent has compared the clocks once more, send what it does not have, and part."""
    while connection.read() != "bye\n":
        pass
    if connection.folder is not None:
        for kind, path in (("samples", share.segment), ("chunks", share.chunks)):
            if path.exists():
                connection.send(kind, path)
    connection.write(f"report {share.report.read_text(encoding='utf-8')}\n")
    connection.part()
