"""How a request gets to the wire: at once, whole, and in order, whatever the socket takes of it."""

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from seamark.load.engine.connection import Connection, Outgoing
from seamark.load.engine.http import HttpDecoder
from seamark.model.sample import Failure

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"
BIG = bytes(range(256)) * 40_000
LOOPS = pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)


class ConnectionOwner:
    """Asks for one request after another on one connection, and notes how each ended."""

    due_ns = check_ns = 1 << 62

    def __init__(self, requests: list[Outgoing], *, in_pieces: bool) -> None:
        self.in_pieces = in_pieces
        self.keeps_replies = False
        self.requests = requests
        self.ends: list[Failure] = []
        self.done = asyncio.get_running_loop().create_future()

    def begin(self, connection: Connection) -> None:
        if len(self.ends) == len(self.requests):
            self.done.set_result(None)
        else:
            connection.begin(len(self.ends), 0, time.monotonic_ns(), self.requests[len(self.ends)])

    def ended(self, connection: Connection, now_ns: int, units: int, status: int, failure: Failure) -> None:
        self.ends.append(failure)
        if failure:
            self.done.set_result(None)
        else:
            self.begin(connection)

    def chunk(self, index: int, at_ns: int, events: int) -> None: ...

    def connect(self, connection: Connection) -> None: ...

    def on_overdue(self) -> None: ...


def outgoing(data: bytes, *, in_pieces: bool) -> Outgoing:
    pieces = (data[:10], data[10:2000], b"", data[2000:])
    return Outgoing(pieces if in_pieces else data, len(data), 0)


def slow_reader(sizes: list[int], seen: list[str]) -> socket.socket:
    """Return a listening socket whose server reads requests of these sizes slowly and answers each."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            for size in sizes:
                digest, left = hashlib.sha256(), size
                time.sleep(0.05)
                while left:
                    data = connection.recv(min(left, 1 << 18))
                    digest.update(data)
                    left -= len(data)
                seen.append(digest.hexdigest())
                connection.sendall(REPLY)
            connection.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    return listening


@pytest.mark.slow
@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole", "pieces"])
@LOOPS
def test_what_the_socket_does_not_take_at_once_follows_in_order(new_loop: Callable, in_pieces: bool) -> None:
    contents = [b"small" * 1000, BIG, b"x" * 3000, BIG[::-1], b"y" * 2500]
    seen: list[str] = []
    listening = slow_reader([len(each) for each in contents], seen)

    async def run() -> list[Failure]:
        owner = ConnectionOwner([outgoing(each, in_pieces=in_pieces) for each in contents], in_pieces=in_pieces)
        connection = Connection(owner, HttpDecoder())
        await asyncio.get_running_loop().create_connection(lambda: connection, *listening.getsockname())
        owner.begin(connection)
        await asyncio.wait_for(owner.done, 30)
        connection.close()
        return owner.ends

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == [Failure.NONE] * len(contents)
    assert seen == [hashlib.sha256(each).hexdigest() for each in contents]
    listening.close()


@LOOPS
def test_a_request_is_in_the_socket_when_begin_returns(new_loop: Callable) -> None:
    """Not when the loop comes round: what it does before that would be hidden in the service time."""
    listening = socket.create_server(("127.0.0.1", 0))

    async def run() -> bytes:
        owner = ConnectionOwner([Outgoing(b"now", 3, 0)], in_pieces=False)
        connection = Connection(owner, HttpDecoder())
        await asyncio.get_running_loop().create_connection(lambda: connection, *listening.getsockname())
        server, _ = listening.accept()
        server.setblocking(False)
        owner.begin(connection)
        with server:
            return server.recv(100)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == b"now"
    listening.close()


@LOOPS
def test_a_connection_that_was_reset_fails_the_request_that_finds_out(new_loop: Callable) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    async def run() -> list[Failure]:
        owner = ConnectionOwner([Outgoing(b"x", 1, 0)], in_pieces=False)
        connection = Connection(owner, HttpDecoder())
        await asyncio.get_running_loop().create_connection(lambda: connection, *listening.getsockname())
        server, _ = listening.accept()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.close()
        time.sleep(0.05)  # the reset is there, and the loop has not seen it
        owner.begin(connection)
        await asyncio.wait_for(owner.done, 10)
        return owner.ends

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == [Failure.RESET]
    listening.close()


@LOOPS
def test_a_read_looks_at_time_outs_where_a_flood_of_bytes_keeps_the_loop_from_it(new_loop: Callable) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    class Flooded(ConnectionOwner):
        check_ns = 0

        def check_timeouts(self, now_ns: int) -> None:
            connection.end(now_ns, Failure.TIMEOUT)

    async def run() -> list[Failure]:
        nonlocal connection
        owner = Flooded([Outgoing(b"x", 1, 0)], in_pieces=False)
        connection = Connection(owner, HttpDecoder())
        await asyncio.get_running_loop().create_connection(lambda: connection, *listening.getsockname())
        server, _ = listening.accept()
        with server:
            owner.begin(connection)
            server.sendall(b"HTTP/1.1 200 OK\r\nX-A: b")
            await asyncio.wait_for(owner.done, 10)
        return owner.ends

    connection: Connection
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == [Failure.TIMEOUT]
    listening.close()
