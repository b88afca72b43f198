"""S3 at the speed of the server: requests signed before the clock, sent over the generator's own connections.

The bucket is filled in s3_objects.py with boto3, which is too slow for the hot path.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from seamark.drivers import s3_objects
from seamark.load.driver import Body, Target
from seamark.load.engine.http import HttpDecoder, http_request
from seamark.model.failure import Failure
from seamark.model.service import Value

GET, PUT = "get", "put"
KINDS = {"get": (GET,), "put": (PUT,), "mixed": (GET, PUT)}
MAX_BODIES = 1 << 14
"""Signing takes a few tenths of a millisecond a request."""


class S3:
    """GET and PUT of whole objects of one size by presigned URLs, path style, plain HTTP."""

    unit = "operation"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._operation = str(target.settings["operation"])
        self._object_bytes = _int(target.settings, "object_bytes")
        self._objects = _int(target.settings, "objects")
        self._bucket = str(target.settings["bucket"])
        self._host = f"{target.host}:{target.ports['main']}"
        self.kinds: Sequence[str] = KINDS[self._operation]

    @property
    def body_count(self) -> int:
        """Different requests: each object once for each kind, as far as signing them takes seconds at most."""
        return min(self._objects, MAX_BODIES) * len(self.kinds)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests: every object once in random order; PUTs have keys of their own."""
        random = np.random.default_rng(seed)
        each = -(-count // len(self.kinds))
        content = []
        for kind, name in enumerate(self.kinds):
            keys = random.permutation(self._objects)[np.arange(each) % self._objects]
            content += [(kind, name, key) for key in keys.tolist()]
        order = random.permutation(len(content)) if len(self.kinds) > 1 else np.arange(len(content))
        chosen = [content[at] for at in order.tolist()[:count]]
        return [Body(content=(name, s3_objects.key_of(name, key)), kind=kind) for kind, name, key in chosen]

    def address(self) -> tuple[str, int]:
        """Return host and port of the endpoint."""
        return self._target.host, self._target.ports["main"]

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the request, signed for as long as S3 allows (7 days); every PUT has the same payload behind it."""
        name, key = body.content
        path = self._signer.path(name.upper(), f"/{self._bucket}/{key}")
        if name == GET:
            return http_request("GET", path, host=self._host)
        headers = {"Content-Length": str(self._object_bytes)}
        return http_request("PUT", path, host=self._host, headers=headers), self._payload

    def decoder(self) -> "ObjectDecoder":
        """Return a decoder that knows how long an object is."""
        return ObjectDecoder(self._object_bytes, may_get=GET in self.kinds, may_put=PUT in self.kinds)

    @cached_property
    def _signer(self) -> s3_objects.Signer:
        return s3_objects.Signer(self._target)

    @cached_property
    def _payload(self) -> bytes:
        """What every PUT sends: random, so that nothing can compress it."""
        return s3_objects.payload(self._object_bytes)


class ObjectDecoder(HttpDecoder):
    """Takes a good reply only when it is a whole object, or an empty answer to a PUT.

    Only a GET's reply says when the object was last modified, which tells the two apart on one connection.
    """

    __slots__ = ("_is_object", "_may_get", "_may_put", "_object_bytes")

    def __init__(self, object_bytes: int, *, may_get: bool, may_put: bool) -> None:
        self._object_bytes = object_bytes
        self._may_get = may_get
        self._may_put = may_put
        super().__init__()

    def reset(self) -> None:
        """Make ready for the next reply."""
        super().reset()
        self._is_object = False

    def feed(self, data: bytes) -> bool:
        """Take bytes as they arrived; a good reply of the wrong length is a wrong reply."""
        complete = super().feed(data)
        if complete and self.failure == Failure.NONE and not self._as_expected():
            self.units = 0
            self.failure = Failure.WRONG_REPLY
        return complete

    def _head(self, head: bytes) -> bool:
        self._is_object = b"\r\nlast-modified:" in head.lower()
        return super()._head(head)

    def _as_expected(self) -> bool:
        if self._is_object:
            return self._may_get and self.body_bytes == self._object_bytes
        return self._may_put and self.body_bytes == 0


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make the bucket and the objects that are read."""
    return s3_objects.fill(target)


def _int(settings: Mapping[str, Value], name: str) -> int:
    value = settings[name]
    assert isinstance(value, int)
    return value
