"""What test_s3.py asks in the environment of S3. Every answer is JSON."""

import hashlib
from pathlib import Path
from typing import Any

from seamark.drivers import s3
from seamark.errors import SiteError
from seamark.load.driver import Target


def target(where: dict[str, Any]) -> Target:
    return Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"])


def objects(where: dict[str, Any], prefix: str) -> Any:
    """Give key, size, ETag and MD5 of the content of every object below a prefix, read by boto3."""
    there = target(where)
    client, bucket = s3.client(there), there.settings["bucket"]
    found = []
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            content = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
            found.append([entry["Key"], entry["Size"], entry["ETag"].strip('"'), hashlib.md5(content).hexdigest()])
    return found


def replace(where: dict[str, Any], key: str, size: int | None) -> Any:
    """Put another object of that size in a key's place; None deletes it."""
    there = target(where)
    client, place = s3.client(there), {"Bucket": there.settings["bucket"], "Key": key}
    if size is None:
        client.delete_object(**place)
    else:
        client.put_object(Body=bytes(size), **place)


def populated(where: dict[str, Any]) -> Any:
    return dict(s3.populate(target(where), 1))


def refused(where: dict[str, Any]) -> Any:
    """Populate a place without credentials; give the mistake."""
    try:
        s3.populate(target(where), 1)
    except SiteError as error:
        return str(error)
    return None


def payload_md5(size: int) -> Any:
    return hashlib.md5(s3.payload(size)).hexdigest()


def requests(where: dict[str, Any], count: int, seed: int) -> Any:
    """Give kind, name, key and first byte of seeded requests."""
    return [[body.kind, *body.content] for body in s3.S3(target(where)).bodies(count, seed)]


def encoded_sizes(where: dict[str, Any]) -> Any:
    """Give how many distinct payloads all requests hold, and the sizes of the pieces of the first."""
    driver = s3.S3(target(where))
    made = [driver.encode(body) for body in driver.bodies(driver.body_count, 1)]
    pieces = [one if isinstance(one, tuple) else (one,) for one in made]
    return [len({id(piece[-1]) for piece in pieces}), [len(piece) for piece in pieces[0]]]


def request(where: dict[str, Any], host: str) -> Any:
    """Give the first request to an endpoint of that name."""
    there = Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"], host=host)
    driver = s3.S3(there)
    return bytes(driver.encode(driver.bodies(1, 1)[0])).decode()
