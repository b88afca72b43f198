"""S3 at the speed of the server: requests signed before the clock, sent over the generator's own connections.

The bucket is filled with boto3, which is too slow for the hot path. It lies in the service's environment alone, so it
is imported where it is used.
"""

import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.errors import SiteError
from seamark.load.driver import Body, Hooks, Target, Wire, whole
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.model.sample import Failure
from seamark.model.service import Value
from seamark.platform.tls import UNVERIFIED, tls_context

if TYPE_CHECKING:
    from botocore.credentials import Credentials

EXPIRES_S = 7 * 24 * 3600
PAYLOAD_SEED = 42
PIECE_BYTES = 1 << 24
SPARE_BYTES = 1 << 28
UPLOADS_AT_ONCE = 8


def key_of(kind: str, number: int) -> str:
    """Return the key of an object: read and written objects have different prefixes."""
    return f"{kind}/{number:07d}"


def payload(size_bytes: int) -> bytes:
    """Return the content of every object of that size, built in pieces, so that a gibibyte is not held twice."""
    random = np.random.default_rng(PAYLOAD_SEED)
    content = io.BytesIO()
    for at in range(0, size_bytes, PIECE_BYTES):
        content.write(random.bytes(min(PIECE_BYTES, size_bytes - at)))
    return content.getvalue()


def credentials(target: Target) -> "Credentials":
    """Return the keys created for this run, or those of the AWS_* variables for a server that Seamark did not start.

    Raises SiteError if there are none.
    """
    from botocore.credentials import Credentials

    own = target.data / "credentials"
    if own.exists():
        return Credentials(*own.read_text(encoding="ascii").strip().split(","))
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise SiteError(
            f"s3: no credentials for {target.host}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "(and AWS_SESSION_TOKEN if need be) in the environment."
        )
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN"))


def region() -> str:
    """Return the region that signatures name."""
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def endpoint(target: Target, bucket: str = "") -> str:
    """Return the URL of the service, or of a bucket that has a host name of its own there, as signatures have it:
    without the usual port."""
    scheme, usual = ("http", 80) if target.settings.get("tls") is None else ("https", 443)
    port = target.ports["main"]
    host = f"{bucket}.{target.host}" if bucket else in_url(target.host)
    return f"{scheme}://{host}" if port == usual else f"{scheme}://{host}:{port}"


def signer(target: Target, endpoint: str) -> Callable[[str, str], str]:
    """Return a function that signs a method and a path in advance (SigV4 in the query, payload unsigned); it returns
    the path with its signature, as in a request line."""
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    auth = S3SigV4QueryAuth(credentials(target), "s3", region(), expires=EXPIRES_S)

    def signed(method: str, path: str) -> str:
        request = AWSRequest(method=method, url=endpoint + path)
        auth.add_auth(request)
        url: str = request.prepare().url
        return url.removeprefix(endpoint)

    return signed


def client(target: Target) -> Any:
    """Return boto3's client of the endpoint."""
    import boto3
    from botocore.client import Config

    keys, settings = credentials(target), target.settings
    return boto3.client(
        "s3",
        endpoint_url=endpoint(target),
        verify=False if settings.get("tls") == UNVERIFIED else settings.get("tls_ca_file"),
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
        region_name=region(),
        config=Config(
            s3={"addressing_style": settings.get("addressing") or PATH},
            max_pool_connections=UPLOADS_AT_ONCE,
            retries={"max_attempts": 3},
            request_checksum_calculation="when_required",  # else in a form that many endpoints store as content
            response_checksum_validation="when_required",
        ),
    )


def _require_room(target: Target, needed: int) -> None:
    free = shutil.disk_usage(target.data).free
    if needed + SPARE_BYTES > free:
        raise SiteError(
            f"s3: {target.data} has {free:,} bytes free; {needed:,} for objects read and written and {SPARE_BYTES:,} "
            "to spare do not fit. Lower `objects` or `object_bytes`."
        )


