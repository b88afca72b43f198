"""One TCP connection of the event-loop generator: a request at a time, stamped where its bytes arrive."""

import asyncio
import traceback
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Protocol, cast

from seamark.load.driver import Decoder
from seamark.model.failure import Failure
from seamark.model.sample import MISSING_NS


class Owner(Protocol):
    """Who has connections: it gives them their requests and takes their records."""

    in_pieces: bool

    def encoded(self, index: int) -> bytes | tuple[bytes, ...]: ...

    def connect(self, connection: "Connection") -> None: ...

    def ended(self, connection: "Connection", now_ns: int, units: int, status: int, failure: Failure) -> None: ...


class Connection(asyncio.Protocol):
    """Sends a request, feeds the decoder with the reply, hands the record over. Not reused once it is broken:
    the generator takes a new, unconnected one, which connects with its next request and counts that time."""

    __slots__ = (
        "_decoder",
        "_owner",
        "_streams",
        "_transport",
        "_write",
        "busy",
        "closed",
        "due_ns",
        "first_ns",
        "index",
        "received_bytes",
        "sent_ns",
    )

    def __init__(self, owner: Owner, decoder: Decoder) -> None:
        self._owner = owner
        self._decoder = decoder
        self._streams: bool = getattr(decoder, "streams", True)
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[Any], None]
        self.busy = False
        self.closed = False
        self.index = 0
        self.due_ns = 0
        self.sent_ns = 0
        self.first_ns = MISSING_NS
        self.received_bytes = 0

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def begin(self, index: int, due_ns: int, now_ns: int) -> None:
        """Send request `index`, over a new connection if there is none."""
        self.busy = True
        self.index = index
        self.due_ns = due_ns
        self.sent_ns = now_ns
        self.first_ns = MISSING_NS
        self.received_bytes = 0
        if self._transport is None:
            self._owner.connect(self)
        else:
            self._decoder.reset()
            self._write(self._owner.encoded(index))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; send the request that was waiting for it, if it has not timed out meanwhile."""
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self.close()
            return
        write: Callable[[Any], None] = self._transport.write
        lines: Callable[[Any], None] = self._transport.writelines
        self._write = lines if self._owner.in_pieces else write
        if self.busy:
            self._decoder.reset()
            self._write(self._owner.encoded(self.index))

    def data_received(self, data: bytes) -> None:
        """Stamp, then look what came."""
        now_ns = monotonic_ns()
        if not self.busy:
            self.close()  # bytes that no request asked for
            return
        self.received_bytes += len(data)
        decoder = self._decoder
        try:
            complete = decoder.feed(data)
        except Exception:
            traceback.print_exc()
            self.end(now_ns, Failure.DRIVER)
            return
        if complete:
            if self._streams and decoder.units and self.first_ns == MISSING_NS:
                self.first_ns = now_ns
            self.end(now_ns, decoder.failure, reusable=decoder.keep_alive)
        elif self.first_ns == MISSING_NS and decoder.units:
            self.first_ns = now_ns

    def connection_lost(self, error: Exception | None) -> None:
        """The server, the network or we ended the connection."""
        now_ns = monotonic_ns()
        self._transport = None
        self.closed = True
        if not self.busy:
            return
        end_of_stream = getattr(self._decoder, "end_of_stream", None)
        if error is None and end_of_stream is not None and end_of_stream():
            self.end(now_ns, self._decoder.failure)
        else:
            self.end(now_ns, Failure.RESET)

    def end(self, now_ns: int, failure: Failure, *, reusable: bool = False) -> None:
        """Hand over what was seen of the request in flight; give the connection back, or a new one in its place."""
        self.busy = False
        decoder = self._decoder
        if not reusable:
            self.close()
        self._owner.ended(self, now_ns, decoder.units, decoder.status, failure)

    def close(self) -> None:
        """End the connection without waiting for anything."""
        self.closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
