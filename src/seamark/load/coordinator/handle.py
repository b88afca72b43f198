"""Handle of one worker: a stream with lines both ways (workers/channel.py), clock comparison, files, how it ended.

A launcher starts the worker's process and connects its stream to the handle; the rest is the same for all.
"""

import contextlib
import json
import select
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from seamark.dispatch.identity import boot_id
from seamark.load.engine.saturation import Progress
from seamark.load.engine.schedule_share import due_requests_of_lost
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.model.results.load_record import WorkerReport
from seamark.storage.codec import parse

EXCHANGES = 20
CLOCK_S = 5.0
"""Time limit of a clock comparison."""
SEND_S = 10.0
END_KNOWN_S = 1.0
"""Time within which both ends are noticed, that of the process and that of its stream, after the first of them."""
READ_BYTES = 1 << 18


class LoadError(Exception):
    """The load could not begin: a worker failed or was not ready before the clock started. `load` is its name, which
    the reason has too, where several loads were to begin. `category` is that of its driver, if that has one."""

    def __init__(
        self, reason: str, log_tail: Sequence[str] = (), load: str | None = None, category: str | None = None
    ) -> None:
        self.reason = reason if load is None else f"{load}: {reason}"
        super().__init__(self.reason)
        self.log_tail = tuple(log_tail)
        self.load = load
        self.category = category


Exchange = tuple[int, int, int]
"""One ping, in ns: local clock at sending, remote clock at the answer, local clock at receiving."""


@dataclass(frozen=True, kw_only=True)
class Offset:
    """Remote clock less the local one, and the bound of its error."""

    offset_ns: int
    error_ns: int


