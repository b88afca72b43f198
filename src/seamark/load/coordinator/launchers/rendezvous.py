"""Rendezvous listener for workers on other machines: a listening socket with a secret token. Sends nothing."""

import contextlib
import hmac
import json
import secrets
import selectors
import socket
from collections.abc import Callable
from typing import Any

LONGEST_HELLO_BYTES = 4096
MOST_CANDIDATES = 256
IDLE_S, ASK_EVERY_S, ASK_TIMES = 10, 5, 3
"""TCP keep-alive: a machine that vanished is detected after IDLE_S + ASK_TIMES * ASK_EVERY_S."""

Admit = Callable[[socket.socket, dict[str, Any], bytes], None]
"""Called with a connection, the content of its hello line, and the bytes after it."""


def with_keepalive(connection: socket.socket) -> socket.socket:
    """Return the connection without Nagle delay and with keep-alive probes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASK_TIMES)
    return connection


class RendezvousListener:
    """Admits connections with the right token: first line the token, second `hello` and a JSON object. All others are
    closed."""

    def __init__(self, selector: selectors.BaseSelector, admit: Admit, *, host: str = "") -> None:
        """Listen on a free port of `host`; "" is every address of this machine."""
        self.token = secrets.token_hex(16)
        self._selector = selector
        self._admit = admit
        self._listener = _listener(host)
        self.port: int = self._listener.getsockname()[1]
        self._candidates: dict[socket.socket, Candidate] = {}
        selector.register(self._listener, selectors.EVENT_READ, self)

    def on_readable(self) -> bool:
        """Accept a connection."""
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            while len(self._candidates) >= MOST_CANDIDATES:
                self.drop(next(iter(self._candidates)))
            self._candidates[connection] = candidate = Candidate(self, connection)
            self._selector.register(connection, selectors.EVENT_READ, candidate)
        return True

    def authenticate(self, connection: socket.socket, received: bytes) -> None:
        """Decide by the bytes received so far: admit, close, or wait for more."""
        token, ended, rest = received.partition(b"\n")
        wrong = not hmac.compare_digest(token, self.token.encode()[: None if ended else len(token)])
        hello, whole, rest = rest.partition(b"\n")
        if wrong or (len(received) > LONGEST_HELLO_BYTES and not whole):
            self.drop(connection)
        elif whole:
            try:
                word, _, about = hello.decode().partition(" ")
                hello_content = json.loads(about) if word == "hello" else None
            except ValueError:
                hello_content = None
            if not isinstance(hello_content, dict):
                self.drop(connection)
                return
            del self._candidates[connection]
            self._selector.unregister(connection)
            self._admit(with_keepalive(connection), hello_content, rest)

    def drop(self, connection: socket.socket) -> None:
        """Close a candidate's connection."""
        del self._candidates[connection]
        self._selector.unregister(connection)
        connection.close()

    def close(self) -> None:
        """Stop listening and close all candidates."""
        for connection in list(self._candidates):
            self.drop(connection)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()


class Candidate:
    """A connection before authentication."""

    def __init__(self, gate: RendezvousListener, connection: socket.socket) -> None:
        self._gate = gate
        self._connection = connection
        self._received = b""

    def on_readable(self) -> bool:
        """Read more of its first lines."""
        try:
            data = self._connection.recv(LONGEST_HELLO_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._gate.drop(self._connection)
        else:
            self._received += data
            self._gate.authenticate(self._connection, self._received)
        return True


def _listener(host: str) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server((host, 0), backlog=1024)
