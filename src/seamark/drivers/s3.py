"""S3 at the speed of the server: requests signed before the clock, sent over the generator's own connections.

The bucket is filled with boto3, which is too slow for the hot path. It lies in the service's environment alone, so it
is imported where it is used. What replies have to be is in s3_replies.py.
"""

import io
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from seamark.drivers.s3_replies import PAGE, Asked, Expected, ObjectDecoder, upload
from seamark.errors import SiteError, UserError
from seamark.load.driver import Body, Hooks, Target, TaskFailure, Wire, whole
from seamark.load.engine.http import http_request, in_url
from seamark.model.service import Value
from seamark.platform.tls import UNVERIFIED, tls_context

if TYPE_CHECKING:
    from botocore.credentials import Credentials

EXPIRES_S = 7 * 24 * 3600
PAYLOAD_SEED = 42
PIECE_BYTES = 1 << 24
SPARE_BYTES = 1 << 28
UPLOADS_AT_ONCE = 8
STORES_WITHIN_S = 60.0


ODD = " +%2B&=;?#~!'(é)漢"
"""What an odd key ends with: a key is signed right only if all of it is quoted, and once."""


def key_of(kind: str, number: int, *, odd: bool = False) -> str:
    """Return the key of an object: objects that are read, written or deleted have different prefixes."""
    return f"{kind}/{number:07d}{ODD if odd else ''}"


def payload(size_bytes: int) -> bytes:
    """Return the content of every object of that size, built in pieces, so that a gibibyte is not held twice."""
    random = np.random.default_rng(PAYLOAD_SEED)
    content = io.BytesIO()
    for at in range(0, size_bytes, PIECE_BYTES):
        content.write(random.bytes(min(PIECE_BYTES, size_bytes - at)))
    return content.getvalue()


shared_payload = lru_cache(maxsize=1)(payload)
"""The content that all classes of a mix share."""


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
GET, PUT, HEAD, LIST, DELETE = "get", "put", "head", "list", "delete"
MIXED = "mixed"
MAX_BODIES = 1 << 14
"""Signing takes a few tenths of a millisecond per request."""


class S3(Wire):
    """Operations on objects of one size by presigned URLs."""

    unit = "operation"

    def __init__(self, target: Target) -> None:
        self._target = target
        settings = target.settings
        operation = str(settings["operation"])
        self._object_bytes = whole(settings, "object_bytes")
        self._objects = whole(settings, "objects")
        self._odd = bool(settings.get("odd_keys"))
        self._checks = bool(settings.get("check_content"))
        self._part_bytes = whole(settings, "part_bytes", 0)
        self._range_bytes = whole(settings, "range_bytes", 0)
        if self._range_bytes > self._object_bytes:
            raise UserError(
                f"range_bytes: {self._range_bytes:,} is more than object_bytes, {self._object_bytes:,}. Lower it."
            )
        bucket = str(settings["bucket"])
        virtual = settings.get("addressing") == VIRTUAL
        self._endpoint = endpoint(target, bucket if virtual else "")
        self._host = self._endpoint.partition("://")[2]
        self._prefix = "" if virtual else f"/{bucket}"
        self.tls = tls_context(settings)
        self.kinds: Sequence[str] = (GET, PUT) if operation == MIXED else (operation,)
        self.body_count = min(self._objects, MAX_BODIES) * len(self.kinds)
        """Each object once per kind, as far as signing takes at most seconds."""
        if operation == DELETE:
            self.warm = self._put_what_is_deleted

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded requests: every object once in random order, with the first byte that is read of it; PUTs and
        DELETEs have keys of their own."""
        random = np.random.default_rng(seed)
        each = -(-count // len(self.kinds))
        content = []
        for kind, name in enumerate(self.kinds):
            keys = random.permutation(self._objects)[np.arange(each) % self._objects]
            content += [(kind, name, key) for key in keys.tolist()]
        order = random.permutation(len(content)) if len(self.kinds) > 1 else np.arange(len(content))
        chosen = [content[at] for at in order.tolist()[:count]]
        last = self._object_bytes - self._range_bytes if self._range_bytes else 0
        starts = random.integers(0, last, len(chosen), endpoint=True).tolist()
        return [
            Body(content=(name, key_of(GET if name == HEAD else name, key, odd=self._odd), start), kind=kind)
            for (kind, name, key), start in zip(chosen, starts, strict=True)
        ]

    def address(self) -> tuple[str, int]:
        """Return host and port of the endpoint."""
        return self._target.host, self._target.ports["main"]

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the request, signed for as long as S3 allows (7 days); every PUT has the same payload behind it."""
        name, key, start = body.content
        path, size = f"{self._prefix}/{quote(key, safe='/~')}", self._object_bytes
        if name == LIST:
            page = f"{self._prefix}/?list-type=2&max-keys={PAGE}&prefix={GET}%2F"
            return self._asked("GET", page, Expected(keys=min(self._objects, PAGE)))
        if name == HEAD:
            return self._asked("HEAD", path, Expected(length=size, headless=True))
        if name == DELETE:
            return self._asked("DELETE", path, Expected())
        if name == PUT and self._part_bytes:

            def exchanges() -> Any:
                return upload(self._asked, path, shared_payload(size), self._part_bytes)

            return self._asked("POST", f"{path}?uploads=", Expected(upload=exchanges))
        if name == PUT:
            return self._asked("PUT", path, Expected(), {"Content-Length": str(size)}), shared_payload(size)
        content = shared_payload(size) if self._checks else None
        if not self._range_bytes:
            return self._asked("GET", path, Expected(length=size, content=content))
        expected = Expected(length=self._range_bytes, content=content, start=start)
        return self._asked("GET", path, expected, {"Range": f"bytes={start}-{start + self._range_bytes - 1}"})

    def decoder(self) -> ObjectDecoder:
        """Return a decoder that learns from each request what its reply has to be."""
        return ObjectDecoder()

    def _asked(self, method: str, path: str, expected: Expected, headers: Mapping[str, str] | None = None) -> Asked:
        path = self._signed(method, path)
        return Asked(http_request(method, path, host=self._host, headers=headers), expected)

    def _put_what_is_deleted(self, bodies: Iterable[Body]) -> int:
        """Put each object that a DELETE is for; return their number. Raises TaskFailure."""
        from botocore.exceptions import BotoCoreError, ClientError

        keys = {body.content[1] for body in bodies}
        try:
            _put(self._target, keys)
        except (BotoCoreError, ClientError) as error:
            raise TaskFailure("setup_failed", f"cannot put the objects to delete: {error}") from error
        return len(keys)

    @cached_property
    def _signed(self) -> Callable[[str, str], str]:
        return signer(self._target, self._endpoint)


