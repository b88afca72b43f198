"""Leaves of structured settings that are factors: settings of their own, named by their dotted path."""

import json
from collections.abc import Mapping
from typing import Any

from seamark.model.service import Value

FACTOR = "factor"
"""Key of the mapping that stands for a leaf in its structure: {"factor": "command.environment.THREADS"}."""


def placeholder(path: str) -> dict[str, str]:
    """Return what stands in a structure for the leaf of a dotted path."""
    return {FACTOR: path}


def is_placeholder(value: object) -> bool:
    """Return whether a value of a structure stands for a leaf that is a factor."""
    return isinstance(value, Mapping) and set(value) == {FACTOR}


def filled(settings: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return settings as a driver has them: each leaf at its place in its structure, and no longer by itself."""
    leaves = {name: value for name, value in settings.items() if "." in name}
    if not leaves:
        return settings
    whole = {name: value for name, value in settings.items() if name not in leaves}
    for root in dict.fromkeys(name.partition(".")[0] for name in leaves):
        if isinstance(text := whole.get(root), str):
            document = _filled(json.loads(text), leaves)
            whole[root] = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return whole


def _filled(value: Any, leaves: Mapping[str, Value]) -> Any:
    if is_placeholder(value):
        return leaves[value[FACTOR]]
    if isinstance(value, dict):
        return {key: _filled(child, leaves) for key, child in value.items()}
    return [_filled(child, leaves) for child in value] if isinstance(value, list) else value
