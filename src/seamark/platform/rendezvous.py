"""Rendezvous over TCP with processes on other nodes: a listener that admits who knows its secret token, and the
connection of the other side."""

import contextlib
import hmac
import json
import secrets
import selectors
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

LONGEST_HELLO_BYTES = 4096
MOST_CANDIDATES = 256
CONNECT_S = 5.0
IDLE_S, PROBE_EVERY_S, PROBES = 10, 5, 3
"""TCP keep-alive: a machine that vanished is detected after IDLE_S + PROBES * PROBE_EVERY_S."""

Admit = Callable[[socket.socket, dict[str, Any], bytes], None]
"""Called with a connection, the content of its hello line, and the bytes after it."""


class RendezvousListener:
    """Admits connections with the right token: first line the token, second `hello` and a JSON object. All others are
    closed. The selector's data are the functions to call when a socket is readable."""

    def __init__(self, selector: selectors.BaseSelector, admit: Admit, *, host: str = "") -> None:
        """Listen on a free port of `host`; "" is every address of this machine."""
        self.token = secrets.token_hex(16)
        self._selector = selector
        self._admit = admit
        self._listener = _listener(host)
        self.port: int = self._listener.getsockname()[1]
        self._received: dict[socket.socket, bytes] = {}
        """Bytes of each connection before its authentication."""
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Stop listening and close all connections that are not admitted."""
        for connection in list(self._received):
            self._drop(connection)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            while len(self._received) >= MOST_CANDIDATES:
                self._drop(next(iter(self._received)))
            self._received[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ, partial(self._read, connection))

    def _read(self, connection: socket.socket) -> None:
        """Read more of the first lines; admit, close, or wait for more."""
        if connection not in self._received:  # dropped since it became readable
            return
        try:
            data = connection.recv(LONGEST_HELLO_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received = self._received[connection] = self._received[connection] + data
        token, ended, rest = received.partition(b"\n")
        wrong = not hmac.compare_digest(token, self.token.encode()[: None if ended else len(token)])
        hello, whole, rest = rest.partition(b"\n")
        if not data or wrong or (len(received) > LONGEST_HELLO_BYTES and not whole):
            self._drop(connection)
        elif whole:
            try:
                word, _, about = hello.decode().partition(" ")
                content = json.loads(about) if word == "hello" else None
            except ValueError:
                content = None
            if not isinstance(content, dict):
                self._drop(connection)
                return
            del self._received[connection]
            self._selector.unregister(connection)
            self._admit(_with_keepalive(connection), content, rest)

    def _drop(self, connection: socket.socket) -> None:
        del self._received[connection]
        self._selector.unregister(connection)
        connection.close()


def connect(addresses: Sequence[tuple[str, int]], token: str, about: Mapping[str, Any]) -> socket.socket:
    """Return a connection to the first address of a listener that accepts one, after its token and `about`. Raises
    OSError with the failure of each address."""
    failures = []
    for host, port in addresses:
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_S)
        except OSError as error:
            failures.append(f"{host}:{port} ({error})")
            continue
        connection.settimeout(None)
        connection.sendall(f"{token}\nhello {json.dumps(dict(about))}\n".encode())
        return _with_keepalive(connection)
    raise OSError(f"{socket.gethostname()} cannot reach {', '.join(failures)}")


def _with_keepalive(connection: socket.socket) -> socket.socket:
    """Return the connection without Nagle delay and with keep-alive probes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    return connection


def _listener(host: str) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server((host, 0), backlog=1024)
