"""One TCP connection of the event-loop generator: one request at a time, timestamped where its bytes leave and
arrive."""

import asyncio
import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, NamedTuple, Protocol, cast

from seamark.load.driver import Decoder, EndedByClose, StreamDecoder
from seamark.model.sample import MISSING_NS, Failure


class Outgoing(NamedTuple):
    """One encoded request: its pieces, or the whole where the owner's `in_pieces` says so; its size, kind, and the
    units that its reply has to have, 0 if any."""

    data: Any
    size_bytes: int
    kind: int
    asked_units: int = 0


class Conversing(ABC):
    """A decoder that has to know the request, or whose operation takes several requests on one connection."""

    __slots__ = ()

    @abstractmethod
    def expect(self, request: bytes | tuple[bytes, ...]) -> None:
        """Take the request, as encoded, whose reply comes next; called after `reset`."""

    @abstractmethod
    def further(self) -> tuple[bytes | memoryview, ...] | None:
        """Return the next request of the same operation after a complete, good reply; None: it is done."""


class ConnectionOwner(Protocol):
    """Owner of connections (the generator): supplies requests and takes results."""

    in_pieces: bool
    keeps_replies: bool
    """Whether a connection keeps the bytes of its reply in `pieces`, which the owner clears."""
    due_ns: int
    """Next due time: a connection that reads later than this calls `on_overdue`."""
    check_ns: int
    """Time from which time-outs are overdue for a check: a connection that reads later calls `check_timeouts`."""
    held_open_ns: int
    """Total time that streams stayed open after their last content."""

    def chunk(self, index: int, at_ns: int, events: int) -> None: ...

    def connect(self, connection: "Connection") -> None: ...

    def on_overdue(self) -> None: ...

    def check_timeouts(self, now_ns: int) -> None: ...

    def ended(self, connection: "Connection", now_ns: int, units: int, status: int, failure: Failure) -> None: ...


