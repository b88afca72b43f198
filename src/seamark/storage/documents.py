"""Documents of the results: written under another name and renamed; a damaged one is named, with the remedy."""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from seamark.errors import UserError
from seamark.storage.codec import decode, encode, parse, parse_object

Noun = TypeVar("Noun")

_DERIVED = "Remove it: `bench collect` and `bench submit` derive it again from the samples."
REMEDIES: Mapping[str, str] = {
    "load.json": "`bench submit` writes it again from samples.json, or measures the trial again.",
    "samples.json": "`bench submit` measures the trial again; `bench status` shows it meanwhile.",
    "metrics.json": _DERIVED,
    "histogram.json": _DERIVED,
    "meta.json": "Where the trial was measured is not known then; `bench retry TRIAL` measures it again.",
    "endpoint.json": "`bench submit` starts the server again.",
    "deployment.json": "Remove it: `bench submit` writes it again.",
    "plan.json": "`bench plan` writes it again.",
    "summary.json": "`bench collect` writes it again.",
}
"""How to get a damaged file again, by its name."""
OTHERWISE = "Remove the file; the next run makes it again."


def put_away(path: Path) -> None:
    """Clear a path that must be free: a file is removed; anything else is foreign and renamed to `NAME.aside-1`."""
    if path.is_file() or path.is_symlink():
        path.unlink()
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
        number += 1
    with suppress(FileNotFoundError):
        path.rename(aside)


def require_folder(path: Path) -> None:
    """Raise UserError if `path` or a folder above it exists and is not a folder."""
    for folder in (path, *path.parents):
        if folder.is_dir():
            return
        if os.path.lexists(folder):
            raise UserError(f"{folder}: is not a folder, but results belong into it. Move it away, or correct paths.")


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` if the block succeeds, else remove it.

    A folder at `path` is set aside. Without `durable` a crash of the machine may leave an empty file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        put_away(path)
    own = f"{os.getpid()}-{os.urandom(3).hex()}"  # containers on one file system have the same process ids
    temporary = path.with_name(f".{path.name}.{own}.tmp")
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically. NaN is an error: a missing number is null."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


class DamagedFileError(UserError, ValueError):
    """A file of the results is damaged: the message names it and the remedy."""


def regular(path: Path) -> Path:
    """Return the path of a file. Raises OSError for a pipe or device, from which reading may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError("is no regular file")
    return path


def read(path: Path, noun: type[Noun], remedy: str = "") -> Noun:
    """Read a document of the results. `remedy` says how to get it again where its name does not.

    A damaged document, or a folder, pipe, device or loop of links in its place, raises DamagedFileError with file,
    mistake and remedy; a missing one raises FileNotFoundError, an unreadable one PermissionError.
    """
    with _damage_named(path, remedy):
        return parse(regular(path).read_text(encoding="utf-8"), noun)


def read_or_none(path: Path, noun: type[Noun]) -> Noun | None:
    """Read a document, None when it is missing, damaged or unreadable."""
    try:
        return read(path, noun)
    except (OSError, ValueError):
        return None


def read_json(path: Path, noun: Any = Mapping[str, Any]) -> dict[str, Any]:
    """Read a document as a JSON object, checked against its noun. Raises like `read`."""
    with _damage_named(path):
        document = parse_object(regular(path).read_text(encoding="utf-8"))
        decode(document, noun)
        return document


@contextmanager
def _damage_named(path: Path, remedy: str = "") -> Iterator[None]:
    remedy = remedy or REMEDIES.get(path.name, OTHERWISE)
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as cause:
        raise DamagedFileError(f"{path}: {cause.strerror or cause}. Move it away. {remedy}") from cause
    except ValueError as cause:
        raise DamagedFileError(f"{path}: {cause}. {remedy}") from cause


def write(path: Path, noun: object) -> None:
    """Write a noun of the results as JSON, atomically."""
    write_json(path, encode(noun))


def write_rows(path: Path, noun: object, name: str) -> None:
    """Write a noun of the results as JSON, atomically, and its last field `name` as a stream with a row a line."""
    head = {field.name: encode(getattr(noun, field.name)) for field in fields(cast(Any, noun)) if field.name != name}
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        before = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}") + f',\n "{name}": ['
        text_of = json.JSONEncoder(allow_nan=False, default=encode).encode  # json.dumps makes one for each row
        for row in getattr(noun, name):
            file.write(f"{before}\n  {text_of(row)}")
            before = ","
        file.write(("" if before == "," else before) + "\n ]\n}\n")


def amend(source: Path, target: Path, noun: type, **changes: object) -> None:
    """Write a document with other values of some fields to `target`; fields of a later version are kept. Raises like
    `read`."""
    write_json(target, read_json(source, noun) | encode(changes))


def is_damaged(path: Path, noun: type) -> bool:
    """Return whether a document exists and cannot be read."""
    return os.path.lexists(path) and read_or_none(path, noun) is None


def append_log(path: Path, trial_id: str, event: str, **facts: Any) -> None:
    """Append a line to a JSONL log: time, trial, event and facts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "trial_id": trial_id, "event": event, **facts}
    with path.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
