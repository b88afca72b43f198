"""A server on loopback that does wrong whatever a server can: each behaviour is a function of one connection.

A connection's request is read before its behaviour begins, but for those in UNREAD. A behaviour ends when the client
has gone or the server is closed; what it raises of sockets is nobody's. `/models` is answered well, but by MODELS.
"""

import contextlib
import gzip
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Self

Behaviour = Callable[[socket.socket, threading.Event], object]

DRIP_S = 0.05
BLOCK = 1 << 16
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = OK + b"Connection: close\r\n\r\n"
EVENT = b'data: {"id":"x","object":"text_completion","choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n'
EMPTY_EVENT = b'data: {"id":"x","object":"text_completion","choices":[]}\n\n'
LAST_EVENT = b'data: {"choices":[{"index":0,"text":" b","finish_reason":"length"}]}\n\n'
GOOD = {"choices": [{"index": 0, "text": " a b", "finish_reason": "length"}]}
LINGER_RESET = struct.pack("ii", 1, 0)


def sized(body: bytes, *more: str, status: str = "200 OK") -> bytes:
    """Return a whole reply."""
    lines = [f"HTTP/1.1 {status}", *more, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def says(data: bytes) -> Behaviour:
    """Send that, then wait for the client to go."""

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(data)
        wait(connection, over)

    return talk


def stream(*events: bytes) -> Behaviour:
    return says(CHUNKED + b"".join(map(chunk, events)) + b"0\r\n\r\n")


def endless(first: bytes, again: bytes) -> Behaviour:
    """Send `first`, then `again` as fast as it is taken."""
    block = again * max(1, BLOCK // len(again))

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(first)
        while not over.is_set():
            connection.sendall(block)

    return talk


def drip(first: bytes, again: bytes) -> Behaviour:
    """Send `first`, then the bytes of `again` one by one, again and again, slowly."""

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(first)
        while not over.is_set():
            for byte in again:
                connection.sendall(bytes([byte]))
                if over.wait(DRIP_S):
                    return

    return talk


def reset_after(data: bytes) -> Behaviour:
    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(data)
        over.wait(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)

    return talk


def closes_after(data: bytes) -> Behaviour:
    return lambda connection, over: connection.sendall(data)


def half_closes_after(data: bytes) -> Behaviour:
    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        wait(connection, over)

    return talk


def waits(connection: socket.socket, over: threading.Event) -> None:
    over.wait(120)


def wait(connection: socket.socket, over: threading.Event) -> None:
    """Read what comes until the client goes."""
    while not over.is_set() and connection.recv(BLOCK):
        pass


def usage(tokens: object) -> bytes:
    return sized(json.dumps(GOOD | {"usage": {"prompt_tokens": 128, "completion_tokens": tokens}}).encode())


def choices(connection: socket.socket, over: threading.Event) -> None:
    """Send the usage of ever another choice."""
    connection.sendall(CHUNKED)
    number = 0
    while not over.is_set():
        some = range(number, number + 1000)
        texts = (b'data: {"choices":[{"index":%d}],"usage":{"completion_tokens":1}}\n\n' % each for each in some)
        connection.sendall(b"".join(map(chunk, texts)))
        number += 1000


DEEP = b"[" * 3_000_000
SMALL_OBJECTS = b'{"choices":[' + b",".join([b"{}"] * 1_300_000) + b"]}"
KEYS = b"{" + b",".join(b'"%07x":1' % number for number in range(340_000)) + b"}"
RANDOM = os.urandom(BLOCK)

PLAIN: Mapping[str, Behaviour] = {
    "drips its status line": drip(b"", b"HTTP/1.1 200 OK" + b" " * 10_000),
    "drips headers": drip(OK, b"X-A: b\r\n"),
    "drips a body": drip(OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "drips chunks": drip(CHUNKED, b"1\r\nx\r\n"),
    "drips interim replies": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drips trailers": drip(CHUNKED + b"0\r\n", b"X-A: b\r\n"),
    "endless interim replies": endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "endless headers": endless(OK, b"X-A: b\r\n"),
    "endless header line": endless(OK + b"X-A: ", b"b"),
    "endless status line": endless(b"HTTP/1.1 200 ", b"O"),
    "endless chunk extension": endless(CHUNKED + b"1;", b"e"),
    "endless chunk extensions": endless(CHUNKED, b"1;" + b"e" * 1000 + b"\r\nx\r\n"),
    "endless trailers": endless(CHUNKED + b"0\r\n", b"X-A: b\r\n"),
    "endless small chunks": endless(CHUNKED, b"1\r\nx\r\n"),
    "endless body": endless(UNTIL_CLOSE, RANDOM),
    "endless zeros": endless(UNTIL_CLOSE, b"\0"),
    "endless body with a length": endless(OK + b"Content-Length: 999999999999999\r\n\r\n", b"x"),
    "endless body of an error": endless(b"HTTP/1.1 500 No\r\n\r\n", b"x"),
    "endless random bytes": endless(b"", RANDOM),
    "huge chunk": endless(CHUNKED + b"FFFFFFFFFFFFFFF\r\n", b"x"),
    "negative chunk size": says(CHUNKED + b"-5\r\nxxxxx\r\n0\r\n\r\n"),
    "chunk size of other letters": says(CHUNKED + b"0x5\r\nxxxxx\r\n0\r\n\r\n"),
    "chunk size of a million digits": says(CHUNKED + b"f" * 1_000_000 + b"\r\n"),
    "chunk without its end": says(CHUNKED + b"1\r\nxyz\r\n0\r\n\r\n"),
    "accepts and is silent": wait,
    "resets before its reply": reset_after(b""),
    "resets in its head": reset_after(OK + b"Content-Le"),
    "resets in its body": reset_after(OK + b"Content-Length: 100\r\n\r\nabc"),
    "resets in a chunk": reset_after(CHUNKED + b"64\r\nabc"),
    "resets after its reply": reset_after(sized(b"abc")),
    "closes without a reply": closes_after(b""),
    "closes in its body": closes_after(OK + b"Content-Length: 100\r\n\r\nabc"),
    "half-closes in its body": half_closes_after(OK + b"Content-Length: 100\r\n\r\nabc"),
    "half-closes after its reply": half_closes_after(sized(b"abc")),
    "longer than it says": says(OK + b"Content-Length: 3\r\n\r\nabcdefgh"),
    "two lengths": says(OK + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"),
    "negative length": says(OK + b"Content-Length: -3\r\n\r\nabc"),
    "length of 5,000 digits": says(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc"),
    "length and chunks": says(OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
    "says it closes and does not": says(OK + b"Connection: close\r\n\r\nabc"),
    "gzip bomb": says(sized(gzip.compress(bytes(1 << 26)), "Content-Encoding: gzip")),
    "204 with a body": says(sized(b"abc", status="204 No Content")),
    "304 with a body": says(sized(b"abc", status="304 Not Modified")),
    "redirects to itself": says(sized(b"", "Location: /v1/completions", status="302 Found")),
    "switches protocols": says(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    "status 000": says(sized(b"", status="000 Nothing")),
    "status 999": says(sized(b"", status="999 Much")),
    "HTTP/0.9": closes_after(b"<html>hello</html>"),
    "HTTP/2": says(b"\0\0\x12\x04\0\0\0\0\0" + bytes(18)),
    "TLS alert": closes_after(b"\x15\x03\x01\0\x02\x02\x46"),
    "replies that were not asked for": says(sized(b"abc") * 1000),
    "endless replies": endless(b"", sized(b"abc")),
    "NUL bytes": says(bytes(100_000)),
    "invalid UTF-8": says(sized(b"\xff\xfe\xc0\x80" * 1000)),
    "another content type": says(sized(b"<html>hello</html>", "Content-Type: text/html")),
}
"""What any client may meet."""

UNREAD: Mapping[str, Behaviour] = {
    "replies before it is asked": says(sized(b"abc")),
    "closes at once": closes_after(b""),
    "never reads": waits,
}
"""Behaviours that do not wait for a request."""

STREAMED: Mapping[str, Behaviour] = {
    "endless line": endless(CHUNKED + b"fffffffff\r\ndata: ", b"x"),
    "endless lines of one event": endless(CHUNKED, chunk(b"data: x\n")),
    "endless comments": endless(CHUNKED, chunk(b": still there\n\n")),
    "endless empty events": endless(CHUNKED, chunk(EMPTY_EVENT)),
    "endless content": endless(CHUNKED, chunk(EVENT)),
    "drips content": drip(CHUNKED, chunk(EVENT)),
    "event of 100 MB": endless(CHUNKED + b'5f5e100\r\ndata: {"choices": ["', b"y"),
    "deep event": stream(b"data: " + DEEP + b"\n\n"),
    "event of small objects": stream(b"data: " + SMALL_OBJECTS + b"\n\n"),
    "event of many keys": stream(b"data: " + KEYS + b"\n\n"),
    "event of invalid UTF-8": stream(EVENT, b'data: {"choices": ["\xff"]}\n\n', b"data: [DONE]\n\n"),
    "endless choices": choices,
    "endless errors": endless(CHUNKED, chunk(b'data: {"error":{"message":"no"}}\n\n')),
    "end mark without content": stream(b"data: [DONE]\n\n"),
    "streams and resets": reset_after(CHUNKED + chunk(EVENT) * 3),
    "more after its end": endless(CHUNKED + chunk(EVENT) + chunk(LAST_EVENT), chunk(b"data: [DONE]\n\n")),
}
"""What a client may meet that reads server-sent events."""

WHOLE: Mapping[str, Behaviour] = {
    "endless JSON": endless(UNTIL_CLOSE + b'{"choices":[', b"{},"),
    "deep JSON": says(sized(DEEP)),
    "JSON of small objects": says(sized(SMALL_OBJECTS)),
    "JSON of many keys": says(sized(KEYS)),
    "number of a million digits": says(sized(b'{"usage":{"completion_tokens":' + b"9" * 1_000_000 + b"}}")),
    "negative usage": says(usage(-5)),
    "usage of 1e26": says(usage(1e26)),
    "usage of 27 digits": says(usage(10**26)),
    "usage of words": says(usage("many")),
    "JSON that is an array": says(sized(b"[1, 2, 3]")),
    "JSON that is null": says(sized(b"null")),
}
"""What a client may meet that reads a reply whole."""

MODELS: Mapping[str, Behaviour] = {
    "deep": says(sized(DEEP)),
    "endless": endless(UNTIL_CLOSE, b"[" + b"x" * 100),
    "endless JSON": endless(UNTIL_CLOSE + b'{"data":[', b"{},"),
    "small objects": says(sized(SMALL_OBJECTS)),
    "drips": drip(OK + b"Content-Length: 1000\r\n\r\n", b" "),
    "drips a head": drip(OK, b"X-A: b\r\n"),
    "endless interim replies": endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "endless trailers": endless(CHUNKED + b"0\r\n", b"X-A: b\r\n"),
    "silent": wait,
    "not JSON": says(sized(b"hello")),
    "array": says(sized(b"[]")),
    "redirects to itself": says(sized(b"", "Location: /v1/models", status="302 Found")),
    "name that is an object": says(sized(b'{"data":[{"id":{"a":1}}]}')),
    "name of half a character": says(sized(b'{"data":[{"id":"\\ud800"}]}')),
    "name of 1 MB": says(sized(b'{"data":[{"id":"' + b"x" * 1_000_000 + b'"}]}')),
}
"""What may come of the question for the models of a server with the OpenAI API."""

A_MODEL = sized(b'{"data":[{"id":"m"}]}', "Connection: close")


class HostileServer:
    """Listens on a port of loopback; behaves so to completions, or to anything else than them with `models`."""

    def __init__(self, behaviour: Behaviour, *, unread: bool = False, models: bool = False) -> None:
        self._behaviour = behaviour
        self._unread = unread
        self._models = models
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._listening.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                connection, _ = self._listening.accept()
                self._open.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._unread:
                self._behaviour(connection, self._over)
                return
            request = connection.recv(BLOCK)
            asks_models = b"/models" in request[:100]
            if asks_models and not self._models:
                connection.sendall(A_MODEL)
            elif request:
                self._behaviour(connection, self._over)
        self._open.discard(connection)


@contextlib.contextmanager
def never_accepting() -> Iterator[int]:
    """Give a port that listens, whose queue of connections is full and stays so."""
    with contextlib.ExitStack() as held:
        listening = held.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
