"""A metric, its inputs, and metrics of the user's own, named by dotted path in a scenario."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from seamark.analysis.metrics.energy import Energy
from seamark.analysis.metrics.startup import StartUp
from seamark.analysis.metrics.steady import SteadyState
from seamark.analysis.metrics.tally import Tally
from seamark.analysis.metrics.telemetry import Key, Seen
from seamark.analysis.metrics.window import Window
from seamark.model.dotted import mark_of, resolved
from seamark.model.trial import Trial


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Inputs of the metrics of one trial."""

    tally: Tally
    window: Window
    steady: SteadyState
    open_loop: bool
    start_up: StartUp | None = None
    cut_part: Mapping[str, Any] | None = None
    steady_part: Mapping[str, Any] | None = None
    has_objectives: bool = False
    lost: int = 0
    telemetry: Mapping[Key, Seen] = field(default_factory=dict)
    energy: Energy = field(default_factory=Energy)


Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of metrics.json. `path` has dots where the document nests; a user's own has none."""

    path: str
    unit: str
    better: Better
    meaning: str
    value: Callable[[Evidence], float | int | bool | None]

    @property
    def column(self) -> str:
        """Its name in a flat table."""
        return self.path.replace(".", "_")


Document = dict[str, Any]


def own_metrics(paths: Sequence[str], evidence: Evidence | None) -> dict[str, Document]:
    """Return each metric by its name: value, unit, direction, meaning, its dotted path and the mark of its module.

    The value is None without evidence (a failed trial), and if its function raises, returns no number, or its module
    is missing: `error` has the reason.
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
        except Exception as error:  # a user's code may raise anything; the other metrics remain valid
            entry["error"] = f"{type(error).__name__}: {error}"
        found[name] = entry
    return found


def _number(value: object) -> float:
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    raise TypeError(f"it returned {value!r}, which is no finite number")


def own_marks(trial: Trial) -> list[str]:
    """Return the marks of a trial's own metrics and checks of the user."""
    return [mark_of(path) for path in (*trial.metrics, *trial.checks)]


def marks_of(document: Mapping[str, Any]) -> list[str]:
    """Return the marks of the user's own metrics and checks in a metrics.json."""
    return [
        *(str(each.get("source")) for each in (document.get("own") or {}).values()),
        *map(str, document.get("own_checks") or ()),
    ]
