"""A worker that runs elsewhere as its parent sees it, over one connection: lines both ways, files towards us."""

import contextlib
import json
import select
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from seamark.dispatch.identity import boot_id
from seamark.load.coordinator.clock_offset import Exchange, Offset, offset_of
from seamark.load.coordinator.launchers.launcher import Place
from seamark.load.coordinator.launchers.worker_state import Said
from seamark.load.coordinator.local_worker import lost_report
from seamark.load.workers.assignment import Share

EXCHANGES = 20
CLOCK_S = 5.0
"""How long the comparison of two clocks may take."""
SEND_S = 10.0
WORD_S = 1.0
READ_BYTES = 1 << 18


class Distant(Said):
    """One worker that comes in by a gate. `never` says why it will not come, None while it may; `ended` how its
    process ended, when somebody there saw it."""

    def __init__(
        self, share: Share, carrier: str, selector: selectors.BaseSelector, never: Callable[[int], str | None]
    ) -> None:
        super().__init__()
        self.share = share
        self.ended: Mapping[str, Any] | None = None
        self._carrier = carrier
        self._selector = selector
        self._never = never
        self._connection: socket.socket | None = None
        self._about: Mapping[str, Any] = {}
        self._over = self._done = False
        self._lost_s: float | None = None
        self._tail: list[str] = []
        self._shared = True
        self._pending = b""
        self._file: BinaryIO | None = None
        self._left_bytes = 0
        self._written: dict[str, Any] | None = None
        self._pong: tuple[int, int] | None = None
        self._heard_ns = 0
        self._before: Offset | None = None
        self._after: Offset | None = None

    @property
    def here(self) -> bool:
        """Whether it runs on this machine after all, among the processes that we see."""
        return self._about.get("machine") == boot_id()

    @property
    def host(self) -> str | None:
        """The name of the machine it runs on."""
        return self._about.get("host")

    @property
    def delivered(self) -> bool:
        """Whether all that it has to say was heard."""
        return self._done

    @property
    def expected(self) -> bool:
        """Whether it has not come in yet."""
        return self._connection is None and not self._over

    @property
    def pid(self) -> int | None:
        """Its id among the processes of this machine; None when it runs elsewhere."""
        return self._about.get("pid") if self.here else None

    def admit(
        self, connection: socket.socket, about: Mapping[str, Any], rest: bytes, probe: Mapping[str, str]
    ) -> None:
        """Take in its connection and tell it its share. `probe` is a file of ours and what stands in it: who reads
        the same there can write into our folder."""
        self._connection, self._about = connection, about
        connection.settimeout(SEND_S)
        self._selector.register(connection, selectors.EVENT_READ, self)
        self.tell("share " + json.dumps({"share": self.share.to_json(), "probe": dict(probe)}))
        self._feed(rest)

    def hear(self) -> bool:
        """Read what it says."""
        if self._connection is None:
            return True
        try:
            data = self._connection.recv(READ_BYTES)
        except OSError:
            data = b""
        self._heard_ns = time.monotonic_ns()
        if data:
            self._feed(data)
        else:
            self._lost_s = time.monotonic()
            self._hang_up()
        return True

    def alive(self) -> bool:
        """Whether it may still come, or has not hung up."""
        if self.expected:
            self.failed = self.failed or self._never(self.share.worker)
            return self.failed is None
        if self._lost_s is not None and self.ended is None:  # who saw it end may say how, a moment later
            return time.monotonic() < self._lost_s + WORD_S
        return not self._over

    def look_at_clock(self) -> None:
        """Compare its clock with ours: EXCHANGES questions, one at a time. It fails when it does not answer before
        the load."""
        found: list[Exchange] = []
        limit_s = time.monotonic() + CLOCK_S
        for number in range(EXCHANGES):
            if self._connection is None:
                break
            self._pong = None
            asked_ns = time.monotonic_ns()
            self.tell(f"ping {number}")
            while self._connection is not None and (self._pong is None or self._pong[0] != number):
                wait_s = limit_s - time.monotonic()
                if wait_s <= 0 or not _readable(self._connection, wait_s):
                    break
                self.hear()
            if self._pong is None or self._pong[0] != number:
                break
            found.append(Exchange(asked_ns=asked_ns, there_ns=self._pong[1], answered_ns=self._heard_ns))
        offset = offset_of(found) if found else None
        if self._before is not None:
            self._after = offset
            return
        self._before = offset
        if offset is None and self.failed is None:
            self.failed = f"its clock on {self.host} could not be compared with ours: it did not answer"

    def go(self, epoch_ns: int) -> None:
        """Name the start of load, in ns of our monotonic clock; it is told in ns of its own."""
        assert self._before is not None
        self.tell(f"go {epoch_ns + self._before.offset_ns}")

    def tell(self, line: str) -> None:
        """Send it a line."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(line.encode() + b"\n")

    def terminate(self) -> None:
        """Ask it to end its load now and to report."""
        self.tell("stop")

    def kill(self) -> None:
        """Hang up: it ends itself then."""
        self._hang_up()

    def close(self) -> None:
        """Hang up, if that has not happened."""
        self._hang_up()

    def tail(self) -> list[str]:
        """Return its last lines on stderr, where somebody there kept them."""
        return self._tail or list((self.ended or {}).get("tail") or ())

    def death(self) -> str:
        """Say how it ended."""
        name = f"worker {self.share.worker}"
        if self.ended is not None:
            return f"{name} on {self.ended.get('host')} {self.ended.get('how')}"
        if self._connection is None and not self._about:
            return f"{name} did not come ({self._never(self.share.worker) or 'it was not waited for'})"
        return f"{name} on {self.host}: its connection was closed"

    def report(self, at_ns: int) -> dict[str, Any]:
        """Return the report that it sent, or one that says how it died and what was due by `at_ns`."""
        written = self._written if self._done else None
        if written is None:
            written = lost_report(self.share, self._about.get("pid"), self.failed or self.death(), at_ns)
        before, after = self._before, self._after
        place = Place(
            carrier=self._carrier,
            host=self.host,
            shared=self._shared,
            offset_ns=before.offset_ns if before else None,
            offset_error_ns=before.error_ns if before else None,
            offset_drift_ns=after.offset_ns - before.offset_ns if before and after else None,
        )
        return written | asdict(place)

    def take(self, line: str) -> None:
        """Take in one line."""
        word, _, rest = line.partition(" ")
        if word == "pong":
            number, there_ns = map(int, rest.split())
            self._pong = (number, there_ns)
        elif word == "apart":
            self._shared = False
        elif word == "file":
            kind, size = rest.split()
            self._left_bytes = int(size)
            self._file = self._path(kind).open("wb")
        elif word == "tail":
            self._tail = json.loads(rest)
        elif word == "report":
            self._written = json.loads(rest)
        elif word == "done":
            self._done = True
            self._hang_up()
        else:
            super().take(line)

    def _path(self, kind: str) -> Path:
        return {"samples": self.share.segment, "chunks": self.share.chunks}[kind]

    def _feed(self, data: bytes) -> None:
        """Take apart what came: lines, and after a line `file` so many bytes of that file."""
        data, self._pending = self._pending + data, b""
        while data and not self._over:
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
            self.take(line.decode(errors="replace"))
            data = rest

    def _hang_up(self) -> None:
        self._over = True
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
