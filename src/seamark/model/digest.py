"""Digest of a document that does not depend on the order of its keys."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document in canonical JSON: keys sorted, no blanks."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
