"""What test_llamacpp.py asks in the environment of llama.cpp. Every answer is JSON."""

import hashlib
from pathlib import Path
from typing import Any

from seamark.drivers.openai.llamacpp import write_tiny


def written(path: str, seed: int) -> Any:
    """Write a tiny model; give what it says of itself and a digest of the file."""
    facts = dict(write_tiny(Path(path), seed))
    return {**facts, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
