"""Null server: the reference server with constant answers, as fast as a load generator can request them.

`main(["--host", ..., "--port", ...])`, run through isolated_main.py. It answers every request with a body of fixed
size, or with a constant stream; options add delays and faults at fixed request numbers. `/health` and `/metrics` are
pages.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from seamark.testservers.answers import Moment, Script, laid_out
from seamark.testservers.behaviour import Behaviour, Fault
from seamark.testservers.connection import ReferenceConnection
from seamark.testservers.reference import count, number, run, shared_options, whole
from seamark.testservers.request import AnswerParameters, Endpoint, Head
from seamark.testservers.server import LONGEST_SEEN_BYTES, ReferenceServer, exposition
from seamark.testservers.wire import LAST_CHUNK, STREAM_HEAD, SseEvents, framed

PAGES: Mapping[str, Endpoint] = {"/health": "health", "/metrics": "metrics"}
MOST_INSTANT = 10_000


class NullServer(ReferenceServer):
    """Server whose replies are `good`. `instant` has requests that get it at once, as they need no script."""

    def __init__(
        self,
        behaviour: Behaviour,
        loop: asyncio.AbstractEventLoop,
        *,
        reply_bytes: int = 2,
        close_every: int | None = None,
    ) -> None:
        super().__init__(behaviour, loop, None)
        body = b"." * reply_bytes
        self.good = _reply("200 OK", body)
        self.instant: set[bytes] = set()
        self._is_instant = not (close_every or behaviour.has_faults or behaviour.ttft_ns or behaviour.stall_for_s)
        self._close_every = close_every
        now = [Moment(at_ns=0)]
        last = _reply("200 OK", body, "Connection: close\r\n")
        self._closing = replace(laid_out(now, [[last]], "good"), closes=True)
        self._scripts: Mapping[Fault | None, Script] = {
            None: laid_out(now, [[self.good]], "good"),
            "error": laid_out(now, [[_reply("503 Service Unavailable", b"ill")]], "error"),
            "reset": laid_out(now, [[b""]], "reset"),
            "silent": laid_out([], [], "silent"),
        }

    def script(self, ask: AnswerParameters, fault: Fault | None, number: int) -> Script:
        """Return the script of request `number`."""
        if fault is None and self._close_every is not None and number % self._close_every == 0:
            return self._closing
        return self._scripts[fault]

    def endpoint_of(self, method: str, path: str) -> Endpoint | None:
        """Return the endpoint: any path but that of a page gets the constant answer."""
        return PAGES.get(path, "plain")

    def remember(self, data: bytes, head: Head, ask: AnswerParameters) -> None:
        """Cache a parsed request."""
        if head.endpoint != "plain" or head.closes or not self._is_instant or len(data) > LONGEST_SEEN_BYTES:
            super().remember(data, head, ask)
            return
        if len(self.instant) == MOST_INSTANT:
            self.instant.clear()
        self.instant.add(data)

    def metrics(self) -> bytes:
        """Return the reply to /metrics."""
        text = exposition(
            ("null_requests_total", "counter", "Requests answered or begun.", self.requests),
            ("null_requests_in_flight", "gauge", "Requests waiting for their reply.", self.running),
            ("null_connections", "gauge", "Open connections.", len(self.connections)),
        )
        return _reply("200 OK", text, "Content-Type: text/plain; version=0.0.4\r\n")


class NullConnection(ReferenceConnection):
    """Connection of one client: the fast path of requests that need no script."""

    __slots__ = ()
    _server: NullServer

    def data_received(self, data: bytes) -> None:
        """Answer a known request at once; parse any other."""
        server = self._server
        if data in server.instant and not self._pending and self._transport is not None:
            server.requests += 1
            self._transport.write(server.good)
        else:
            super().data_received(data)


class StreamServer(NullServer):
    """Server of constant streams of the OpenAI API: each turn writes the next `joined` events of every active stream.

    A reply has `chunks` events with one token each. Turns follow each other at once, or `turn_s` apart: a client that
    keeps up then reads each piece by itself, as from a server that generates for many clients in a batch.
    """

    def __init__(
        self, behaviour: Behaviour, loop: asyncio.AbstractEventLoop, *, chunks: int, joined: int, turn_s: float
    ) -> None:
        super().__init__(behaviour, loop)
        self._is_instant = False
        events = SseEvents(behaviour)
        piece = framed(events.content(False, 0, 1, False, None))
        last = events.content(False, 0, 1, False, "length")
        usage = events.usage(AnswerParameters(endpoint="completions", prompt_tokens=1), chunks, 0)
        self._pieces = max(1, chunks // joined)
        self._begin = STREAM_HEAD + framed(events.role(False, 0))
        self._piece = piece * joined
        rest = chunks - joined * (self._pieces - 1) - 1
        self._end = piece * rest + b"".join(map(framed, (last, usage, events.done))) + LAST_CHUNK
        self._loop = loop
        self._turn_s = turn_s
        self._turns = False
        self._left: dict[asyncio.Transport, int] = {}
        self._held: dict[asyncio.Transport, int] = {}

    def begin_stream(self, transport: asyncio.Transport) -> None:
        """Start a reply."""
        self.requests += 1
        transport.write(self._begin)
        self._put(transport, self._pieces)

    def hold(self, transport: asyncio.Transport) -> None:
        """Suspend a stream until `go_on`."""
        if transport in self._left:
            self._held[transport] = self._left.pop(transport)

    def go_on(self, transport: asyncio.Transport) -> None:
        """Resume a stream."""
        if transport in self._held:
            self._put(transport, self._held.pop(transport))

    def drop(self, transport: asyncio.Transport) -> None:
        """Drop the stream of a lost connection."""
        self._left.pop(transport, None)
        self._held.pop(transport, None)

    def _put(self, transport: asyncio.Transport, left: int) -> None:
        self._left[transport] = left
        if not self._turns:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        self._turns = True
        if self._turn_s:
            self._loop.call_later(self._turn_s, self._turn)
        else:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Write a piece to every stream; `write` may suspend one meanwhile."""
        for transport, left in list(self._left.items()):
            if left > 1:
                self._left[transport] = left - 1
                transport.write(self._piece)
            else:
                del self._left[transport]
                transport.write(self._end)
        self._turns = False
        if self._left:
            self._schedule_turn()


