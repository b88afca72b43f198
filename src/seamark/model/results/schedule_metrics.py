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
class Outcomes:
    """What was not done as it should be: `executions` that were interrupted or failed, by the reason, the GPU seconds
    that they held (`held_s`), nodes that were never run, and requests that did not complete."""

    executions: Mapping[str, int]
    held_s: float
    not_run: int
    incomplete_requests: int


@dataclass(frozen=True, kw_only=True)
class ScheduleMetrics:
    """Figures of one schedule.

    `completion` is of requests, from arrival to the end of their last node; None without requests. `waiting` is of
    executions, from being ready to taking GPUs. `switches` are changes of model on the first GPU of an execution; the
    first load onto an empty GPU is in `cold_loads`. `outcomes` is None where all executions did their work and all
    requests completed; `completion` is of those that did. `transfer_s` is the time of data between GPUs.
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
    transfer_s: float = field(default=0.0, metadata=OPTIONAL)
    outcomes: Outcomes | None = field(default=None, metadata=OPTIONAL)
