"""Kinds of damage that a file or folder of results can take, from outside of bench."""

import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Damage = Callable[[Path], None]


def _other_kind(path: Path) -> None:
    """Put a file where a folder was, or a folder where a file was."""
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("not a folder\n")
    else:
        path.unlink()
        path.mkdir()
        (path / "inside").write_text("not a file\n")


def _linked_to_itself(path: Path) -> None:
    _removed(path)
    path.symlink_to(path.name)


def _linked_to_nothing(path: Path) -> None:
    _removed(path)
    path.symlink_to("nowhere")


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def rewritten(path: Path, content: bytes) -> None:
    """Write a new file at a path: the old one may have other names."""
    _removed(path)
    path.write_bytes(content)


def _text(content: bytes) -> Damage:
    return lambda path: rewritten(path, content)


def _cut(path: Path) -> None:
    content = path.read_bytes()
    rewritten(path, content[: len(content) // 2])


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 3, len(content), max(1, len(content) // 7)):
        content[at] ^= 0x55
    rewritten(path, bytes(content))


OF_FOLDERS: Mapping[str, Damage] = {
    "a file in its place": _other_kind,
    "gone": _removed,
    "a link to itself": _linked_to_itself,
}
OF_FILES: Mapping[str, Damage] = {
    "a folder in its place": _other_kind,
    "gone": _removed,
    "a link to itself": _linked_to_itself,
    "a link to nothing": _linked_to_nothing,
    "empty": _text(b""),
    "cut": _cut,
    "flipped": _flipped,
    "zeros": _text(b"\0" * 4096),
    "bytes": _text(bytes(range(256)) * 8),
    "another encoding": _text('{"a": "é"}'.encode("utf-16")),
    "a list": _text(b"[]"),
    "a number": _text(b"5"),
    "null": _text(b"null"),
    "an empty object": _text(b"{}"),
    "nested deep": _text(b"[" * 100_000),
    "nested objects": _text(b'{"a":' * 100_000),
    "NaN": _text(b'{"status": NaN}'),
    "a huge number": _text(b'{"status": 1e999, "x": ' + b"9" * 5000 + b"}"),
    "two documents": _text(b"{}{}"),
}
PLAIN = ("a folder in its place", "gone", "a link to itself", "empty", "cut", "flipped", "bytes")
"""Those of OF_FILES that say something of a file that holds no JSON."""
ODD: tuple[Any, ...] = (
    None, True, "text", "", -1, 0, 1.5, 10**30, 2**63 - 1, 1e308, float("nan"), float("inf"), [], {}, [[]], [None],
    {"a": {"b": []}}, ["x", 1], "2026-99-99", "x" * 5000, "\ud800",
)  # fmt: skip
"""What a value of a document may turn into."""


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Give each part of a document as its container and its key or index there."""
    entries = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(entries):
        yield document, key
        yield from places(value)


def changed_values(path: Path, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Give `count` texts of a JSON document of which one value is another or gone, each with what was done."""
    text, draw = path.read_text(), random.Random(f"{path.name} {seed}")
    for _ in range(count):
        document = json.loads(text)
        held, key = draw.choice([*places(document)])
        if draw.random() < 0.15:
            del held[key]
            yield f"{key} is gone", json.dumps(document)
        else:
            held[key] = odd = draw.choice(ODD)
            yield f"{key} is {str(odd)[:40]!r}", json.dumps(document)