class Connection(asyncio.Protocol):
    """Sends a request, feeds the reply to the decoder, hands the result to its owner.

    A broken connection is not reused: the generator takes a new one, which connects with its next request and counts
    that time. Requests are written by the system call at once, because a transport may hold them until the next loop
    iteration, long after their timestamp; only what the socket does not accept goes through the transport.
    """

    __slots__ = (
        "_answered",
        "_content_ns",
        "_conversing",
        "_decoder",
        "_events",
        "_fd",
        "_owner",
        "_stream",
        "_transport",
        "_write",
        "answer_ns",
        "busy",
        "closed",
        "connected",
        "due_ns",
        "first_ns",
        "index",
        "pieces",
        "received_bytes",
        "request",
        "sent_ns",
    )

    def __init__(self, owner: ConnectionOwner, decoder: Decoder) -> None:
        self._owner = owner
        self._decoder = decoder
        self._stream = cast(StreamDecoder, decoder) if decoder.streams else None
        self._conversing = decoder if isinstance(decoder, Conversing) else None
        self._events = 0
        self._content_ns = 0
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._write: Callable[[int, Any], int] = os.writev if owner.in_pieces else os.write
        self.busy = False
        self.closed = False
        self.connected = False
        self.index = 0
        self.due_ns = 0
        self.sent_ns = 0
        self.first_ns = MISSING_NS
        self.answer_ns = MISSING_NS
        self._answered = False
        self.received_bytes = 0
        self.pieces: list[bytes] | None = [] if owner.keeps_replies else None
        self.request = Outgoing(b"", 0, 0)

    def begin(self, index: int, due_ns: int, now_ns: int, request: Outgoing) -> None:
        """Send request `index`, over a new connection if none is open."""
        self.busy = True
        self.index = index
        self.due_ns = due_ns
        self.sent_ns = now_ns
        self.request = request
        self.received_bytes = 0
        if self._events:
            self._events = 0
            self.first_ns = self.answer_ns = MISSING_NS
            self._answered = False
        self._decoder.reset()
        if self._conversing is not None:
            self._conversing.expect(request[0])
        if self._fd >= 0:
            try:
                written = self._write(self._fd, request[0])
            except BlockingIOError:
                written = 0
            except OSError:
                self.end(monotonic_ns(), Failure.RESET)
                return
            if written != request[1]:
                self._leave(written)
        elif self._transport is None:
            self._owner.connect(self)
        else:
            self._leave(0)

    def _leave(self, written: int) -> None:
        """Hand the rest of the request, and all later ones of this connection, to the transport."""
        self._fd = -1
        transport = self._transport
        assert transport is not None
        data = self.request.data
        if not self._owner.in_pieces:
            transport.write(data[written:] if written else data)
            return
        rest: list[memoryview] = []
        for piece in data:
            if written < len(piece):
                rest.append(memoryview(piece)[written:])
            written = max(0, written - len(piece))
        transport.writelines(rest)

    @property
    def first_units(self) -> int:
        """Units in the first part of the streamed reply; 0 if unknown."""
        return self._stream.first_units if self._stream is not None and self._events else 0

    @property
    def uncounted(self) -> bool:
        """Whether the service did not report the number of units in its reply."""
        return not self._decoder.counted

    @property
    def error(self) -> str | None:
        """What the service says in a reply that failed, as `code: words`; None where its decoder tells nothing."""
        return getattr(self._decoder, "error", None) if self._decoder.failure else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and send the waiting request, unless it has timed out."""
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self.close()
            return
        self.connected = True
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("sslcontext") is None:
            self._fd = socket.fileno()
        if self.busy:
            self.begin(self.index, self.due_ns, self.sent_ns, self.request)

    def data_received(self, data: bytes) -> None:
        """Take the timestamp, then decode."""
        now_ns = monotonic_ns()
        if not self.busy:
            self.close()  # unexpected bytes without a request
            return
        self.received_bytes += len(data)
        if self.pieces is not None:
            self.pieces.append(data)
        decoder = self._decoder
        try:
            complete = decoder.feed(data)
        except Exception:
            traceback.print_exc()
            self.end(now_ns, Failure.DRIVER)
            return
        stream = self._stream
        if stream is not None and stream.events != self._events:
            events = stream.events
            if not self._events:
                self.first_ns = now_ns
            self._owner.chunk(self.index, now_ns, events - self._events)
            self._events = events
            self._content_ns = now_ns
            if not self._answered and stream.answered:
                self._answered = True
                self.answer_ns = now_ns
        if complete and not (self._conversing is not None and self._goes_on(self._conversing, now_ns)):
            self.busy = False
            if not decoder.keep_alive:
                self.close()
            end_ns = now_ns
            if self._events:
                # a usage chunk or end mark after the last content does not extend the reply
                end_ns = self._content_ns
                self._owner.held_open_ns += now_ns - end_ns
            self._owner.ended(self, end_ns, decoder.units, decoder.status, decoder.failure)
        elif now_ns >= self._owner.check_ns:
            self._owner.check_timeouts(now_ns)
        if now_ns >= self._owner.due_ns:
            self._owner.on_overdue()

    def _goes_on(self, conversing: Conversing, now_ns: int) -> bool:
        """Send the next request of an operation that takes several; return False if there is none."""
        further = None if self._decoder.failure else conversing.further()
        if further is None:
            return False
        transport = self._transport if self._decoder.keep_alive else None
        self._decoder.reset()
        if transport is None:
            self.end(now_ns, Failure.RESET)
            return True
        self._fd = -1  # from here on all that this connection sends goes through the transport
        self.request = self.request._replace(size_bytes=self.request.size_bytes + sum(map(len, further)))
        transport.writelines(further)
        return True

    def eof_received(self) -> None:
        """Close an idle connection when the server ends its side."""
        if not self.busy:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Finish the request in flight, if any, when either side ends the connection."""
        now_ns = monotonic_ns()
        self._transport = None
        self._fd = -1
        self.connected = False
        self.closed = True
        if not self.busy:
            return
        decoder = self._decoder
        if error is None and isinstance(decoder, EndedByClose) and decoder.end_of_stream():
            if self._events:
                self._owner.held_open_ns += now_ns - self._content_ns
            self.end(self._content_ns if self._events else now_ns, self._decoder.failure)
        else:
            self.end(now_ns, Failure.RESET)

    def end(self, now_ns: int, failure: Failure) -> None:
        """End the request in flight and its connection; pass the result to the owner."""
        self.busy = False
        self.close()
        self._owner.ended(self, now_ns, self._decoder.units, self._decoder.status, failure)

    def close(self) -> None:
        """Abort the connection without waiting."""
        self.closed = True
        self.connected = False
        self._fd = -1
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
