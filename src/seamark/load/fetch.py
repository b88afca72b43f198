"""One HTTP request outside of a load: a probe, a page of figures, a question beforehand. Its deadline is total.

Name look-up aside, no server can make it last longer than it may or keep more than it may: connecting, TLS, sending
and every byte of the reply share one deadline, and the reply's size has the limits of http.py.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

from seamark.load.engine.http import MAX_BODY_BYTES, HttpDecoder, http_request
from seamark.model.failure import Failure

READ_BYTES = 1 << 16
SHOWN_BYTES = 80


class FetchError(ConnectionError):
    """What came is no HTTP/1.1, or more of it than is read."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A reply: its status, and its body as far as it was asked for. `whole` is false for one that was cut."""

    status: int
    body: bytes
    whole: bool


class _Kept(HttpDecoder):
    """Keeps the body of every reply, good or not."""

    def __init__(self, most_bytes: int, *, headless: bool) -> None:
        super().__init__(headless=headless, most_bytes=most_bytes)
        self._keep = True

    @property
    def body(self) -> bytes:
        """What came of the body."""
        return b"".join(self._body)

    def _too_large(self) -> bool:
        self.failure, self.keep_alive = Failure.REPLY_TOO_LARGE, False
        return True


def connect(host: str, port: int, tls: ssl.SSLContext | None, until_s: float) -> socket.socket:
    """Return a connection, made and shaken hands on by `until_s` of time.monotonic, whose time-out is what is left.

    Raises OSError: TimeoutError at the deadline, else that of the last of the host's addresses; ssl.SSLError.
    """
    refusal: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(until_s))
            connection.connect(address)
            connection.settimeout(_left(until_s))
            return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)
        except OSError as error:
            connection.close()
            refusal = error
            if isinstance(error, (ssl.SSLError, TimeoutError)):
                break
        except BaseException:
            connection.close()
            raise
    raise refusal


def fetch(
    host: str,
    port: int,
    path: str,
    *,
    limit_s: float,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    most_bytes: int = MAX_BODY_BYTES,
    head_alone: bool = False,
    cut: bool = False,
) -> Fetched:
    """Make one request over a connection of its own and return the reply, all of it within `limit_s` seconds.

    `head_alone` leaves when the status is known. A body of more than `most_bytes` is cut there with `cut`, else an
    error. Raises OSError: TimeoutError at the deadline, FetchError for what is no HTTP/1.1 or too large.
    """
    until_s = time.monotonic() + limit_s
    named = f"[{host}]" if ":" in host else host
    request = http_request(
        method, path, host=f"{named}:{port}", headers={**(headers or {}), "Connection": "close"}, body=body
    )
    with contextlib.closing(connect(host, port, tls, until_s)) as connection:
        connection.sendall(request)
        return _read(connection, _Kept(most_bytes, headless=head_alone or method == "HEAD"), until_s, cut=cut)


def _read(connection: socket.socket, decoder: _Kept, until_s: float, *, cut: bool) -> Fetched:
    beginning, complete = b"", False
    while not complete:
        connection.settimeout(_left(until_s))
        data = connection.recv(READ_BYTES)
        beginning = beginning or data[:SHOWN_BYTES]
        if not data and not decoder.end_of_stream():
            raise FetchError(f"{_shown(beginning)} is no whole HTTP/1.1" if beginning else "closed without a byte")
        complete = not data or decoder.feed(data)
    if decoder.failure == Failure.PROTOCOL:
        raise FetchError(f"{_shown(beginning)} is no HTTP/1.1")
    whole = decoder.failure != Failure.REPLY_TOO_LARGE
    if not whole and not (cut and decoder.body_bytes):
        raise FetchError("more than is read of a reply")
    return Fetched(status=decoder.status, body=decoder.body, whole=whole)


def _left(until_s: float) -> float:
    """Return the seconds that are left. Raises TimeoutError where none are."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _shown(data: bytes) -> str:
    """Return the first line of what came, printable."""
    line = data.splitlines()[0].decode("latin-1")
    return "".join(letter if letter.isprintable() else "." for letter in line)
