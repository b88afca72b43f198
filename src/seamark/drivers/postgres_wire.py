"""Prepared statements in PostgreSQL's own protocol (version 3, extended query), as a Wire driver.

A connection is made, logged in and prepared by psycopg2; then its socket is taken over. A request is what libpq sends
for PQexecPrepared, and so for `pgbench -M prepared`: Bind, Describe, Execute, Sync. Its reply ends in ReadyForQuery.
"""

import os
import socket
import struct
from collections.abc import Sequence

import psycopg2

from seamark.drivers import postgres_tables
from seamark.drivers.postgres_replies import ReplyDecoder
from seamark.drivers.postgres_requests import PREPARED, Requests
from seamark.load.driver import Body, Target

REST = b"D\0\0\0\6P\0" + b"E\0\0\0\x09\0\0\0\0\0" + b"S\0\0\0\4"
"""Describe and Execute of the unnamed portal, with all its rows; Sync."""


class PostgresWire:
    """One prepared statement a request; good when it finds or changes the rows that it asks for. They are counted
    where they arrived and, as in pgbench, not looked at."""

    unit = "transaction"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._requests = Requests.of(target.settings)
        self.kinds: Sequence[str] = (self._requests.operation,)
        self.body_count = self._requests.body_count

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded parameters."""
        return self._requests.bodies(count, seed)

    def address(self) -> tuple[str, int]:
        """Return where the server listens."""
        return self._target.host, self._target.ports["main"]

    def login(self) -> socket.socket:
        """Return a connection on which the statement is prepared. Raises ConnectionError."""
        timeout_s = float(self._target.settings.get("timeout_s") or 0)
        try:
            connection = postgres_tables.connect(self._target, timeout_s)
            with connection.cursor() as cursor:
                cursor.execute(PREPARED[self._requests.operation].text)
        except psycopg2.Error as error:
            raise ConnectionError(str(error).strip()) from error
        return _taken_over(connection)

    def encode(self, body: Body) -> bytes:
        """Return the request on the wire, its parameters as text."""
        values = [str(number).encode() for number in body.content]
        parameters = b"".join(struct.pack("!i", len(value)) + value for value in values)
        name = self._requests.operation.encode()
        bind = b"\0" + name + b"\0" + struct.pack("!hh", 0, len(values)) + parameters + b"\0\0"
        return b"B" + struct.pack("!i", 4 + len(bind)) + bind + REST

    def decoder(self) -> ReplyDecoder:
        """Return a decoder that knows how many rows are right."""
        changes = PREPARED[self._requests.operation].changes
        return ReplyDecoder(f"{'UPDATE' if changes else 'SELECT'} {self._requests.rows}")


def _taken_over(connection: "psycopg2.extensions.connection") -> socket.socket:
    """Return the socket of a connection that has no more use for it: it is left with one that leads nowhere."""
    taken = socket.socket(fileno=os.dup(connection.fileno()))
    with open(os.devnull, "r+b") as nowhere:
        os.dup2(nowhere.fileno(), connection.fileno())
    connection.close()
    return taken
