"""Digests: of a document, whatever the order of its keys, and of a file; seeds derived from one."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document in canonical JSON: keys sorted, no blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seed_for(seed: int, purpose: str) -> int:
    """Return the seed for one purpose (arrivals, bodies, quality), so that no two purposes share a sequence."""
    return int.from_bytes(hashlib.sha256(f"{purpose} {seed}".encode()).digest()[:4], "big")
