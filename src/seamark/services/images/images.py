"""One container image: origin, digest, file and record; and the lock of a study's images."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from seamark.config.yaml_source import value_of
from seamark.errors import SiteError, UserError
from seamark.model.digest import sha256_of
from seamark.model.results.deployment_record import ImageFacts, ImageRecord
from seamark.model.results.values import OPTIONAL
from seamark.model.service import External, Service
from seamark.storage.codec import decode, encode
from seamark.storage.documents import read, read_or_none, write_text

DIGEST_LETTERS = 12
HEAD = """\
# Written by `bench prepare`: the images of this study, by digest. Keep it with the study, so that preparing it again
# gives the same images. To get a newer image, remove its entry. `bench prepare` fills an empty digest.
"""
Origin = Literal["registry", "definition", "file"]


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image. `source` is its address in a registry, its definition, or its own path for a file of the user.

    `digest` (sha256:...) is that of the registry's manifest, or of the files that a definition is built from; None
    while unknown. `environment` is the lock of an image built from a definition. `path` is absolute.
    """

    name: str
    origin: Origin
    source: str
    digest: str | None
    licence: str
    path: Path
    environment: str | None = None

    @property
    def record(self) -> Path:
        """Record of the image, a file beside it."""
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def address(self) -> str:
        """Address to pull: the source, by digest where that is known."""
        if self.digest is None:
            return self.source
        repository, _ = split_tag(self.source)
        return f"{repository}@{self.digest}"

    def exists(self) -> bool:
        """Return whether the file exists and its record matches the digest."""
        return self.path.is_file() and (
            self.origin == "file" or self.digest is None or self.read_record() is not None
        )

    def new_record(self) -> ImageRecord:
        """Return the record of a new image file, without the facts of its build."""
        return ImageRecord(
            name=self.name,
            source=self.source,
            digest=self.digest,
            licence=self.licence,
            sha256=sha256_of(self.path),
            size_bytes=self.path.stat().st_size,
        )

    def read_record(self) -> ImageRecord | None:
        """Return the record, None when it is missing or does not match size and digest of the file."""
        record = read_or_none(self.record, ImageRecord)
        with suppress(OSError):
            if record and (record.size_bytes, record.digest) == (self.path.stat().st_size, self.digest):
                return record
        return None

    def facts(self) -> ImageFacts:
        """Return the facts for the results of a measurement."""
        unrecorded = ImageRecord(name=self.name, source=self.source, digest=self.digest)
        return (self.read_record() or unrecorded).facts(str(self.path))


def facts_of_file(path: Path) -> ImageFacts:
    """Return the facts of an image by its file alone; all but the path are None without a record."""
    record = path.with_name(f"{path.name}.json")
    return (read(record, ImageRecord) if record.is_file() else ImageRecord()).facts(str(path))


def client_lock(service: Service, image: Image | None, external: External | None = None) -> str | None:
    """Return the lock with the libraries of a load on a server in an image, or on one that runs already."""
    foreign = image is not None and image.origin != "definition"
    return service.load_lock(elsewhere=foreign or external is not None)


def image_file(folder: Path, name: str, digest: str | None) -> Path:
    """Return the path of an image: `<name>-<digest>.sif`, or `<name>.sif` without a digest."""
    short = (digest or "").removeprefix("sha256:")[:DIGEST_LETTERS]
    return folder / f"{name}{short and '-' + short}.sif"


def split_tag(source: str) -> tuple[str, str]:
    """Split an address into repository and tag or digest; the tag defaults to `latest`."""
    for separator in ("@", ":"):
        head, found, tag = source.rpartition(separator)
        if found and "/" not in tag and not head.endswith((":", "/")) and "/" in head:
            return head, tag
    return source, "latest"


def full_address(named: str) -> str:
    """Return an address with its scheme, docker:// by default."""
    return named if "://" in named else f"docker://{named}"


def digest_of_parts(*parts: bytes | str) -> str:
    """Return the digest of the inputs of an image."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}\n".encode() + data)
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class LockEntry:
    """One image of images.lock.yaml."""

    source: str | None = None
    digest: str | None = None
    licence: str | None = None
    size_bytes: int | None = field(default=None, metadata=OPTIONAL)


def read_lock(path: Path) -> dict[str, LockEntry]:
    """Return the entries of images.lock.yaml by image name; none when the file is missing. UserError when damaged."""
    if not path.is_file():
        return {}
    try:
        entries = value_of(path.read_text(encoding="utf-8")) or {}
        return {str(name): decode(entry, LockEntry) for name, entry in entries.items()}
    except (AttributeError, ValueError) as cause:
        raise UserError(f"{path}: no lock of images ({cause}). Remove it and run `bench prepare`.") from cause


def write_lock(path: Path, entries: Mapping[str, LockEntry]) -> None:
    """Write images.lock.yaml."""
    body = yaml.safe_dump({name: encode(entries[name]) for name in sorted(entries)}, sort_keys=False)
    write_text(path, HEAD + body)


def require_image(image: Image, remedy: str) -> Path:
    """Return the path of an image; SiteError when the file is missing or does not match its record."""
    if "$" in str(image.path):
        raise SiteError(f"{image.path}: a variable in the image's path is not set.")
    if not image.path.is_file():
        raise SiteError(f"{image.path}: the image '{image.name}' is missing. {remedy}")
    if not image.exists():
        raise SiteError(
            f"{image.path}: this file is not the image '{image.name}' that was prepared (another size or digest)."
            f" Remove it, then: {remedy}"
        )
    return image.path
