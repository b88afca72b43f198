"""Figures of a schedule of workflows on GPUs, as they stand in metrics.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.results.values import OPTIONAL


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """Executions on one GPU, also as one of several, and the time for which they held it, loads and switches
    included."""

    executions: int
    busy_s: float
    use_ratio: float


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Mean and quantiles of times, by linear interpolation between order statistics (type 7)."""

    mean_s: float
    median_s: float
    p99_s: float
    min_s: float
    max_s: float


@dataclass(frozen=True, kw_only=True)
class ScheduleMetrics:
    """Figures of one schedule.

    `completion` is of requests, from arrival to the end of their last node; None without requests. `waiting` is of
    executions, from being ready to taking GPUs. `switches` are changes of model on the first GPU of an execution; the
    first load onto an empty GPU is in `cold_loads`. Where executions failed, `failures` counts them by category,
    `not_run` the nodes that were never started, and `incomplete` the requests that did not complete, which have no
    completion time.
    """

    makespan_s: float
    requests: int
    executions: int
    gpus: tuple[GpuUse, ...]
    models: Mapping[str, int]
    switches: int
    switch_s: float
    cold_loads: int
    cold_load_s: float
    completion: Spread | None
    waiting: Spread | None
    failures: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)
    not_run: int = field(default=0, metadata=OPTIONAL)
    incomplete: int = field(default=0, metadata=OPTIONAL)
