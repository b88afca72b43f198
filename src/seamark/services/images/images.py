"""What an image is: where it comes from, its digest, its file; and what is written down of it. Makes none."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from seamark.errors import SiteError, UserError
from seamark.model.service import Service
from seamark.storage.paths import read_json, write_text

DIGEST_LETTERS = 12
HEAD = """\
# Made by `bench prepare`: the images of this study, by digest. Keep it with the study: whoever prepares it again gets
# the same images. To have a newer one, remove its entry.
"""
Origin = Literal["registry", "definition", "file"]


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image: `source` is its address in a registry, its definition, or nothing for a file that somebody made.

    `digest` (sha256:...) is that of the registry's manifest, or of all that a definition is built from; None while
    it is not known. `environment` names the lock in an image that is built from a definition. `path` is absolute.
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
        """The file beside the image that says what it is."""
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def address(self) -> str:
        """What is pulled: the source, by digest where that is known."""
        if self.digest is None:
            return self.source
        repository, _ = without_tag(self.source)
        return f"{repository}@{self.digest}"

    def there(self) -> bool:
        """Whether the file is there and what was made is what is wanted."""
        return self.path.is_file() and (self.origin == "file" or self.digest is None or self.made() is not None)

    def described(self) -> Mapping[str, Any]:
        """Return what is written beside the file when it is made, but for what its making adds."""
        return {
            "schema_version": 1,
            "name": self.name,
            "source": self.source,
            "digest": self.digest,
            "licence": self.licence,
            "sha256": sha256_of(self.path),
            "size_bytes": self.path.stat().st_size,
        }

    def made(self) -> Mapping[str, Any] | None:
        """Return what was written down when it was made; None when it was not made by us or has another size now."""
        try:
            made = read_json(self.record)
            whole = made.get("size_bytes") == self.path.stat().st_size and made.get("digest") == self.digest
        except (OSError, ValueError):
            return None
        return made if whole else None

    def facts(self) -> dict[str, Any]:
        """Return what a measurement in it says of it; `sha256` is that of the file."""
        made = self.made() or {}
        return _facts({"name": self.name, "source": self.source, "digest": self.digest} | dict(made), self.path)


def facts_of_file(path: Path) -> dict[str, Any]:
    """Return an image's facts by its file alone; nulls but for the path where nobody wrote them down."""
    record = path.with_name(f"{path.name}.json")
    return _facts(read_json(record) if record.is_file() else {}, path)


def _facts(told: Mapping[str, Any], path: Path) -> dict[str, Any]:
    digest = told.get("digest") or (f"sha256:{told['sha256']}" if "sha256" in told else None)
    known = {name: told.get(name) for name in ("name", "source")}
    return {**known, "digest": digest, **{n: told.get(n) for n in ("sha256", "size_bytes")}, "path": str(path)}


def client_lock(service: Service, image: Image | None) -> str | None:
    """Return the lock of what a load on the service needs; None for what every load has.

    The lock of an embedded service holds the server too, which a server in somebody else's image does not need.
    """
    elsewhere = image is not None and image.origin != "definition"
    plain = elsewhere and service.container is not None and service.container.plain_client
    return None if plain else service.environment


def image_file(folder: Path, name: str, digest: str | None) -> Path:
    """Return where an image lies in the folder of images: `<name>-<digest>.sif`, or `<name>.sif` without a digest."""
    short = (digest or "").removeprefix("sha256:")[:DIGEST_LETTERS]
    return folder / f"{name}{short and '-' + short}.sif"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def without_tag(source: str) -> tuple[str, str]:
    """Return an address without its tag or digest, and the tag or digest; `latest` when it has none."""
    for separator in ("@", ":"):
        head, found, tag = source.rpartition(separator)
        if found and "/" not in tag and not head.endswith((":", "/")) and "/" in head:
            return head, tag
    return source, "latest"


def full_address(named: str) -> str:
    """Return an address with its scheme."""
    return named if "://" in named else f"docker://{named}"


def digest_of_parts(*parts: bytes | str) -> str:
    """Return the digest of what an image is built from."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}\n".encode() + data)
    return f"sha256:{digest.hexdigest()}"


def read_lock(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of images.lock.yaml by name of image; none where there is no such file."""
    if not path.is_file():
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return {str(name): dict(entry) for name, entry in found.items()}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as cause:
        raise UserError(f"{path}: this is no lock of images ({cause}). Remove it and run `bench prepare`.") from cause


def write_lock(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write images.lock.yaml."""
    body = yaml.safe_dump({name: dict(entries[name]) for name in sorted(entries)}, sort_keys=False)
    write_text(path, HEAD + body)


def require(image: Image, remedy: str) -> Path:
    """Return the image's file; SiteError when it is not there, or not what it should be."""
    if "$" in str(image.path):
        raise SiteError(f"{image.path}: a variable in the image's path is not set.")
    if not image.path.is_file():
        raise SiteError(f"{image.path}: the image '{image.name}' is not there. {remedy}")
    if not image.there():
        raise SiteError(
            f"{image.path}: this is not the image '{image.name}' as it was made (another size or digest). Remove it,"
            f" then: {remedy}"
        )
    return image.path
