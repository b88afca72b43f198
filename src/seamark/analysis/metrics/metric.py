"""What a metric is, and what it is made from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seamark.analysis.metrics.energy import Energy
from seamark.analysis.metrics.startup import StartUp
from seamark.analysis.metrics.steady import SteadyState
from seamark.analysis.metrics.tally import Tally
from seamark.analysis.metrics.telemetry import Key, Seen
from seamark.analysis.metrics.window import Window


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the metrics of one trial are made from."""

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
    """One figure of metrics.json. `path` has dots where the document nests; that of a user's own has none."""

    path: str
    unit: str
    better: Better
    meaning: str
    value: Callable[[Evidence], float | int | bool | None]

    @property
    def column(self) -> str:
        """Its name in a flat table."""
        return self.path.replace(".", "_")
