"""A single HTTP request outside of a load (health probe, metrics page, calibration), with one deadline for
everything.

Connecting, TLS, sending and every byte of the reply share the deadline, and the reply has the size limits of http.py:
no server can exceed either. Only name look-up is not covered.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

from seamark.load.engine.http import MAX_BODY_BYTES, HttpDecoder, http_request, in_url
from seamark.model.sample import Failure

READ_BYTES = 1 << 16
SHOWN_BYTES = 80


class FetchError(ConnectionError):
    """The reply is not HTTP/1.1, or exceeds the size limit."""


class ClosedError(FetchError):
    """The connection was closed before the first byte of a reply, as by a server that ends."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A reply: its status, and its body as far as it was requested. `whole` is false for a cut one."""

    status: int
    body: bytes
    whole: bool


class BodyDecoder(HttpDecoder):
    """Keeps the body of every reply, successful or not."""

    def __init__(self, most_bytes: int, *, headless: bool) -> None:
        super().__init__(headless=headless, most_bytes=most_bytes)
        self._keep = True

    @property
    def body(self) -> bytes:
        """The body received so far."""
        return b"".join(self._body)

    def _too_large(self) -> bool:
        self.failure, self.keep_alive = Failure.REPLY_TOO_LARGE, False
        return True


def connect(host: str, port: int, tls: ssl.SSLContext | None, until_s: float) -> socket.socket:
    """Return a connection, TLS included, made by `until_s` of time.monotonic, with the remaining time as its
    time-out.

    Raises OSError: TimeoutError at the deadline, else the error of the host's last address; ssl.SSLError.
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
    """Make one request on a new connection and return the whole reply within `limit_s` seconds.

    `head_alone` returns as soon as the status is known. A body of more than `most_bytes` is cut there with `cut`,
    else an error. Raises OSError: TimeoutError at the deadline, FetchError for a reply that is not HTTP/1.1 or too
    large.
    """
    until_s = time.monotonic() + limit_s
    request = http_request(
        method, path, host=f"{in_url(host)}:{port}", headers={**(headers or {}), "Connection": "close"}, body=body
    )
    with contextlib.closing(connect(host, port, tls, until_s)) as connection:
        connection.sendall(request)
        return _read(connection, BodyDecoder(most_bytes, headless=head_alone or method == "HEAD"), until_s, cut=cut)


def _read(connection: socket.socket, decoder: BodyDecoder, until_s: float, *, cut: bool) -> Fetched:
    beginning, complete = b"", False
    while not complete:
        connection.settimeout(_left(until_s))
        data = connection.recv(READ_BYTES)
        beginning = beginning or data[:SHOWN_BYTES]
        if not data and not decoder.end_of_stream():
            if not beginning:
                raise ClosedError("closed without a byte")
            raise FetchError(f"{_shown(beginning)} is no whole HTTP/1.1")
        complete = not data or decoder.feed(data)
    if decoder.failure == Failure.PROTOCOL:
        raise FetchError(f"{_shown(beginning)} is no HTTP/1.1")
    whole = decoder.failure != Failure.REPLY_TOO_LARGE
    if not whole and not (cut and decoder.body_bytes):
        raise FetchError("more than is read of a reply")
    return Fetched(status=decoder.status, body=decoder.body, whole=whole)


def _left(until_s: float) -> float:
    """Return the seconds left. Raises TimeoutError if none are."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def _shown(data: bytes) -> str:
    """Return the first line received, printable."""
    line = data.splitlines()[0].decode("latin-1")
    return "".join(letter if letter.isprintable() else "." for letter in line)
