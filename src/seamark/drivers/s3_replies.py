"""What the reply to each S3 request has to be, and the decoder that holds it against that. No signing, no keys."""

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Protocol
from urllib.parse import quote

from seamark.load.engine.connection import Conversing
from seamark.load.engine.http import LENGTH, HttpDecoder, field_of
from seamark.model.sample import Failure

PAGE = 1000
"""Keys of a listing: the most that S3 gives at once."""
ETAG = re.compile(rb"\r\netag: *([^\r]+)", re.IGNORECASE)
UPLOAD_ID = re.compile(rb"<UploadId>([^<]+)</UploadId>")

Exchanges = Generator[tuple[bytes | memoryview, ...], tuple[bytes, str], None]
"""Yields the further requests of an operation, and gets body and ETag of the reply before each. Raises ValueError for
a wrong reply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """A good reply: `length` of its body, or with HEAD (`headless`) of the object; of a listing the fewest `keys`.

    `content` has the object, of which the body is a part from `start`; None: not compared. `upload` makes the
    exchanges that follow the first.
    """

    length: int = 0
    headless: bool = False
    content: bytes | None = None
    start: int = 0
    keys: int | None = None
    upload: Callable[[], Exchanges] | None = None


class Asked(bytes):
    """A request, without its payload, that carries what its reply has to be."""

    expected: Expected

    def __new__(cls, request: bytes, expected: Expected) -> "Asked":
        """Return the bytes with their expectation."""
        made = super().__new__(cls, request)
        made.expected = expected
        return made


class Ask(Protocol):
    """Signs and encodes a request without its payload."""

    def __call__(
        self, method: str, path: str, expected: Expected, headers: Mapping[str, str] | None = None
    ) -> bytes: ...


def upload(ask: Ask, path: str, payload: bytes, part_bytes: int) -> Exchanges:
    """Put a payload in parts, one after another, once the server has begun the upload."""
    body, _ = yield ()
    if (begun := UPLOAD_ID.search(body)) is None:
        raise ValueError("no UploadId")
    upload_id = quote(unescape(begun[1].decode()), safe="~")
    content, etags = memoryview(payload), []
    for number, at in enumerate(range(0, len(payload), part_bytes), start=1):
        part = content[at : at + part_bytes]
        headers = {"Content-Length": str(len(part))}
        signed = ask("PUT", f"{path}?partNumber={number}&uploadId={upload_id}", Expected(), headers)
        _, etag = yield signed, part
        etags.append(etag)
    listed = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
        for number, etag in enumerate(etags, start=1)
    )
    document = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    headers = {"Content-Length": str(len(document)), "Content-Type": "application/xml"}
    body, _ = yield ask("POST", f"{path}?uploadId={upload_id}", Expected(), headers), document
    if b"<CompleteMultipartUploadResult" not in body:  # S3 says an error under status 200 here
        raise ValueError("not completed")


class ObjectDecoder(HttpDecoder, Conversing):
    """Accepts a reply only if it is what its request is for."""

    __slots__ = ("_differs", "_etag", "_expected", "_further", "_length", "_upload")

    def __init__(self) -> None:
        self._expected = Expected()
        self._upload: Exchanges | None = None
        super().__init__()

    def reset(self) -> None:
        """Make ready for the next reply."""
        super().reset()
        self._differs = False
        self._etag = ""
        self._length: int | None = None
        self._further: tuple[bytes | memoryview, ...] | None = None

    def expect(self, request: bytes | tuple[bytes, ...]) -> None:
        """Take from a request what its reply has to be."""
        head = request if isinstance(request, bytes) else request[0]
        assert isinstance(head, Asked)
        expected = self._expected = head.expected
        self._headless = expected.headless
        self._upload = None
        if expected.upload is not None:
            self._upload = expected.upload()
            next(self._upload)
        self._keep = expected.upload is not None or expected.keys is not None

    def further(self) -> tuple[bytes | memoryview, ...] | None:
        """Return the next request of an upload in parts."""
        return self._further

    def _head(self, head: bytes) -> bool:
        if self._headless:
            stated = field_of(head.lower(), LENGTH)
            self._length = int(stated) if stated and stated.isdigit() else None
        elif self._upload is not None and (found := ETAG.search(head)):
            self._etag = found[1].decode("latin-1")
        return super()._head(head)

    def _take(self, data: bytes) -> bool:
        expected = self._expected
        if expected.content is not None and not expected.content.startswith(data, expected.start + self.body_bytes):
            self._differs = True
        return super()._take(data)

    def _whole(self) -> bool:
        super()._whole()
        if not self.failure and not self._as_expected():
            self.units = 0
            self.failure = Failure.WRONG_REPLY
        return True

    def _as_expected(self) -> bool:
        expected = self._expected
        if self._upload is not None:
            return self._goes_on(self._upload)
        if expected.keys is not None:
            return expected.keys <= b"".join(self._body).count(b"<Key>") <= PAGE
        length = self._length if expected.headless else self.body_bytes
        return length == expected.length and not self._differs  # rclone answers a range with 200

    def _goes_on(self, exchanges: Exchanges) -> bool:
        try:
            self._further = exchanges.send((b"".join(self._body), self._etag))
        except StopIteration:
            pass
        except ValueError:
            return False
        return True
