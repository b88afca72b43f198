"""A metric, its inputs, and metrics of the user's own, named by dotted path in a scenario."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from seamark.analysis.metrics.telemetry import Key, SeriesSummary
from seamark.analysis.metrics.window import Window
from seamark.analysis.metrics.window_counts import WindowCounts
from seamark.model.dotted import mark_of, resolved
from seamark.model.results.stages import Stages
from seamark.model.results.trial_metrics import EnergyFigures, OwnMetric, SteadyVerdict, WarmupCut
from seamark.model.trial import Trial


@dataclass(frozen=True, kw_only=True)
class MetricInputs:
    """Inputs of the metrics of one trial."""

    counts: WindowCounts
    window: Window
    steady: SteadyVerdict
    open_loop: bool
    start_up: WarmupCut | None = None
    has_objectives: bool = False
    lost: int = 0
    lost_in_window: int = 0
    telemetry: Mapping[Key, SeriesSummary] = field(default_factory=dict)
    energy: EnergyFigures = field(default_factory=EnergyFigures)
    energy_reason: str | None = None
    stages: Stages | None = None


Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of metrics.json. `path` has dots where the document nests; a user's own has none."""

    path: str
    unit: str
    better: Better
    meaning: str
    value: Callable[[MetricInputs], float | int | bool | None]

    @property
    def column(self) -> str:
        """Its name in a flat table."""
        return self.path.replace(".", "_")


def own_metrics(paths: Sequence[str], inputs: MetricInputs | None) -> dict[str, OwnMetric]:
    """Return each metric of the user's own by its name.

    The value is None without inputs (a failed trial), and where its function raises, returns no number, or its module
    is gone: `error` says which.
    """
    named: dict[str, OwnMetric] = {}
    for path in paths:
        name, own_metric = path.partition(":")[2], OwnMetric(source=mark_of(path))
        try:
            metric = resolved(path, Metric)
            name = metric.path
            own_metric = replace(own_metric, unit=metric.unit, better=metric.better, meaning=metric.meaning)
            value = None if inputs is None else metric.value(inputs)
            own_metric = replace(own_metric, value=None if value is None else _number(value))
        except Exception as error:  # a user's code may raise anything; the other metrics remain valid
            own_metric = replace(own_metric, error=f"{type(error).__name__}: {error}")
        named[name] = own_metric
    return named


def _number(value: object) -> float:
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    raise TypeError(f"it returned {value!r}, which is no finite number")


def own_marks(trial: Trial) -> list[str]:
    """Return the marks of a trial's own metrics and checks of the user."""
    return [mark_of(path) for path in (*trial.metrics, *trial.checks)]
