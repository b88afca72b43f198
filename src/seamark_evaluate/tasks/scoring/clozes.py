"""Masked names that an answer fills in as a mapping, as LooGLE scores its cloze task.

Source: Evaluation/automatic_metrics.py of bigai-nlco/LooGLE. References are `mask=name` pairs in JSON.
"""

import ast
import json
from collections.abc import Mapping


def cloze(answer: str, reference: str) -> Mapping[str, float | None]:
    """Return `score`, the share of names that are exactly right, and `partial`, of those with a common word.

    Published quirk: the answer must be a Python dict and nothing else, so text around it, or JSON with null, gives 0.
    Published figures are sums over all questions divided by all masks: weigh `score` by `masks` to get them.
    """
    right = {str(mask): str(name) for mask, name in json.loads(reference).items()}
    given = _mapping(answer)
    exact = sum(given.get(mask) == name for mask, name in right.items())
    partial = sum(bool(set(str(given.get(mask, "")).split()) & set(name.split())) for mask, name in right.items())
    return {"score": exact / len(right), "partial": partial / len(right), "masks": float(len(right))}


def _mapping(answer: str) -> Mapping[str, object]:
    """The published scorer evaluates the answer as a program; only literals are read here."""
    try:
        given = ast.literal_eval(answer.lstrip(" \t"))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return {}
    return given if isinstance(given, dict) else {}
