"""Where workers that run elsewhere come in: a listening socket, and a token that they must know. Sends nothing."""

import contextlib
import hmac
import json
import secrets
import selectors
import socket
from collections.abc import Callable
from typing import Any

LONGEST_HELLO_BYTES = 4096
MOST_VISITORS = 256
IDLE_S, ASK_EVERY_S, ASK_TIMES = 10, 5, 3
"""A machine that has gone without a word is seen after so long."""

Admit = Callable[[socket.socket, dict[str, Any], bytes], None]
"""Is given a connection, what its visitor said of itself, and the bytes that came after that."""


def watched(connection: socket.socket) -> socket.socket:
    """Have the kernel send at once what is written, and notice when the other side has gone without a word."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_EVERY_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASK_TIMES)
    return connection


class Gate:
    """Lets in who knows the token. A visitor's first line is the token, its second `hello` and a JSON object; who
    says anything else is dropped."""

    def __init__(self, selector: selectors.BaseSelector, admit: Admit, *, host: str = "") -> None:
        """Listen on a free port of `host`; "" is every address of this machine."""
        self.token = secrets.token_hex(16)
        self._selector = selector
        self._admit = admit
        self._listener = _listener(host)
        self.port: int = self._listener.getsockname()[1]
        self._visitors: dict[socket.socket, Visitor] = {}
        selector.register(self._listener, selectors.EVENT_READ, self)

    def hear(self) -> bool:
        """Take in a visitor."""
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            while len(self._visitors) >= MOST_VISITORS:
                self.drop(next(iter(self._visitors)))
            self._visitors[connection] = visitor = Visitor(self, connection)
            self._selector.register(connection, selectors.EVENT_READ, visitor)
        return True

    def look_at(self, connection: socket.socket, said: bytes) -> None:
        """Decide on a visitor by what it has said so far: let it in, drop it, or wait for more."""
        token, ended, rest = said.partition(b"\n")
        wrong = not hmac.compare_digest(token, self.token.encode()[: None if ended else len(token)])
        hello, whole, rest = rest.partition(b"\n")
        if wrong or (len(said) > LONGEST_HELLO_BYTES and not whole):
            self.drop(connection)
        elif whole:
            try:
                word, _, about = hello.decode().partition(" ")
                known = json.loads(about) if word == "hello" else None
            except ValueError:
                known = None
            if not isinstance(known, dict):
                self.drop(connection)
                return
            del self._visitors[connection]
            self._selector.unregister(connection)
            self._admit(watched(connection), known, rest)

    def drop(self, connection: socket.socket) -> None:
        """Close a visitor's connection."""
        del self._visitors[connection]
        self._selector.unregister(connection)
        connection.close()

    def close(self) -> None:
        """Let nobody in any more."""
        for connection in list(self._visitors):
            self.drop(connection)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()


class Visitor:
    """A connection that has not yet said who it is."""

    def __init__(self, gate: Gate, connection: socket.socket) -> None:
        self._gate = gate
        self._connection = connection
        self._said = b""

    def hear(self) -> bool:
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
            self._said += data
            self._gate.look_at(self._connection, self._said)
        return True


def _listener(host: str) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server((host, 0), backlog=1024)
