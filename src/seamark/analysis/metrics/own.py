"""Metrics of a user's own: named by dotted path in a scenario, stored in metrics.json beside those of the table."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seamark.analysis.metrics.metric import Evidence, Metric
from seamark.model.dotted import resolved

Document = dict[str, Any]


def own_metrics(paths: Sequence[str], evidence: Evidence | None) -> dict[str, Document]:
    """Return each metric by its name: value, unit, direction, meaning, its dotted path and the mark of its module.

    The value is None without evidence (a failed trial), and where its function raises, returns no number, or its
    module is gone: `error` says which.
    """
    found: dict[str, Document] = {}
    for path in paths:
        entry: Document = {"value": None, "unit": "", "better": "neither", "meaning": "", "source": mark_of(path)}
        name = path.partition(":")[2]
        try:
            metric = resolved(path, Metric)
            name = metric.path
            entry |= {"unit": metric.unit, "better": metric.better, "meaning": metric.meaning}
            value = None if evidence is None else metric.value(evidence)
            entry["value"] = value if value is None else _number(value)
        except Exception as error:  # a user's code may raise anything: the other figures are as good without it
            entry["error"] = f"{type(error).__name__}: {error}"
        found[name] = entry
    return found


def _number(value: object) -> float:
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    raise TypeError(f"it returned {value!r}, which is no finite number")


def mark_of(path: str) -> str:
    """Return a metric's dotted path with the digest of its module's file: a changed file is another metric."""
    module = path.partition(":")[0]
    try:
        spec = find_spec(module)
        content = Path(spec.origin).read_bytes() if spec and spec.origin else b""
    except (ImportError, OSError, ValueError):
        content = b""
    return f"{path} {hashlib.sha256(content).hexdigest()[:12]}"


def marks_of(document: Mapping[str, Any]) -> list[str]:
    """Return the marks of the metrics that a metrics.json has."""
    return [str(each.get("source")) for each in (document.get("own") or {}).values()]
