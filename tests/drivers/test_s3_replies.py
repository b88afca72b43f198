"""What counts as a good reply of S3, and uploads in parts over one connection."""

import asyncio
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import uvloop

from seamark.drivers.s3_replies import Asked, Expected, ObjectDecoder, upload
from seamark.load.engine.connection import Connection, Outgoing
from seamark.load.engine.http import http_request
from seamark.model.sample import Failure

CONTENT = bytes(range(256)) * 50
EXPECTED = {
    "get": Expected(length=1000),
    "checked": Expected(length=1000, content=CONTENT[:1000]),
    "range": Expected(length=1000, content=CONTENT, start=300),
    "put": Expected(),
    "delete": Expected(),
    "head": Expected(length=1000, headless=True),
    "list": Expected(keys=2),
}
WHOLE, PART = CONTENT[:1000], CONTENT[300:1300]
DIFFERS = WHOLE[:-1] + b"!"
TWO, ONE = b"<Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents>", b"<Contents><Key>a</Key></Contents>"


def reply(status: int, body: bytes = b"", *, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def asked(method: str, path: str, expected: Expected, headers: dict[str, str] | None = None) -> Asked:
    return Asked(http_request(method, path, host="h", headers=headers), expected)


def decoded(decoder: ObjectDecoder, data: bytes, cut_bytes: int) -> None:
    decoder.reset()
    for at in range(0, len(data), cut_bytes):
        if decoder.feed(data[at : at + cut_bytes]):
            return
    assert decoder.end_of_stream()


@pytest.mark.covers("E-FR18")
@pytest.mark.parametrize("cut_bytes", [1, 7, 4096])
@pytest.mark.parametrize(
    ("data", "good_for"),
    [
        (reply(200, WHOLE), {"get", "checked", "head"}),
        (reply(200, DIFFERS), {"get", "head"}),
        (reply(200, PART), {"get", "range", "head"}),
        (reply(206, PART), {"get", "range", "head"}),
        (reply(206, CONTENT[301:1301]), {"get", "head"}),
        (reply(200, WHOLE[:-1]), set()),
        (reply(200), {"put", "delete"}),
        (reply(204), {"put", "delete"}),
        (reply(200, TWO), {"list"}),
        (reply(200, ONE), set()),
        (b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE[:-1], set()),
        (reply(404, b"no!"), set()),
        (reply(503), set()),
    ],
)
def test_a_reply_is_good_only_for_the_request_that_it_answers(
    data: bytes, good_for: set[str], cut_bytes: int
) -> None:
    decoder = ObjectDecoder()
    good = set()
    for name, expected in EXPECTED.items():
        decoder.reset()
        decoder.expect((asked("GET", "/", expected), b"payload"))
        decoded(decoder, data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if name == "head" else data, cut_bytes)
        assert decoder.units == int(decoder.failure == Failure.NONE)
        good |= {name} if decoder.units else set()
    assert good == good_for


@pytest.mark.covers("E-FR18")
@pytest.mark.parametrize(
    ("replies", "ends"),
    [
        ([200, 200, 200, 200], Failure.NONE),
        ([200, 200, 503], Failure.SERVER_ERROR),
        (["no id"], Failure.WRONG_REPLY),
        ([200, 200, 200, "error under 200"], Failure.WRONG_REPLY),
    ],
)
def test_an_upload_in_parts_is_good_only_when_it_is_completed(replies: list[int | str], ends: Failure) -> None:
    decoder, sent = ObjectDecoder(), []
    decoder.expect(asked("POST", "/k?uploads=", Expected(upload=lambda: upload(asked, "/k", CONTENT, 10_000))))
    bodies = [b"<R><UploadId>a&amp;b/1</UploadId></R>", b"", b"", b"<CompleteMultipartUploadResult/>"]
    for number, answer in enumerate(replies):
        assert decoder.failure == Failure.NONE
        if isinstance(answer, str):
            decoded(decoder, reply(200, b"<Error/>"), 5)
        else:
            decoded(decoder, reply(answer, bodies[number], headers=f'ETag: "Etag{number}"\r\n'), 5)
        sent.append(decoder.further())
    assert decoder.failure == ends
    assert sent[-1] is None
    if ends == Failure.NONE:
        assert b"".join(sent[0][1:] + sent[1][1:]) == CONTENT
        assert b"/k?partNumber=2&uploadId=a%26b%2F1 " in sent[1][0]
        assert re.findall(rb"<PartNumber>(\d)</PartNumber><ETag>(.+?)</ETag>", sent[2][1]) == [
            (b"1", b'"Etag1"'),
            (b"2", b'"Etag2"'),
        ]


class Parts(BaseHTTPRequestHandler):
    """A store that begins uploads, keeps their parts and completes them."""

    protocol_version = "HTTP/1.1"
    parts: list[bytes]
    closes_after = 100

    def do_POST(self) -> None:
        self._take()
        self._reply(b"<UploadId>1</UploadId>" if "uploads" in self.path else b"<CompleteMultipartUploadResult/>")

    def do_PUT(self) -> None:
        self.parts.append(self._take())
        if len(self.parts) == self.closes_after:
            self.close_connection = True
        self._reply(b"")

    def _take(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"x"')
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


class Owner:
    """Sends requests one after another on a connection, and notes the sizes and ends."""

    in_pieces = keeps_replies = False
    due_ns = check_ns = 1 << 62

    def __init__(self, requests: list[Outgoing]) -> None:
        self.requests, self.seen = requests, []
        self.done = asyncio.get_running_loop().create_future()

    def go_on(self, connection: Connection) -> None:
        connection.begin(0, 0, time.monotonic_ns(), self.requests[len(self.seen)])

    def ended(self, connection: Connection, now_ns: int, units: int, status: int, failure: Failure) -> None:
        self.seen.append((failure, units, connection.request.size_bytes))
        if failure or len(self.seen) == len(self.requests):
            self.done.set_result(None)
        else:
            self.go_on(connection)

    def check_timeouts(self, now_ns: int) -> None: ...

    def on_overdue(self) -> None: ...


@pytest.mark.covers("E-FR18")
@pytest.mark.parametrize("closes_after", [100, 1])
@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_the_exchanges_of_an_upload_are_one_request_of_the_load(new_loop, closes_after: int) -> None:
    store = type("Store", (Parts,), {"parts": [], "closes_after": closes_after})
    server = HTTPServer(("127.0.0.1", 0), store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    content = CONTENT * 1000  # more than a socket takes at once
    begin = asked("POST", "/k?uploads=", Expected(upload=lambda: upload(asked, "/k", content, 6_000_000)))

    async def load() -> Owner:
        owner = Owner([Outgoing(begin, len(begin), 0)] * 2)
        connection = Connection(owner, ObjectDecoder())
        await asyncio.get_running_loop().create_connection(lambda: connection, *server.server_address)
        owner.go_on(connection)
        await asyncio.wait_for(owner.done, 30)
        connection.close()
        return owner

    with asyncio.Runner(loop_factory=new_loop) as runner:
        seen = runner.run(load()).seen
    server.shutdown()
    server.server_close()
    if closes_after == 1:
        assert [(failure, units) for failure, units, _ in seen] == [(Failure.RESET, 0)]
        return
    assert [(failure, units) for failure, units, _ in seen] == [(Failure.NONE, 1)] * 2
    assert b"".join(store.parts) == content * 2
    assert all(len(content) < size < len(content) + 2000 for _, _, size in seen)
