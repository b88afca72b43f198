"""Incremental HTTP/1.1 decoder for wire drivers, and the encoding of requests. Independent of the service."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from seamark.load.driver import EndedByClose
from seamark.model.sample import Failure

MAX_HEAD_BYTES = 1 << 16
"""Limit for the heads of a reply including interim ones (1xx), for the line of a chunk size, and for all trailers."""
MAX_BODY_BYTES = 1 << 22
"""Limit for a body that is kept: a JSON document of that size takes up to thirty times the memory to parse."""
MOST_SAID_BYTES = 1 << 12
"""Limit for what is kept of a failed reply."""
MOST_LENGTH_DIGITS = 18
MOST_SIZE_DIGITS = 16
STARTS = b"HTTP/1."
LENGTH = b"\r\ncontent-length:"
PHRASES = {status.value: status.phrase for status in HTTPStatus}
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
NO_FAILURE = Failure.NONE
"""A module constant, as an attribute look-up in an enumeration takes longer than the rest of a reset."""


def in_url(host: str) -> str:
    """Return a host as it stands in a URL: an address of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def http_request(
    method: str, path: str, *, host: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> bytes:
    """Return the bytes of one HTTP/1.1 request. Content-Length is added for a body, and Host unless the caller has
    it; every other header is the caller's."""
    headers = headers or {}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [] if any(name.lower() == "host" for name in headers) else [f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


class HttpDecoder(EndedByClose):
    """Decodes a sequence of HTTP/1.1 replies, split at any place: Content-Length, chunked, until close.

    `units_of(status, body)` returns the units of a successful (2xx) reply; ValueError means a wrong reply, 0 an empty
    one. Without it a successful reply is one unit and its body is counted but not kept, whatever its size. 3xx is a
    wrong reply, 4xx a client error, 5xx a server error. `headless` is for methods whose replies have no body (HEAD).

    A reply with more than MAX_HEAD_BYTES of heads, chunk line or trailers, or with a kept body of more than
    `most_bytes`, is too large: decoding stops and the connection is closed.

    Heads of one server differ in little but the date's second, so a reply that arrives in one read with the same head
    as the last one is not parsed again. A subclass with its own `_head` is called for every head.
    """

    streams = False
    """A reply counts as a whole: there is no separate first unit."""

    counted = True
    """The units of a successful reply are counted here, not reported by the server."""

    __slots__ = (
        "_body",
        "_cached_bytes",
        "_cached_head",
        "_cached_status",
        "_caches_heads",
        "_chunked",
        "_head_bytes",
        "_headless",
        "_keep",
        "_left",
        "_most_bytes",
        "_pending",
        "_state",
        "_units_of",
        "_used",
        "body_bytes",
        "failure",
        "keep_alive",
        "status",
        "units",
    )

    def __init__(
        self,
        units_of: Callable[[int, bytes], int] | None = None,
        *,
        headless: bool = False,
        most_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._units_of = units_of
        self._most_bytes = most_bytes
        self._keep = units_of is not None
        self._headless = headless
        self._caches_heads = type(self)._head is HttpDecoder._head
        self._cached_head = b""
        self._cached_bytes = -1
        self._cached_status = 0
        self._used = True
        self.reset()

    def reset(self) -> None:
        """Prepare for the next reply on the same connection."""
        self.units = 0
        self.status = 0
        self.body_bytes = 0
        if not self._used:
            return
        self._used = False
        self.failure = NO_FAILURE
        self.keep_alive = True
        self._state = _HEAD
        self._head_bytes = 0
        self._left = 0
        self._chunked = False
        self._pending = b""
        self._body: list[bytes] = []

    @property
    def error(self) -> str | None:
        """What a failed reply says, as `503 Service Unavailable: words`; None without a status."""
        if not self.status:
            return None
        said = b"".join(self._body)[:MOST_SAID_BYTES].decode(errors="replace")
        name = self.failure.name.lower() if self.status < 300 else PHRASES.get(self.status, "")
        code = f"{self.status} {name}".rstrip()
        return f"{code}: {said}" if said and said.count(UNREADABLE) * 10 <= len(said) else code

    def feed(self, data: bytes) -> bool:
        """Process received bytes; return True when the reply is complete, successful or not."""
        if not self._used:
            if len(data) == self._cached_bytes and data.startswith(self._cached_head):
                return self._as_before(data)
            self._used = True
            if not self._caches_heads:
                return self._feed(data)
            complete = self._feed(data)
            if complete and self.keep_alive and self._state == _BODY:
                self._cached_head = data[: len(data) - self.body_bytes]
                self._cached_bytes = len(data)
                self._cached_status = self.status
            return complete
        return self._feed(data)

    def _as_before(self, data: bytes) -> bool:
        """Take a whole reply whose head is that of the last one."""
        self.status = self._cached_status
        if self._keep or not 200 <= self.status < 300:
            self._used = True
            self._state = _BODY
            self._take(data[len(self._cached_head) :])
            return self._whole()
        self.body_bytes = self._cached_bytes - len(self._cached_head)
        self.units = 1
        return True

    def _feed(self, data: bytes) -> bool:
        """Take bytes, head or body."""
        if self._state == _BODY and not self._chunked:
            return self._sized(data)
        if self._pending:
            data = self._pending + data
            self._pending = b""
        while self._state == _HEAD:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if not data.startswith(STARTS[: len(data)]):
                    return self._broken()
                if self._head_bytes + len(data) > MAX_HEAD_BYTES:
                    return self._too_large()
                self._pending = data
                return False
            self._head_bytes += end + 4
            if self._head_bytes > MAX_HEAD_BYTES:
                return self._too_large()
            if not self._head(data[:end]):
                return self._broken()
            data = data[end + 4 :]
        if self._chunked:
            return self._chunks(data)
        return self._sized(data)

    def end_of_stream(self) -> bool:
        """The connection ended: return True when that makes the reply complete (a body without a length)."""
        if self._state == _UNTIL_CLOSE:
            self.keep_alive = False
            return self._whole()
        return False

    def _head(self, head: bytes) -> bool:
        """Read the status line and the headers; return False when they are not HTTP."""
        if head[:7] != STARTS or not head[9:12].isdigit():
            return False
        self.status = int(head[9:12])
        if self.status < 200:
            if self.status < 100 or self.status == 101:
                return False
            self.status = 0
            return True
        fields = head.lower()
        self.keep_alive = head[7:8] == b"1"
        connection = field_of(fields, b"\r\nconnection:")
        if connection is not None:
            self.keep_alive = b"close" not in connection and (self.keep_alive or b"keep-alive" in connection)
        self._state = _BODY
        if self._headless or self.status in (204, 304):
            return True
        coding = field_of(fields, b"\r\ntransfer-encoding:")
        if coding is not None and coding.endswith(b"chunked"):
            self._chunked = True
            self._state = _CHUNK_SIZE
            return True
        length = field_of(fields, LENGTH)
        if length is None:
            self._state = _UNTIL_CLOSE
        elif (
            length.isdigit()
            and len(length) <= MOST_LENGTH_DIGITS
            and (fields.count(LENGTH) == 1 or _agree(fields, length))
        ):
            self._left = int(length)
        else:
            return False
        return True

    def _sized(self, data: bytes) -> bool:
        """Process bytes of a body with a stated length, or of one that ends with the connection."""
        if self._state == _UNTIL_CLOSE:
            return self._take(data) and self._too_large()
        if len(data) > self._left:
            data = data[: self._left]
            self.keep_alive = False  # unexpected bytes: the connection is in an unknown state
        self._left -= len(data)
        if self._take(data):
            return self._too_large()
        return self._left == 0 and self._whole()

    def _chunks(self, data: bytes) -> bool:
        at = 0
        while True:
            if self._state == _BODY:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._take(piece):
                    return self._too_large()
                if self._left:
                    return False
                self._state = _CHUNK_END
            end = data.find(b"\r\n", at)
            if end < 0:
                self._pending = data[at:]
                return len(self._pending) > MAX_HEAD_BYTES and self._too_large()
            line, at = data[at:end], end + 2
            if self._state == _CHUNK_END:
                if line:
                    return self._broken()
                self._state = _CHUNK_SIZE
            elif self._state == _CHUNK_SIZE:
                digits = line.split(b";", 1)[0].strip()
                if not 0 < len(digits) <= MOST_SIZE_DIGITS or digits.strip(b"0123456789abcdefABCDEF"):
                    return self._broken()
                self._left = int(digits, 16)
                self._state = _BODY if self._left else _TRAILER
                self._head_bytes = 0
            elif line:
                self._head_bytes += len(line) + 2
                if self._head_bytes > MAX_HEAD_BYTES:
                    return self._too_large()
            else:  # the empty line after the last chunk and its trailers
                if at < len(data):
                    self.keep_alive = False
                return self._whole()

    def _take(self, data: bytes) -> bool:
        """Process a piece of the body; return whether it exceeds the limit of a kept body."""
        self.body_bytes += len(data)
        if self._keep and data:
            self._body.append(data)
            return self.body_bytes + self._left > self._most_bytes
        if self.status >= 300 and self.body_bytes - len(data) < MOST_SAID_BYTES:
            self._body.append(data)
        return False

    def _whole(self) -> bool:
        status = self.status
        if 200 <= status < 300:
            if self._units_of is None:
                self.units = 1
                return True
            try:
                self.units = self._units_of(status, b"".join(self._body))
            except ValueError:
                self.failure = Failure.WRONG_REPLY
                return True
            if self.units == 0:
                self.failure = Failure.EMPTY_REPLY
        elif status < 400:
            self.failure = Failure.WRONG_REPLY
        elif status < 500:
            self.failure = Failure.CLIENT_ERROR
        else:
            self.failure = Failure.SERVER_ERROR
        return True

    def _too_large(self) -> bool:
        """End the reply here and discard the rest."""
        self.failure = self.failure or Failure.REPLY_TOO_LARGE
        self.keep_alive = False
        self._pending = b""
        self._body.clear()
        return True

    def _broken(self) -> bool:
        self.failure = Failure.PROTOCOL
        self.keep_alive = False
        return True


_HEAD, _BODY, _UNTIL_CLOSE, _CHUNK_SIZE, _CHUNK_END, _TRAILER = range(6)


def _agree(fields: bytes, length: bytes) -> bool:
    """Return whether a lower-case head with several content lengths states this one in all of them."""
    return all(part.partition(b"\r\n")[0].strip() == length for part in fields.split(LENGTH)[1:])


def field_of(fields: bytes, name: bytes) -> bytes | None:
    """Return the value of a header in a lower-case head, or None. `name` is b"\\r\\nname:"."""
    at = fields.find(name)
    if at < 0:
        return None
    at += len(name)
    end = fields.find(b"\r\n", at)
    return (fields[at:] if end < 0 else fields[at:end]).strip()