class StreamConnection(ReferenceConnection):
    """Connection of one client that gets a stream for every request."""

    __slots__ = ()
    _server: StreamServer
    _transport: asyncio.Transport

    def pause_writing(self) -> None:
        """Suspend the stream of a client that does not read."""
        self._server.hold(self._transport)

    def resume_writing(self) -> None:
        """Resume the stream."""
        self._server.go_on(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the stream."""
        self._server.drop(self._transport)
        super().connection_lost(error)

    def _begin(self, head: Head, ask: AnswerParameters, read_ns: int) -> None:
        if head.endpoint == "plain":
            self._server.begin_stream(self._transport)
        else:
            super()._begin(head, ask, read_ns)


def _reply(status: str, body: bytes, more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def main(argv: list[str]) -> int:
    """Parse the command line and serve."""
    options = shared_options("null", "An HTTP server that does nothing, fast.")
    add = options.add_argument
    add("--reply-bytes", type=whole(0), default=2)
    add("--delay-ms", type=number, default=0.0, help="delay of every reply")
    add("--close-every", type=count, help="close the connection after every n-th reply")
    add("--stream-chunks", type=count, help="stream replies with this number of OpenAI events")
    add("--stream-joined", type=whole(1), default=1, help="events per write")
    add("--stream-turn-ms", type=number, default=0.0, help="time between two writes of all streams")
    given: dict[str, Any] = vars(options.parse_args(argv))
    host, port = given.pop("host"), given.pop("port")
    plain = {name: given.pop(name) for name in ("reply_bytes", "close_every")}
    chunks, joined, turn_ms = (given.pop(f"stream_{name}") for name in ("chunks", "joined", "turn_ms"))
    behaviour = Behaviour(ttft_ns=round(given.pop("delay_ms") * 1e6), **given)

    def streams(loop: asyncio.AbstractEventLoop) -> StreamServer:
        return StreamServer(behaviour, loop, chunks=chunks, joined=joined, turn_s=turn_ms / 1000)

    if chunks:
        run(options, host, port, streams, StreamConnection)
    else:
        run(options, host, port, lambda loop: NullServer(behaviour, loop, **plain), NullConnection)
    return 0
