"""Whose turn it is in a study: its latest run's. A late batch job of an earlier run must change nothing."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from seamark.storage.paths import write_text

TURN = "SEAMARK_TURN"
"""What a run's processes and batch jobs are told of its turn."""


def take(root: Path) -> str:
    """Make it the turn of a new run of the study; return what its processes are to be told."""
    turn = uuid4().hex
    write_text(_file(root), turn)
    return turn


def past(root: Path, environment: Mapping[str, str]) -> bool:
    """Whether a later run has taken the turn of the one that this environment is of.

    One that was told of none, as without `bench`, is never past.
    """
    told = environment.get(TURN)
    try:
        return told is not None and _file(root).read_text(encoding="utf-8") != told
    except OSError:
        return False


def _file(root: Path) -> Path:
    return root / ".seamark" / "turn"
