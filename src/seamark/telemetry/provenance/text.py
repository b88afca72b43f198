"""Small files of the kernel, read as text or numbers; what is missing or closed to us is None."""

import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/")


def text(path: Path) -> str | None:
    """Return a file's content without white space around it."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """Return the whole number that a file holds, None where it holds something else."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def chosen(path: Path) -> str | None:
    """Return the word in brackets of a file such as `always [madvise] never`; all of it where there are none."""
    found = text(path)
    inside = re.search(r"\[([^\]]+)\]", found or "")
    return inside.group(1) if inside else found


def one_or_each(values: Iterable[str | int | None]) -> str | int | None:
    """Return what all values are; where they differ `mixed:` and each of them; None where none is known."""
    known = sorted({value for value in values if value is not None}, key=str)
    if len(known) > 1:
        return f"mixed: {', '.join(map(str, known))}"
    return known[0] if known else None


def numbered(folder: Path, prefix: str) -> list[Path]:
    """Return the entries `prefix` + number of a folder in the order of their numbers; none without the folder."""
    try:
        entries = [path for path in folder.iterdir() if path.name.removeprefix(prefix).isdigit()]
    except OSError:
        return []
    return sorted(
        (path for path in entries if path.name.startswith(prefix)), key=lambda path: int(path.name[len(prefix) :])
    )
