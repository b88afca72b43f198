"""Prepared statements in PostgreSQL's own protocol (version 3, extended query), as a Call driver.

psycopg2 makes the connection, logs in and prepares; then its socket is taken over. A request is what libpq sends for
PQexecPrepared, and so for `pgbench -M prepared`: Bind, Describe, Execute, Sync. Its reply ends in ReadyForQuery.
"""

import os
import socket
import struct
from collections.abc import Sequence

import psycopg2

from seamark.drivers.postgres import tables
from seamark.drivers.postgres.calls import PostgresCalls, in_words
from seamark.drivers.postgres.pool import PoolTimeoutError
from seamark.drivers.postgres.replies import ReplyDecoder
from seamark.drivers.postgres.requests import PREPARED
from seamark.load.driver import Body, Reply, Session, Target
from seamark.model.sample import Failure

REST = b"D\0\0\0\6P\0" + b"E\0\0\0\x09\0\0\0\0\0" + b"S\0\0\0\4"
"""Describe and Execute of the unnamed portal, with all its rows; Sync."""
READ_BYTES = 8192
"""PostgreSQL sends as much at once."""
GOOD = Reply()


class NotConnectedError(ConnectionError):
    """No connection on which the statement is prepared was to be had."""


class PostgresPrepared(PostgresCalls):
    """One prepared statement per request, good if it returns or changes the expected number of rows. They are counted
    as received and, as in pgbench, not parsed."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests, ready to send."""
        return [Body(content=self._encoded(body.content)) for body in self._requests.bodies(count, seed)]

    def connected(self) -> Session:
        """Connect, and prepare the statement."""
        operation = self._requests.operation
        tag = f"{'UPDATE' if operation == 'update' else 'SELECT'} {self._requests.rows}"
        return _PreparedSession(_login(self._target, operation), ReplyDecoder(tag))

    def failure(self, error: Exception) -> Failure:
        """Classify an error of the connection; an error of a statement is in the reply."""
        if isinstance(error, PoolTimeoutError):
            return Failure.TIMEOUT
        if isinstance(error, NotConnectedError):
            return Failure.CONNECT
        return Failure.RESET if isinstance(error, OSError) else Failure.DRIVER

    def _encoded(self, numbers: Sequence[int]) -> bytes:
        """Return the request on the wire, its parameters as text."""
        values = [str(number).encode() for number in numbers]
        parameters = b"".join(struct.pack("!i", len(value)) + value for value in values)
        name = self._requests.operation.encode()
        bind = b"\0" + name + b"\0" + struct.pack("!hh", 0, len(values)) + parameters + b"\0\0"
        return b"B" + struct.pack("!i", 4 + len(bind)) + bind + REST


class _PreparedSession:
    """One connection: a request is written, and its reply read until it is whole."""

    def __init__(self, connection: socket.socket, replies: ReplyDecoder) -> None:
        self._connection = connection
        send, receive = connection.sendall, connection.recv
        reset, feed = replies.reset, replies.feed

        def call(body: Body) -> Reply:
            reset()
            send(body.content)
            while True:
                data = receive(READ_BYTES)
                if feed(data):
                    if not replies.failure:
                        return GOOD
                    error = replies.error and in_words(*replies.error)
                    return Reply(units=0, failure=replies.failure, error=error)
                if not data:
                    raise ConnectionResetError("the server ended the connection")

        self.call = call

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _login(target: Target, operation: str) -> socket.socket:
    """Return a connection on which the operation's statement is prepared. Raises NotConnectedError."""
    try:
        connection = tables.connect(target, target.load.timeout_s)
        with connection.cursor() as cursor:
            cursor.execute(PREPARED[operation])
    except psycopg2.Error as error:
        raise NotConnectedError(str(error).strip()) from error
    return _taken_over(connection)


def _taken_over(connection: "psycopg2.extensions.connection") -> socket.socket:
    """Return the socket of a connection, which keeps a dummy in its place."""
    taken = socket.socket(fileno=os.dup(connection.fileno()))
    with open(os.devnull, "r+b") as nowhere:
        os.dup2(nowhere.fileno(), connection.fileno())
    connection.close()
    taken.setblocking(True)
    return taken
