"""Worker's end of the stream to its coordinator: lines both ways, files to the coordinator.

The stream is a socket pair on one machine, a TCP connection between two; the protocol is the same. The coordinator
sends `assignment`, `ping`, `go EPOCH_NS`, `stop`, `enough` where the items of a work list need not be sent again,
then `judge` to worker 0 and `bye` to all when no worker has a request in flight. A worker sends `apart` if it cannot
write into the coordinator's folder, `ready` or `failed`, the latter after `category` where its driver names one,
`pong`, `progress`, `again` when it begins to send its items again, `report` and `loaded` at the end of its load,
`report` again with the quality of the replies, `file` with what the coordinator lacks, `tail` of its stderr, and
`done`.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from seamark.load.workers.hooks import TAIL_LINES

LAUNCH_SPEC = "SEAMARK_CARRIED"
"""Environment variable with a launch spec: unlike arguments, it hides the token from process lists."""
PROGRESS_INTERVAL_NS = 90_000_000
FINISH_S = 30.0
TAIL_BYTES = 1 << 14


class Channel:
    """A thread reads the stream: it answers pings at once, whatever the worker waits for, turns `stop` into SIGTERM,
    and ends this process when the coordinator is gone."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._sending = threading.Lock()
        self._gone = threading.Event()
        self._is_finishing = False
        self._next_progress_ns = 0
        self.folder: Path | None = None
        """Folder of this worker's files where the coordinator's cannot be written; removed at the end."""
        self.on_enough: Callable[[], object] = lambda: None
        """Called in the reading thread when the items need not be sent again."""
        threading.Thread(target=self._receive, daemon=True).start()

    def read(self) -> str:
        """Return the coordinator's next line, without its end."""
        return self._lines.get()

    def send(self, word: str, rest: str = "") -> None:
        """Send a line."""
        line = f"{word} {rest}".strip().replace("\n", " | ")
        with self._sending:
            self._stream.sendall(f"{line}\n".encode())

    def report_progress(self, at_ns: int, due: int, completed: int) -> None:
        """Send the progress of the load, at most every PROGRESS_INTERVAL_NS."""
        if at_ns >= self._next_progress_ns:
            self._next_progress_ns = at_ns + PROGRESS_INTERVAL_NS
            self.send("progress", f"{at_ns} {due} {completed}")

    def send_stderr_tail(self) -> None:
        """Send the last lines that this process wrote to stderr, which is a file."""
        sys.stderr.flush()
        size = os.fstat(2).st_size
        tail = os.pread(2, TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").splitlines()[-TAIL_LINES:]
        if tail:
            self.send("tail", json.dumps(tail))

    def send_file(self, kind: str, path: Path) -> None:
        """Send a file."""
        with path.open("rb") as file, self._sending:
            self._stream.sendall(f"file {kind} {os.fstat(file.fileno()).st_size}\n".encode())
            self._stream.sendfile(file)

    def finish(self) -> None:
        """Announce the end and wait until the coordinator has read everything."""
        self._is_finishing = True
        self.send_stderr_tail()
        self.send("done")
        self._gone.wait(FINISH_S)

    def remove_folder(self) -> None:
        """Remove the worker's own folder, if any."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _receive(self) -> None:
        with contextlib.suppress(OSError), self._stream.makefile("r", newline="\n") as received:
            for line in received:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == "ping":
                    self.send("pong", f"{rest} {time.monotonic_ns()}")
                elif word == "stop":
                    os.kill(os.getpid(), signal.SIGTERM)
                elif word == "enough":
                    self.on_enough()
                else:
                    self._lines.put(line.rstrip("\n"))
        self._gone.set()
        if not self._is_finishing:
            self.remove_folder()
            os._exit(1)
