"""Null server: a fast HTTP/1.1 server with constant replies, to measure and test the load generator.

`main(["--host", ..., "--port", ...])`, run through isolated_main.py. It answers every request with a body of fixed
size, `/health` likewise, and `/metrics` in Prometheus text format; options add streams, delays and faults at fixed
request numbers.
"""

import argparse
import asyncio
import contextlib
import itertools
import signal
import time
from dataclasses import dataclass
from typing import cast

from seamark.testservers.reference.behaviour import Behaviour as ReferenceBehaviour
from seamark.testservers.reference.request import Ask
from seamark.testservers.reference.wire import LAST_CHUNK, STREAM_HEAD, Events, framed


class Streams:
    """Constant streams of the OpenAI API: each turn writes the next `joined` events of every active stream.

    A reply has `chunks` events with one token each. Turns follow each other at once, or `turn_s` apart: a client that
    keeps up then reads each piece by itself, as from a server that generates for many clients in a batch.
    """

    def __init__(self, chunks: int, joined: int = 1, turn_s: float = 0.0) -> None:
        events = Events(ReferenceBehaviour())
        last = events.content(False, 0, 1, False, "length")
        usage = events.usage(Ask(endpoint="completions", prompt_tokens=1), chunks, 0)
        self._pieces = max(1, chunks // joined)
        self._turn_s = turn_s
        self._begin = STREAM_HEAD + framed(events.role(False, 0))
        self._piece = framed(events.content(False, 0, 1, False, None)) * joined
        rest = chunks - joined * (self._pieces - 1) - 1
        self._end = (
            framed(events.content(False, 0, 1, False, None)) * rest
            + b"".join(map(framed, (last, usage, events.done)))
            + LAST_CHUNK
        )
        self._left: dict[asyncio.Transport, int] = {}
        self._held: dict[asyncio.Transport, int] = {}
        self._turns = False

    def begin(self, transport: asyncio.Transport) -> None:
        """Start a reply."""
        transport.write(self._begin)
        self._put(transport, self._pieces)

    def hold(self, transport: asyncio.Transport) -> None:
        """Suspend a stream whose client does not read, until `go_on`."""
        if transport in self._left:
            self._held[transport] = self._left.pop(transport)

    def go_on(self, transport: asyncio.Transport) -> None:
        """Resume a stream."""
        if transport in self._held:
            self._put(transport, self._held.pop(transport))

    def end(self, transport: asyncio.Transport) -> None:
        """Drop a lost connection."""
        self._left.pop(transport, None)
        self._held.pop(transport, None)

    def _put(self, transport: asyncio.Transport, left: int) -> None:
        self._left[transport] = left
        if not self._turns:
            self._turns = True
            self._next()

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        if self._turn_s:
            loop.call_later(self._turn_s, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Write a piece to every stream; `write` may suspend one meanwhile."""
        for transport, left in list(self._left.items()):
            if left > 1:
                self._left[transport] = left - 1
                transport.write(self._piece)
            else:
                del self._left[transport]
                transport.write(self._end)
        self._turns = bool(self._left)
        if self._turns:
            self._next()


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Behaviour for request number n (from 1). `None`: never.

    With `stream_chunks` every reply is a stream and all other options are ignored. A stall holds every reply that
    falls due from `stall_from_s` after the first request until `stall_for_s` later, and releases them together.
    """

    reply_bytes: int = 2
    stream_chunks: int | None = None
    stream_joined: int = 1
    stream_turn_s: float = 0.0
    delay_s: float = 0.0
    reset_every: int | None = None
    close_every: int | None = None
    error_every: int | None = None
    silent_every: int | None = None
    stall_from_s: float = 0.0
    stall_for_s: float = 0.0


class Server:
    """Counts requests and selects the reply to each."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        body = b"." * behaviour.reply_bytes
        self.good = _reply(200, "OK", body)
        self.last = _reply(200, "OK", body, b"Connection: close\r\n")
        self.error = _reply(503, "Service Unavailable", b"ill")
        self.streams: Streams | None = None
        if behaviour.stream_chunks is not None:
            self.streams = Streams(behaviour.stream_chunks, behaviour.stream_joined, behaviour.stream_turn_s)
        self.first_at_s: float | None = None
        self.requests = 0
        self.in_flight = 0
        self.connections = 0
        plain = (behaviour.reset_every, behaviour.close_every, behaviour.error_every, behaviour.silent_every)
        self.is_plain = not behaviour.delay_s and not behaviour.stall_for_s and not any(plain)

    def metrics(self) -> bytes:
        """Return the reply to /metrics."""
        lines = [
            "# HELP null_requests_total Requests answered or begun.",
            "# TYPE null_requests_total counter",
            f"null_requests_total {self.requests}",
            "# HELP null_requests_in_flight Requests waiting for their reply.",
            "# TYPE null_requests_in_flight gauge",
            f"null_requests_in_flight {self.in_flight}",
            "# HELP null_connections Open connections.",
            "# TYPE null_connections gauge",
            f"null_connections {self.connections}",
        ]
        return _reply(200, "OK", "\n".join([*lines, ""]).encode(), b"Content-Type: text/plain; version=0.0.4\r\n")

    def wait_s(self) -> float:
        """Return the delay of the reply to a request that arrived now."""
        now_s = time.monotonic()
        if self.first_at_s is None:
            self.first_at_s = now_s
        due_s = now_s + self.behaviour.delay_s
        if self.behaviour.stall_for_s:
            stall_s = self.first_at_s + self.behaviour.stall_from_s
            if stall_s <= due_s < stall_s + self.behaviour.stall_for_s:
                due_s = stall_s + self.behaviour.stall_for_s
        return due_s - now_s


class Connection(asyncio.Protocol):
    """Connection of one client; replies in the order of requests."""

    __slots__ = ("_path", "_pending", "_server", "_skip", "_transport")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._path = b"/"
        self._pending = b""
        self._skip = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        """Count the connection and drop its stream."""
        self._server.connections -= 1
        if self._server.streams is not None:
            self._server.streams.end(self._transport)

    def pause_writing(self) -> None:
        """Suspend the stream of a client that does not read."""
        if self._server.streams is not None:
            self._server.streams.hold(self._transport)

    def resume_writing(self) -> None:
        """Resume the stream."""
        if self._server.streams is not None:
            self._server.streams.go_on(self._transport)

    def data_received(self, data: bytes) -> None:
        """Parse requests: a head, and a body of Content-Length."""
        if self._pending:
            data, self._pending = self._pending + data, b""
        while data:
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
                if self._skip:
                    return
                self._answer(self._path)
                continue
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._pending = data
                return
            head, data = data[:end], data[end + 4 :]
            self._path = head.split(b" ", 2)[1] if head.count(b" ") > 1 else b"/"
            if not head.startswith(b"GET "):
                self._skip = _content_length(head)
            if not self._skip:
                self._answer(self._path)

    def _answer(self, path: bytes) -> None:
        server, transport = self._server, self._transport
        if path == b"/metrics":
            transport.write(server.metrics())
            return
        if path == b"/health":
            transport.write(server.good)
            return
        server.requests += 1
        if server.streams is not None:
            server.streams.begin(transport)
            return
        if server.is_plain:
            transport.write(server.good)
            return
        wait_s = server.wait_s()
        if wait_s <= 0:
            self._reply(server.requests)
        else:
            server.in_flight += 1
            asyncio.get_running_loop().call_later(wait_s, self._later, server.requests)

    def _later(self, number: int) -> None:
        self._server.in_flight -= 1
        self._reply(number)

    def _reply(self, number: int) -> None:
        behaviour, transport = self._server.behaviour, self._transport
        if transport.is_closing() or _falls_on(behaviour.silent_every, number):
            return
        if _falls_on(behaviour.reset_every, number):
            transport.abort()
        elif _falls_on(behaviour.error_every, number):
            transport.write(self._server.error)
        elif _falls_on(behaviour.close_every, number):
            transport.write(self._server.last)
            transport.close()
        else:
            transport.write(self._server.good)


def _count(text: str) -> int | None:
    """Parse a number of requests; 0 means never."""
    return int(text) or None


def _falls_on(every: int | None, number: int) -> bool:
    return every is not None and number % every == 0


def _content_length(head: bytes) -> int:
    for line in itertools.islice(head.lower().split(b"\r\n"), 1, None):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _reply(status: int, reason: str, body: bytes, more: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n".encode()
    return head + more + b"\r\n" + body


async def serve(host: str, port: int, behaviour: Behaviour) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    state = Server(behaviour)
    listening = await loop.create_server(lambda: Connection(state), host, port, backlog=4096)
    with contextlib.closing(listening):
        print(f"listening on {listening.sockets[0].getsockname()[1]}", flush=True)
        await ended.wait()


def main(argv: list[str]) -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="null", description="An HTTP server that does nothing, fast.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0: any; it is printed")
    parser.add_argument("--reply-bytes", type=int, default=2)
    parser.add_argument("--stream-chunks", type=_count, help="stream replies with this number of OpenAI events")
    parser.add_argument("--stream-joined", type=int, default=1, help="events per write")
    parser.add_argument("--stream-turn-ms", type=float, default=0.0, help="time between two writes of all streams")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="delay of every reply")
    parser.add_argument("--reset-every", type=_count, help="reset the connection instead of every n-th reply")
    parser.add_argument("--close-every", type=_count, help="close the connection after every n-th reply")
    parser.add_argument("--error-every", type=_count, help="answer 503 to every n-th request")
    parser.add_argument("--silent-every", type=_count, help="never answer every n-th request")
    parser.add_argument(
        "--stall-from-s", type=float, default=0.0, help="a stall begins so long after the first request"
    )
    parser.add_argument("--stall-for-s", type=float, default=0.0, help="how long the stall holds all replies")
    arguments = vars(parser.parse_args(argv))
    host, port = arguments.pop("host"), arguments.pop("port")
    delay_s, turn_s = arguments.pop("delay_ms") / 1000, arguments.pop("stream_turn_ms") / 1000
    behaviour = Behaviour(delay_s=delay_s, stream_turn_s=turn_s, **arguments)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        runner.run(serve(host, port, behaviour))
    return 0