PATH, VIRTUAL = "path", "virtual"
"""Where the bucket is named: first in the path, or first in the host name."""
GET, PUT = "get", "put"
KINDS = {"get": (GET,), "put": (PUT,), "mixed": (GET, PUT)}
MAX_BODIES = 1 << 14
"""Signing takes a few tenths of a millisecond per request."""


class S3(Wire):
    """GET and PUT of whole objects of one size by presigned URLs."""

    unit = "operation"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._operation = str(target.settings["operation"])
        self._object_bytes = whole(target.settings, "object_bytes")
        self._objects = whole(target.settings, "objects")
        bucket = str(target.settings["bucket"])
        virtual = target.settings.get("addressing") == VIRTUAL
        self._endpoint = endpoint(target, bucket if virtual else "")
        self._host = self._endpoint.partition("://")[2]
        self._prefix = "" if virtual else f"/{bucket}"
        self.tls = tls_context(target.settings)
        self.kinds: Sequence[str] = KINDS[self._operation]
        self.body_count = min(self._objects, MAX_BODIES) * len(self.kinds)
        """Each object once per kind, as far as signing takes at most seconds."""

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
        return [Body(content=(name, key_of(name, key)), kind=kind) for kind, name, key in chosen]

    def address(self) -> tuple[str, int]:
        """Return host and port of the endpoint."""
        return self._target.host, self._target.ports["main"]

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the request, signed for as long as S3 allows (7 days); every PUT has the same payload behind it."""
        name, key = body.content
        path = self._signed(name.upper(), f"{self._prefix}/{key}")
        if name == GET:
            return http_request("GET", path, host=self._host)
        headers = {"Content-Length": str(self._object_bytes)}
        return http_request("PUT", path, host=self._host, headers=headers), self._payload

    def decoder(self) -> "ObjectDecoder":
        """Return a decoder that knows the length of an object."""
        return ObjectDecoder(self._object_bytes, may_get=GET in self.kinds, may_put=PUT in self.kinds)

    @cached_property
    def _signed(self) -> Callable[[str, str], str]:
        return signer(self._target, self._endpoint)

    @cached_property
    def _payload(self) -> bytes:
        """What every PUT sends: random, so that nothing can compress it."""
        return payload(self._object_bytes)


class ObjectDecoder(HttpDecoder):
    """Accepts a reply only if it is a whole object, or an empty answer to a PUT.

    Only a GET's reply has the object's modification time, which distinguishes the two on one connection.
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
    """Create the bucket if missing and put every object that will be read, large ones in parts.

    Returns counts, bytes and seconds. Raises SiteError if the embedded server's disk is too small for the objects to
    be read and written.
    """
    from boto3.s3.transfer import TransferConfig
    from botocore.exceptions import ClientError

    settings = target.settings
    bucket = settings["bucket"]
    objects, size, part = (whole(settings, name) for name in ("objects", "object_bytes", "multipart_bytes"))
    if (target.data / "credentials").exists():
        _require_room(target, 2 * objects * size)
    started = time.monotonic()
    s3 = client(target)
    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError as error:  # of any other error the first PUT tells more: a HEAD has no body
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            s3.create_bucket(Bucket=bucket)
    content = payload(size)
    # sequential: gateways buffer parts that arrive early
    parts = TransferConfig(multipart_threshold=part, multipart_chunksize=part, use_threads=False)

    def put(number: int) -> None:
        s3.upload_fileobj(io.BytesIO(content), bucket, key_of("get", number), Config=parts)

    with ThreadPoolExecutor(UPLOADS_AT_ONCE if size < part else 2) as uploads:
        for _ in uploads.map(put, range(objects)):
            pass
    return {
        "bucket": bucket,
        "objects": objects,
        "object_bytes": size,
        "total_bytes": objects * size,
        "parts": -(-size // part) if size >= part else 1,
        "populate_s": round(time.monotonic() - started, 3),
    }


HOOKS = Hooks(populate=populate)
