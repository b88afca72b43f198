"""Small kernel files read as text or numbers, and outputs of commands; None for a missing or unreadable one."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path("/")


def read_text(path: Path) -> str | None:
    """Return a file's content without surrounding white space."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """Return the whole number in a file, None if it contains something else."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def output_of(*command: str | Path, within_s: float) -> str | None:
    """Return the output of a command without surrounding white space, None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=within_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def read_choice(path: Path) -> str | None:
    """Return the bracketed word of a file such as `always [madvise] never`; the whole text without brackets."""
    content = read_text(path)
    match = re.search(r"\[([^\]]+)\]", content or "")
    return match.group(1) if match else content


def common_value(values: Iterable[str | int | None]) -> str | int | None:
    """Return the common value; `mixed:` with all values if they differ; None if all are unknown."""
    distinct = sorted({value for value in values if value is not None}, key=str)
    if len(distinct) > 1:
        return f"mixed: {', '.join(map(str, distinct))}"
    return distinct[0] if distinct else None


def numbered_entries(folder: Path, prefix: str) -> list[Path]:
    """Return the entries `prefix` + number of a folder, sorted by number; empty without the folder."""
    try:
        entries = [path for path in folder.iterdir() if path.name.removeprefix(prefix).isdigit()]
    except OSError:
        return []
    return sorted(
        (path for path in entries if path.name.startswith(prefix)), key=lambda path: int(path.name[len(prefix) :])
    )
