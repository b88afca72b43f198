"""Handle of a worker on another machine: one connection with lines both ways and files to the coordinator."""

import contextlib
import json
import select
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from seamark.dispatch.identity import boot_id
from seamark.load.coordinator.launchers.launcher import WorkerState
from seamark.load.coordinator.launchers.local import lost_report
from seamark.load.workers.assignment import WorkerAssignment
from seamark.model.results.load_record import WorkerReport
from seamark.storage.codec import parse


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One ping: local clock at sending and receiving, remote clock at the answer. In ns."""

    sent_ns: int
    remote_ns: int
    received_ns: int

    @property
    def round_trip_ns(self) -> int:
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, kw_only=True)
class Offset:
    """Remote clock less the local one, and the bound of its error."""

    offset_ns: int
    error_ns: int


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """Return the offset by the exchange with the shortest round trip (RFC 5905): the answer lies somewhere within it,
    so its middle is wrong by half of it at most. Raises ValueError without an exchange."""
    best = min(exchanges, key=lambda exchange: exchange.round_trip_ns)
    middle_ns = (best.sent_ns + best.received_ns) // 2
    return Offset(offset_ns=best.remote_ns - middle_ns, error_ns=-(-best.round_trip_ns // 2))


EXCHANGES = 20
CLOCK_S = 5.0
"""Time limit of a clock comparison."""
SEND_S = 10.0
WORD_S = 1.0
READ_BYTES = 1 << 18


class RemoteWorker(WorkerState):
    """A worker that connects to the rendezvous listener. `absence_reason` returns why it will not, None while it may;
    `ended` is how its process ended, if its launcher reported that."""

    def __init__(
        self,
        assignment: WorkerAssignment,
        carrier: str,
        selector: selectors.BaseSelector,
        absence_reason: Callable[[int], str | None],
    ) -> None:
        super().__init__()
        self.assignment = assignment
        self.ended: Mapping[str, Any] | None = None
        self._carrier = carrier
        self._selector = selector
        self._absence_reason = absence_reason
        self._connection: socket.socket | None = None
        self._about: Mapping[str, Any] = {}
        self._is_closed = self._has_finished = False
        self._lost_s: float | None = None
        self._tail: list[str] = []
        self._shared = True
        self._pending = b""
        self._file: BinaryIO | None = None
        self._left_bytes = 0
        self._written: WorkerReport | None = None
        self._pong: tuple[int, int] | None = None
        self._received_ns = 0
        self._before: Offset | None = None
        self._after: Offset | None = None

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine after all, with visible process ids."""
        return self._about.get("machine") == boot_id()

    @property
    def host(self) -> str | None:
        return self._about.get("host")

    @property
    def has_finished(self) -> bool:
        """Whether everything it sends has been received."""
        return self._has_finished

    @property
    def is_expected(self) -> bool:
        """Whether it has not connected yet."""
        return self._connection is None and not self._is_closed

    @property
    def pid(self) -> int | None:
        return self._about.get("pid") if self.is_local else None

    def admit(
        self, connection: socket.socket, about: Mapping[str, Any], rest: bytes, probe: Mapping[str, str]
    ) -> None:
        """Take its connection and send its assignment. `probe` is a file with its content: a worker that reads the
        same content there shares the folder."""
        self._connection, self._about = connection, about
        connection.settimeout(SEND_S)
        self._selector.register(connection, selectors.EVENT_READ, self)
        self.send("assignment " + json.dumps({"assignment": self.assignment.to_json(), "probe": dict(probe)}))
        self._feed(rest)

    def on_readable(self) -> bool:
        if self._connection is None:
            return True
        try:
            data = self._connection.recv(READ_BYTES)
        except OSError:
            data = b""
        self._received_ns = time.monotonic_ns()
        if data:
            self._feed(data)
        else:
            self._lost_s = time.monotonic()
            self._hang_up()
        return True

    def alive(self) -> bool:
        if self.is_expected:
            self.failed = self.failed or self._absence_reason(self.assignment.worker)
            return self.failed is None
        if self._lost_s is not None and self.ended is None:  # the launcher may report the cause a moment later
            return time.monotonic() < self._lost_s + WORD_S
        return not self._is_closed

    def measure_clock_offset(self) -> None:
        """Compare its clock with this one by EXCHANGES pings. It fails if it does not answer before the load."""
        exchanges: list[Exchange] = []
        limit_s = time.monotonic() + CLOCK_S
        for number in range(EXCHANGES):
            if self._connection is None:
                break
            self._pong = None
            sent_ns = time.monotonic_ns()
            self.send(f"ping {number}")
            while self._connection is not None and (self._pong is None or self._pong[0] != number):
                wait_s = limit_s - time.monotonic()
                if wait_s <= 0 or not _readable(self._connection, wait_s):
                    break
                self.on_readable()
            if self._pong is None or self._pong[0] != number:
                break
            exchanges.append(Exchange(sent_ns=sent_ns, remote_ns=self._pong[1], received_ns=self._received_ns))
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
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(line.encode() + b"\n")

    def terminate(self) -> None:
        self.send("stop")

    def kill(self) -> None:
        """Close the connection: the worker then ends itself."""
        self._hang_up()

    def close(self) -> None:
        self._hang_up()

    def stderr_tail(self) -> list[str]:
        return self._tail or list((self.ended or {}).get("tail") or ())

    def end_reason(self) -> str:
        name = f"worker {self.assignment.worker}"
        if self.ended is not None:
            return f"{name} on {self.ended.get('host')} {self.ended.get('how')}"
        if self._connection is None and not self._about:
            return f"{name} did not come ({self._absence_reason(self.assignment.worker) or 'it was not waited for'})"
        return f"{name} on {self.host}: its connection was closed"

    def report(self, at_ns: int) -> WorkerReport:
        written = self._written if self._has_finished else None
        if written is None:
            written = lost_report(self.assignment, self._about.get("pid"), self.failed or self.end_reason(), at_ns)
        before, after = self._before, self._after
        return replace(
            written,
            carrier=self._carrier,
            host=self.host,
            shared=self._shared,
            offset_ns=before.offset_ns if before else None,
            offset_error_ns=before.error_ns if before else None,
            offset_drift_ns=after.offset_ns - before.offset_ns if before and after else None,
        )

    def handle(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "pong":
            number, remote_ns = map(int, rest.split())
            self._pong = (number, remote_ns)
        elif word == "apart":
            self._shared = False
        elif word == "file":
            kind, size = rest.split()
            self._left_bytes = int(size)
            self._file = self._path(kind).open("wb")
        elif word == "tail":
            self._tail = json.loads(rest)
        elif word == "report":
            with contextlib.suppress(ValueError):  # without one, the worker counts as lost
                self._written = parse(rest, WorkerReport)
        elif word == "done":
            self._has_finished = True
            self._hang_up()
        else:
            super().handle(line)

    def _path(self, kind: str) -> Path:
        return {"samples": self.assignment.segment, "chunks": self.assignment.chunks}[kind]

    def _feed(self, data: bytes) -> None:
        """Parse received bytes: lines, and after a line `file` that many bytes of the file."""
        data, self._pending = self._pending + data, b""
        while data and not self._is_closed:
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
            self.handle(line.decode(errors="replace"))
            data = rest

    def _hang_up(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(connection)
            connection.close()
        if self._file is not None:
            self._file.close()
            self._file = None


def _readable(connection: socket.socket, timeout_s: float) -> bool:
    look = select.poll()
    look.register(connection, select.POLLIN)
    return bool(look.poll(timeout_s * 1000))
