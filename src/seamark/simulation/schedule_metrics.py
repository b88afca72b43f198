"""Figures of a schedule: makespan, completion times, use of each GPU, switches, executions of each model."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seamark.simulation.schedule import Floats, Schedule


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
    first load onto an empty GPU is in `cold_loads`.
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


def spread_of(values: Floats) -> Spread | None:
    """Return mean and quantiles, None without values."""
    if not len(values):
        return None
    median_s, p99_s = np.quantile(values, (0.5, 0.99)).tolist()
    return Spread(
        mean_s=float(values.mean()),
        median_s=median_s,
        p99_s=p99_s,
        min_s=float(values.min()),
        max_s=float(values.max()),
    )


def schedule_metrics(schedule: Schedule) -> ScheduleMetrics:
    """Return the figures of a schedule."""
    work, fetch_s, switches = schedule.work, schedule.fetch_s, schedule.is_switch
    cold = schedule.held == len(work.models)
    counts = np.bincount(schedule.model, minlength=len(work.models)).tolist()
    return ScheduleMetrics(
        makespan_s=schedule.makespan_s,
        requests=len(work.requests),
        executions=len(schedule.node),
        gpus=_use(schedule),
        models={model.id: count for model, count in zip(work.models, counts, strict=True) if count},
        switches=int(switches.sum()),
        switch_s=float(fetch_s[switches].sum()),
        cold_loads=int(cold.sum()),
        cold_load_s=float(fetch_s[cold].sum()),
        completion=spread_of(schedule.completed_s() - np.asarray(work.arrival_s)),
        waiting=spread_of(schedule.taken_s - schedule.ready_s),
    )


def _use(schedule: Schedule) -> tuple[GpuUse, ...]:
    """Return the use of each GPU."""
    first, last = schedule.gpu, schedule.gpu + schedule.count
    if (schedule.count == 1).all():
        executions = np.bincount(first, minlength=schedule.gpus).astype(np.int64)
        busy_s = np.bincount(first, schedule.end_s - schedule.taken_s, schedule.gpus).astype(np.float64)
    else:
        executions = np.zeros(schedule.gpus, np.int64)
        busy_s = np.zeros(schedule.gpus)
        for begin, end, held_s in zip(first, last, schedule.end_s - schedule.taken_s, strict=True):
            executions[begin:end] += 1
            busy_s[begin:end] += held_s
    makespan_s = schedule.makespan_s
    return tuple(
        GpuUse(executions=int(count), busy_s=float(busy), use_ratio=float(busy / makespan_s) if makespan_s else 0.0)
        for count, busy in zip(executions, busy_s, strict=True)
    )
