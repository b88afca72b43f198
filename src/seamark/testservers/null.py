"""A small HTTP/1.1 server that does nothing, fast: what the load generator is measured and tested against.

`main(["--host", ..., "--port", ...])`, run through isolated_main.py. It answers every request with a body of so many
bytes, `/health` alike and `/metrics` in Prometheus' text format; on demand it streams, is slow or ill in predictable
ways.
"""

import argparse
import asyncio
import contextlib
import itertools
import signal
import time
from dataclasses import dataclass
from typing import cast

from seamark.testservers.null_streams import Streams


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How the server answers request number n (from 1). `None`: never so.

    With `stream_chunks` each reply is a stream, see null_streams.py, and nothing else is looked at.
    A stall holds every reply that falls due from `stall_from_s` after the first request until `stall_for_s` later,
    and releases them together.
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
    """Counts requests and decides on the answer to each."""

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
        """Return what /metrics shows."""
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
        """Return after what time a request that came now is answered."""
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
    """One client's connection; replies in the order of the requests."""

    __slots__ = ("_path", "_pending", "_server", "_skip", "_transport")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._path = b"/"
        self._pending = b""
        self._skip = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        """Count it."""
        self._server.connections -= 1
        if self._server.streams is not None:
            self._server.streams.end(self._transport)

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._server.streams is not None:
            self._server.streams.hold(self._transport)

    def resume_writing(self) -> None:
        """It does again."""
        if self._server.streams is not None:
            self._server.streams.go_on(self._transport)

    def data_received(self, data: bytes) -> None:
        """Take requests apart: a head, and a body of Content-Length."""
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
        how, transport = self._server.behaviour, self._transport
        if transport.is_closing() or _falls_on(how.silent_every, number):
            return
        if _falls_on(how.reset_every, number):
            transport.abort()
        elif _falls_on(how.error_every, number):
            transport.write(self._server.error)
        elif _falls_on(how.close_every, number):
            transport.write(self._server.last)
            transport.close()
        else:
            transport.write(self._server.good)


def _count(text: str) -> int | None:
    """Read a number of requests; 0 is 'never'."""
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
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="null", description="An HTTP server that does nothing, fast.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="0: any; it is printed")
    parser.add_argument("--reply-bytes", type=int, default=2)
    parser.add_argument("--stream-chunks", type=_count, help="replies are streams of so many OpenAI events")
    parser.add_argument("--stream-joined", type=int, default=1, help="so many events in a write")
    parser.add_argument("--stream-turn-ms", type=float, default=0.0, help="between two writes of all streams")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="answer after so long")
    parser.add_argument("--reset-every", type=_count, help="reset the connection instead of every n-th reply")
    parser.add_argument("--close-every", type=_count, help="close the connection after every n-th reply")
    parser.add_argument("--error-every", type=_count, help="answer 503 to every n-th request")
    parser.add_argument("--silent-every", type=_count, help="never answer every n-th request")
    parser.add_argument(
        "--stall-from-s", type=float, default=0.0, help="a stall begins so long after the first request"
    )
    parser.add_argument("--stall-for-s", type=float, default=0.0, help="how long the stall holds all replies")
    given = vars(parser.parse_args(argv))
    host, port = given.pop("host"), given.pop("port")
    delay_s, turn_s = given.pop("delay_ms") / 1000, given.pop("stream_turn_ms") / 1000
    behaviour = Behaviour(delay_s=delay_s, stream_turn_s=turn_s, **given)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        runner.run(serve(host, port, behaviour))
    return 0
