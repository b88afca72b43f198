"""Tables of wrong files: each entry changes a right file at one place, and says what is reported."""

from pathlib import Path
from typing import Any

import yaml


def wrong_files(table: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a table by name."""
    return {entry["name"]: entry for entry in yaml.safe_load(table.read_text(encoding="utf-8"))}


def change(file: str, old: str, new: str) -> None:
    """Replace a text at its first place in a file of the working folder."""
    text = Path(file).read_text(encoding="utf-8")
    assert old in text, "the table does not fit its file"
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")