SAME_CLOCK = Offset(offset_ns=0, error_ns=0)


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """Return the offset by the exchange with the shortest round trip (RFC 5905): the answer lies somewhere within it,
    so its middle is wrong by half of it at most. Raises ValueError without an exchange."""
    sent_ns, remote_ns, received_ns = min(exchanges, key=lambda exchange: exchange[2] - exchange[0])
    middle_ns = (sent_ns + received_ns) // 2
    return Offset(offset_ns=remote_ns - middle_ns, error_ns=-((sent_ns - received_ns) // 2))


class WorkerProcess(Protocol):
    """Process of a worker, as its launcher knows it."""

    def end_reason(self) -> str | None:
        """Return how it ended, such as 'was killed by SIGKILL', or why it never connects; None while it may run."""

    def stderr_tail(self) -> list[str]:
        """Return the last lines of its stderr, as far as they are known here."""

    def kill(self) -> None:
        """Kill it, where that is possible from here. It also ends when its stream closes."""

    def wait(self) -> None:
        """Wait for its end, where that is possible from here."""


class WorkerHandle:
    """One worker of a load, as seen by the coordinator.

    `ready` is the content of its `ready` line, `failed` a reason to give it up, with the `category` that its driver
    knows of it, `progress` the latest of its load, if that was requested. `is_repeating`: it sends the items of a
    work list again. `has_loaded`: its requests have ended. `has_finished`: everything it sends has been received.
    """

    def __init__(
        self, assignment: WorkerAssignment, process: WorkerProcess, selector: selectors.BaseSelector, *, carrier: str
    ) -> None:
        self.assignment = assignment
        self.process = process
        self.ready: dict[str, Any] | None = None
        self.failed: str | None = None
        self.category: str | None = None
        self.progress: Progress | None = None
        self.is_repeating = self.has_loaded = self.has_finished = False
        self._carrier = carrier
        self._selector = selector
        self._about: Mapping[str, Any] = {}
        self._stream: socket.socket | None = None
        self._over_s: float | None = None
        self._was_killed = False
        self._tail: list[str] = []
        self._has_folder = False
        self._pending = b""
        self._file: BinaryIO | None = None
        self._left_bytes = 0
        self._report: WorkerReport | None = None
        self._pong: tuple[int, int] | None = None
        self._received_ns = 0
        self._before: Offset | None = None
        self._after: Offset | None = None

    @property
    def is_expected(self) -> bool:
        """Whether it has not connected yet."""
        return not self._about and not self._was_killed

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, with visible process ids."""
        return self._about.get("machine") == boot_id()

    @property
    def has_failed(self) -> bool:
        """Whether its load has ended by a fault of its own."""
        return self.has_loaded and self._report is not None and not self._report.ok

    @property
    def host(self) -> str | None:
        return self._about.get("host")

    @property
    def pid(self) -> int | None:
        """Process id on this machine; None if it runs elsewhere."""
        return self._about.get("pid") if self.is_local else None

    def connect(
        self,
        stream: socket.socket,
        about: Mapping[str, Any],
        *,
        received: bytes = b"",
        probe: Mapping[str, str] | None = None,
        clock: Offset | None = None,
    ) -> None:
        """Take its stream and send its assignment. `about` has its host, pid and machine, `received` the first bytes
        from it.

        `probe` is a file with its content: a worker that reads the same content there shares the folder. `clock` is
        its clock's offset; None: to be measured. A worker of this process needs neither probe nor comparison.
        """
        self._stream, self._about = stream, about
        self._before = self._after = clock
        stream.settimeout(SEND_S)
        self._selector.register(stream, selectors.EVENT_READ, self.on_readable)
        self.send("assignment " + json.dumps({"assignment": self.assignment.to_json(), "probe": probe}))
        self._feed(received)

    def on_readable(self) -> None:
        """Read available data; hang up at the end of the stream."""
        if self._stream is None:
            return
        try:
            data = self._stream.recv(READ_BYTES)
        except OSError:
            data = b""
        self._received_ns = time.monotonic_ns()
        if data:
            self._feed(data)
        else:
            self._hang_up()

    def alive(self) -> bool:
        """Whether it may still work or send."""
        if self.has_finished or self._was_killed:
            return False
        end_reason = self.process.end_reason()
        if not self._about:
            self.failed = self.failed or end_reason
            return self.failed is None
        if self._stream is not None and end_reason is None:
            return True
        self._over_s = self._over_s or time.monotonic()
        is_certain = self._stream is None and end_reason is not None
        return not is_certain and time.monotonic() < self._over_s + END_KNOWN_S

    def measure_clock_offset(self) -> None:
        """Compare its clock with this one by EXCHANGES pings, before the load and after it. It fails if it does not
        answer before the load."""
        if self._before is SAME_CLOCK:
            return
        exchanges: list[Exchange] = []
        limit_s = time.monotonic() + CLOCK_S
        for number in range(EXCHANGES):
            self._pong = None
            sent_ns = time.monotonic_ns()
            self.send(f"ping {number}")
            while self._stream is not None and (self._pong is None or self._pong[0] != number):
                wait_s = limit_s - time.monotonic()
                if wait_s <= 0 or not _readable(self._stream, wait_s):
                    break
                self.on_readable()
            if self._pong is None or self._pong[0] != number:
                break
            exchanges.append((sent_ns, self._pong[1], self._received_ns))
        offset = offset_of(exchanges) if exchanges else None
        if self._before is not None:
            self._after = offset
            return
        self._before = offset
        if offset is None and self.failed is None:
            self.failed = f"its clock on {self.host} could not be compared with the coordinator's: no answer"

    def start_load(self, epoch_ns: int) -> None:
        """Set the epoch, given in ns of this machine's monotonic clock and sent in ns of the worker's."""
        assert self._before is not None
        self.send(f"go {epoch_ns + self._before.offset_ns}")

    def send(self, line: str) -> None:
        """Send a line. A dead worker is ignored here; `alive` detects it."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.sendall(line.encode() + b"\n")

    def kill(self) -> None:
        """Kill it, and close its stream."""
        self._was_killed = True
        self.process.kill()
        self._hang_up()

    def close(self) -> None:
        """Kill it unless it has finished, and release its resources."""
        if self.has_finished:
            self.process.wait()
        else:
            self.kill()

    def stderr_tail(self) -> list[str]:
        """Return the last lines of its stderr."""
        return self._tail or self.process.stderr_tail()

    def end_reason(self) -> str:
        """Return how it ended."""
        how = self.process.end_reason()
        if how is None:
            how = f"on {self.host}: its connection was closed" if self._about else "was not waited for"
        return f"worker {self.assignment.worker} {how}"

    def report(self, at_ns: int) -> WorkerReport:
        """Return its WorkerReport, or that of a lost worker. The part of a lost one in an open schedule was due
        nevertheless, as far as it lies before `at_ns` since the epoch."""
        report = self._report if self.has_finished or not self._has_folder else None
        if report is None:
            report = WorkerReport(
                worker=self.assignment.worker,
                pid=self._about.get("pid"),
                ok=False,
                reason=self.failed or self.end_reason(),
                scheduled=due_requests_of_lost(self.assignment, at_ns),
            )
        before, after = self._before, self._after
        return replace(
            report,
            carrier=self._carrier,
            host=self.host,
            shared=not self._has_folder,
            offset_ns=before.offset_ns if before else None,
            offset_error_ns=before.error_ns if before else None,
            offset_drift_ns=after.offset_ns - before.offset_ns if before and after else None,
        )

    def _feed(self, data: bytes) -> None:
        """Parse received bytes: lines, and after a line `file` that many bytes of the file."""
        data, self._pending = self._pending + data, b""
        while data and self._stream is not None:
            if self._file is not None:
                self._file.write(data[: self._left_bytes])
                data, self._left_bytes = data[self._left_bytes :], max(0, self._left_bytes - len(data))
                if not self._left_bytes:
                    self._file.close()
                    self._file = None
                continue
            line, ended, rest = data.partition(b"\n")
            if not ended:
                self._pending = data
                return
            self._handle(line.decode(errors="replace"))
            data = rest

    def _handle(self, line: str) -> None:
        """Process one line; unknown words are ignored."""
        word, _, rest = line.partition(" ")
        match word:
            case "ready":
                self.ready = json.loads(rest)
            case "failed":
                self.failed = rest
            case "category":
                self.category = rest
            case "again":
                self.is_repeating = True
            case "loaded":
                self.has_loaded = True
            case "progress":
                at_ns, due, completed = map(int, rest.split())
                self.progress = (at_ns, due, completed)
            case "pong":
                number, remote_ns = map(int, rest.split())
                self._pong = (number, remote_ns)
            case "apart":
                self._has_folder = True
            case "file":
                kind, size = rest.split()
                self._left_bytes = int(size)
                self._file = self.assignment.path(kind).open("wb")
            case "tail":
                self._tail = json.loads(rest)
            case "report":
                with contextlib.suppress(ValueError):  # without one, the worker counts as lost
                    self._report = parse(rest, WorkerReport)
            case "done":
                self.has_finished = True
                self._hang_up()

    def _hang_up(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._selector.unregister(stream)
            stream.close()
        if self._file is not None:
            self._file.close()
            self._file = None


def _readable(stream: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


class WorkerLauncher(Protocol):
    """Starts the workers of a load."""

    name: str
    head_start_s: float
    """Delay of the common epoch: longer than it takes to reach every worker."""

    def count(self, job: LoadJob) -> int:
        """Return the number of workers of the load."""

    def start(
        self,
        assignments: Sequence[WorkerAssignment],
        python: Path,
        selector: selectors.BaseSelector,
        on_wait: Callable[[], object],
    ) -> Sequence[WorkerHandle]:
        """Start one worker per assignment, in order, with the interpreter `python` or an equivalent one elsewhere.

        The files to read are registered with `selector`, with the function to call as data. `on_wait` is called while
        this waits; what it raises ends the wait. Raises LoadError.
        """

    def close(self) -> None:
        """End what is left, after every worker is closed."""