def _put(target: Target, keys: Iterable[str]) -> None:
    """Put an object in the place of each key, large ones in parts."""
    from boto3.s3.transfer import TransferConfig

    size, part = (whole(target.settings, name) for name in ("object_bytes", "multipart_bytes"))
    s3, content = client(target), payload(size)
    # sequential: gateways buffer parts that arrive early
    parts = TransferConfig(multipart_threshold=part, multipart_chunksize=part, use_threads=False)

    def put(key: str) -> None:
        s3.upload_fileobj(io.BytesIO(content), target.settings["bucket"], key, Config=parts)

    with ThreadPoolExecutor(UPLOADS_AT_ONCE if size < part else 2) as uploads:
        for _ in uploads.map(put, keys):
            pass


def _await_storing(s3: Any, bucket: str, key: str) -> None:
    """Create the bucket if missing, and put and read an object: a server may answer seconds before it can store."""
    from botocore.exceptions import ClientError

    until_s = time.monotonic() + STORES_WITHIN_S
    while True:
        try:
            try:
                s3.head_bucket(Bucket=bucket)
            except ClientError as error:  # of any other error the PUT tells more: a HEAD has no body
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                    s3.create_bucket(Bucket=bucket)
            s3.put_object(Bucket=bucket, Key=key, Body=b"probe")
            s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            return
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500 or time.monotonic() > until_s:
                raise
        time.sleep(0.5)


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Create the bucket if missing and put every object that will be read, large ones in parts.

    Returns counts, bytes and seconds. Raises SiteError if the embedded server's disk is too small for the objects to
    be read and written.
    """
    settings = target.settings
    bucket = settings["bucket"]
    objects, size, part = (whole(settings, name) for name in ("objects", "object_bytes", "multipart_bytes"))
    if (target.data / "credentials").exists():
        _require_room(target, 2 * objects * size)
    started = time.monotonic()
    keys = [key_of(GET, number, odd=bool(settings.get("odd_keys"))) for number in range(objects)]
    _await_storing(client(target), str(bucket), keys[0])
    _put(target, keys)
    return {
        "bucket": bucket,
        "objects": objects,
        "object_bytes": size,
        "total_bytes": objects * size,
        "parts": -(-size // part) if size >= part else 1,
        "populate_s": round(time.monotonic() - started, 3),
    }


HOOKS = Hooks(populate=populate)
