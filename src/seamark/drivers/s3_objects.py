"""A bucket and its objects, made with boto3; credentials, keys, payload and signatures. Measures nothing."""

import io
import os
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import numpy as np
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials

from seamark.errors import SiteError
from seamark.load.driver import Target
from seamark.model.service import Value

EXPIRES_S = 7 * 24 * 3600
PAYLOAD_SEED = 42
PIECE_BYTES = 1 << 24
SPARE_BYTES = 1 << 28
UPLOADS_AT_ONCE = 8


def key_of(kind: str, number: int) -> str:
    """Return the key of an object: what is read and what is written lie apart."""
    return f"{kind}/{number:07d}"


def payload(size_bytes: int) -> bytes:
    """Return the content of every object of that size, made piece by piece: a gibibyte is not held twice."""
    random = np.random.default_rng(PAYLOAD_SEED)
    content = io.BytesIO()
    for at in range(0, size_bytes, PIECE_BYTES):
        content.write(random.bytes(min(PIECE_BYTES, size_bytes - at)))
    return content.getvalue()


def credentials(target: Target) -> Credentials:
    """Return the keys made for this run, or those of the AWS_* variables where someone else runs the server.

    Raises SiteError when there are none.
    """
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


def endpoint(target: Target) -> str:
    """Return the URL of the service."""
    return f"http://{target.host}:{target.ports['main']}"


class Signer:
    """Signs paths in advance (SigV4 in the query, payload unsigned)."""

    def __init__(self, target: Target) -> None:
        self._endpoint = endpoint(target)
        self._auth = S3SigV4QueryAuth(credentials(target), "s3", region(), expires=EXPIRES_S)

    def path(self, method: str, path: str) -> str:
        """Return `path` with its signature, as it stands in a request line."""
        request = AWSRequest(method=method, url=self._endpoint + path)
        self._auth.add_auth(request)
        url: str = request.prepare().url
        return url.removeprefix(self._endpoint)


def client(target: Target) -> Any:
    """Return boto3's client of the endpoint."""
    keys = credentials(target)
    return boto3.client(
        "s3",
        endpoint_url=endpoint(target),
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
        region_name=region(),
        config=Config(
            s3={"addressing_style": "path"}, max_pool_connections=UPLOADS_AT_ONCE, retries={"max_attempts": 3}
        ),
    )


def fill(target: Target) -> Mapping[str, Value]:
    """Make the bucket if need be and put every object that is read; large ones in parts.

    Returns counts, bytes and seconds. Raises SiteError when the embedded server's disk is too small for what is
    read and what may be written.
    """
    settings = target.settings
    bucket, objects, size, part = (
        settings[name] for name in ("bucket", "objects", "object_bytes", "multipart_bytes")
    )
    assert isinstance(objects, int)
    assert isinstance(size, int)
    assert isinstance(part, int)
    if (target.data / "credentials").exists():
        _require_room(target, 2 * objects * size)
    started = time.monotonic()
    s3 = client(target)
    if bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket)
    content = payload(size)
    # in order and one after another: gateways buffer parts that come early
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


def _require_room(target: Target, needed: int) -> None:
    free = shutil.disk_usage(target.data).free
    if needed + SPARE_BYTES > free:
        raise SiteError(
            f"s3: {target.data} has {free:,} bytes free; {needed:,} for objects read and written and {SPARE_BYTES:,} "
            "to spare do not fit. Lower `objects` or `object_bytes`."
        )
