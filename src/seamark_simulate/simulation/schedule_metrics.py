"""Figures of a schedule: makespan, completion times, use of each GPU, switches, executions of each model."""

from collections import Counter

import numpy as np

from seamark.model.results.schedule_metrics import GpuUse, Outcomes, ScheduleMetrics, Spread
from seamark_simulate.simulation.schedule import Executions, Floats, Schedule
from seamark_simulate.simulation.world import COMPLETED


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
    return metrics_of(schedule.ran)


def metrics_of(ran: Executions) -> ScheduleMetrics:
    """Return the figures of executions, also of those that were read from a file."""
    switches, cold = ran.is_switch, ran.is_first_load
    counts = np.bincount(ran.model, minlength=len(ran.models)).tolist()
    return ScheduleMetrics(
        makespan_s=ran.makespan_s,
        requests=len(ran.arrival_s),
        executions=len(ran.model),
        gpus=_use(ran),
        models={name: count for name, count in zip(ran.models, counts, strict=True) if count},
        switches=int(switches.sum()),
        switch_s=float(ran.fetch_s[switches].sum()),
        cold_loads=int(cold.sum()),
        cold_load_s=float(ran.fetch_s[cold].sum()),
        completion=spread_of((ran.completed_s() - ran.arrival_s)[ran.is_complete]),
        waiting=spread_of(ran.taken_s - ran.ready_s),
        transfer_s=0.0 if ran.transfer_s is None else float(ran.transfer_s.sum()),
        outcomes=_outcomes(ran),
    )


def _outcomes(ran: Executions) -> Outcomes | None:
    """Return what was not done; None where all was."""
    short = [number for number, outcome in enumerate(ran.outcome or ()) if outcome != COMPLETED]
    if not short and not ran.incomplete:
        return None
    assert ran.outcome is not None
    return Outcomes(
        executions=dict(sorted(Counter(ran.outcome[number] for number in short).items())),
        held_s=float(((ran.end_s - ran.taken_s) * ran.count)[short].sum()),
        not_run=ran.not_run,
        incomplete_requests=len(ran.incomplete),
    )


def _use(ran: Executions) -> tuple[GpuUse, ...]:
    """Return the use of each GPU."""
    first, last, held_s = ran.gpu, ran.gpu + ran.count, ran.end_s - ran.taken_s
    if (ran.count == 1).all():
        executions = np.bincount(first, minlength=ran.gpus).astype(np.int64)
        busy_s = np.bincount(first, held_s, ran.gpus).astype(np.float64)
    else:
        executions = np.zeros(ran.gpus, np.int64)
        busy_s = np.zeros(ran.gpus)
        for number, (begin, end, took_s) in enumerate(zip(first, last, held_s, strict=True)):
            held = slice(begin, end) if ran.gpu_ids is None else list(ran.gpu_ids[number])
            executions[held] += 1
            busy_s[held] += took_s
    makespan_s = ran.makespan_s
    return tuple(
        GpuUse(executions=int(count), busy_s=float(busy), use_ratio=float(busy / makespan_s) if makespan_s else 0.0)
        for count, busy in zip(executions, busy_s, strict=True)
    )
