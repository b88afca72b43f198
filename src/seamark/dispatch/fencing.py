"""Fencing token of a study's latest run: jobs of superseded runs exit without changes."""

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from seamark.storage.documents import write_text

EPOCH = "SEAMARK_TURN"
"""Environment variable that carries the token to the processes and batch jobs of a run."""


def acquire_epoch(root: Path) -> str:
    """Begin the epoch of a new run of the study; return its token. Earlier tokens are superseded."""
    token = uuid4().hex
    write_text(_file(root), token)
    return token


def is_superseded(root: Path, environment: Mapping[str, str]) -> bool:
    """Return whether a later run holds the study; never for a process without a token, as one without `bench`."""
    token = environment.get(EPOCH)
    try:
        return token is not None and _file(root).read_text(encoding="utf-8") != token
    except OSError:
        return False


def _file(root: Path) -> Path:
    return root / ".seamark" / "turn"
