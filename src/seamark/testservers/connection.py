"""Connection of one client: reads requests in sequence and answers each by its script, write by write."""

import asyncio
import os
import socket
import struct
from time import monotonic_ns
from typing import cast

from seamark.testservers import wire
from seamark.testservers.answers import NOWHERE, Script
from seamark.testservers.journal import Outcome
from seamark.testservers.request import (
    MAX_HEAD_BYTES,
    PAGES,
    AnswerParameters,
    Head,
    InvalidRequestError,
    read_ask,
    read_head,
)
from seamark.testservers.server import ReferenceServer

NO_LINGER = struct.pack("ii", 1, 0)
SILENT = -1
"""Used as a request number: nothing more is answered on this connection."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ReferenceConnection(asyncio.Protocol):
    """Answers in the order of requests; one that arrives before the last answer is complete is read after it.

    Writes go to the socket by the system call at once: a transport may hold them until the next loop iteration.
    """

    __slots__ = (
        "_answer_ns",
        "_at",
        "_base_ns",
        "_behind",
        "_due_ns",
        "_fd",
        "_first_ns",
        "_head",
        "_last_ns",
        "_needed",
        "_number",
        "_pending",
        "_read_ns",
        "_script",
        "_server",
        "_transport",
    )

    def __init__(self, server: ReferenceServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._behind = False
        self._pending = bytearray()
        self._needed = 0
        self._number = 0
        self._at = 0
        self._head: Head
        self._script: Script

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._fd = transport.get_extra_info("socket").fileno()
        self._server.connections[self] = None

    def connection_lost(self, error: Exception | None) -> None:
        """Unregister the connection and record the request in progress as lost."""
        self._transport = None
        self._fd = -1
        self._server.connections.pop(self, None)
        if self._number > 0:
            self._end("lost")

    def data_received(self, data: bytes) -> None:
        """Take the timestamp, then check whether a request is complete."""
        now_ns = monotonic_ns()
        if self._number == SILENT:
            return
        if self._number or self._pending:
            self._pending += data
            if not self._number:
                self._read(now_ns)
            return
        parsed = self._server.seen.get(data)
        if parsed is None:
            self._pending += data
            self._read(now_ns)
        else:
            self._begin(*parsed, now_ns)

    def cut(self) -> None:
        """Record the request in progress as unfinished; the server ends."""
        if self._number > 0:
            self._end("unfinished")

    def advance(self, number: int, due_ns: int, now_ns: int) -> int:
        """Write the due step of request `number`; return when the next one is due, 0 after the last."""
        if number != self._number:
            return 0
        script, at, server = self._script, self._at, self._server
        data = script.steps[at]
        if data:
            self._write(data)
        if at >= script.early:
            server.lateness.add(now_ns - due_ns)
        if at == script.first:
            self._first_ns = now_ns
        if at == script.answer:
            self._answer_ns = now_ns
        if at == script.last:
            self._last_ns = now_ns
        at += 1
        self._at = at
        if at == len(script.steps):
            self._end(script.outcome)
            return 0
        return self._step_due_ns()

    def _end(self, outcome: Outcome) -> None:
        """Record the finished request and continue with the next."""
        server, script, at, number = self._server, self._script, self._at, self._number
        chunks, tokens = (script.chunks_after[at - 1], script.tokens_after[at - 1]) if at else (0, 0)
        server.end(outcome, chunks, tokens)
        if server.journal is not None:
            server.journal.add(
                name=self._head.name,
                number=number,
                read_ns=self._read_ns,
                due_ns=self._due_ns,
                first_ns=self._first_ns,
                answer_ns=self._answer_ns,
                last_ns=self._last_ns,
                chunks=chunks,
                tokens=tokens,
                outcome=outcome,
            )
        if outcome == "silent":
            self._number = SILENT
            return
        self._number = 0
        if outcome == "reset":
            self._reset()
        else:
            self._go_on(closes=script.closes)

    def _read(self, now_ns: int) -> None:
        """Start the first pending request if it is complete."""
        pending, server = self._pending, self._server
        if len(pending) < self._needed:
            return
        end = pending.find(b"\r\n\r\n")
        try:
            if end < 0:
                if len(pending) > MAX_HEAD_BYTES:
                    raise InvalidRequestError(431, f"a head of more than {MAX_HEAD_BYTES} bytes")
                return
            head = read_head(bytes(pending[:end]), server.endpoint_of)
            if not self._needed and head.waits:
                self._write(CONTINUE)
            self._needed = end + 4 + head.length
            if len(pending) < self._needed:
                return
        except InvalidRequestError as refused:
            pending.clear()  # the start of the next request is unknown
            self._write(wire.refusal(refused.status, refused.message, closes=True))
            if self._transport is not None:
                self._transport.close()
            return
        data = bytes(pending[: self._needed])
        del pending[: self._needed]
        self._needed = 0
        self._head = head
        try:
            ask = read_ask(head.endpoint, data[end + 4 :], blocks=server.cache is not None)
        except InvalidRequestError as refused:
            self._write(wire.refusal(refused.status, refused.message))
            self._go_on()
            return
        server.remember(data, head, ask)
        self._begin(head, ask, now_ns)

    def _read_on(self) -> None:
        if self._pending and not self._number and self._transport is not None:
            self._read(monotonic_ns())

    def _begin(self, head: Head, ask: AnswerParameters, read_ns: int) -> None:
        server = self._server
        self._head = head
        if head.endpoint in PAGES:
            self._write(server.page(head.endpoint))
            self._go_on()
            return
        number, script, base_ns = server.begin(ask, read_ns)
        self._number, self._script, self._read_ns, self._base_ns = number, script, read_ns, base_ns
        self._at = self._first_ns = self._answer_ns = self._last_ns = self._due_ns = 0
        if not script.steps:
            self._end(script.outcome)
            return
        waited_ns = 0 if script.first == NOWHERE else script.offsets_ns[script.first]
        self._due_ns = server.not_before_ns(base_ns + waited_ns)
        due_ns = self._step_due_ns()
        if due_ns <= read_ns:
            due_ns = self.advance(number, due_ns, monotonic_ns())
        if due_ns:
            server.deadlines.add(due_ns, number, self.advance)

    def _step_due_ns(self) -> int:
        """Return when the next write is due."""
        script, at = self._script, self._at
        if at < script.early:
            due_ns = self._read_ns + script.offsets_ns[at]
        else:
            due_ns = max(self._base_ns + script.offsets_ns[at], self._read_ns)
        return self._server.not_before_ns(due_ns)

    def _go_on(self, *, closes: bool = False) -> None:
        """After an answer: close the connection, or read the next request."""
        if self._transport is None:
            return
        if closes or self._head.closes:
            self._transport.close()
        elif self._pending:
            asyncio.get_running_loop().call_soon(self._read_on)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._behind:
            if transport.get_write_buffer_size():
                transport.write(data)
                return
            self._behind = False
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            transport.abort()
            return
        if written < len(data):
            self._behind = True
            self._server.blocked += 1
            transport.write(data[written:])

    def _reset(self) -> None:
        if self._transport is not None:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self._transport.abort()
