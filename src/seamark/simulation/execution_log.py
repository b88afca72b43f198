"""The execution log of a schedule: one JSON document with a summary and a record of each node execution."""

from collections.abc import Iterator
from dataclasses import dataclass

from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.simulation.machine import ColdLoad
from seamark.simulation.node_times import SOURCES, TimeSource
from seamark.simulation.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class LogSummary:
    """Figures of the whole. `mode` is `offline` for requests that all arrive at zero, else `online`; `simulate` says
    whether models were called; `gpus` is their number. Times are in seconds."""

    total_requests: int
    total_nodes_executed: int
    mode: str
    simulate: bool
    gpus: int
    makespan: float
    policy: str
    cold_load: ColdLoad
    completed_requests: int
    total_model_switches: int
    total_switch_time: float
    total_cold_loads: int
    total_load_time: float


@dataclass(frozen=True, kw_only=True)
class LoggedExecution:
    """One execution of a node, in seconds from the earliest arrival.

    It waited `waiting_time` from `ready_time`, then held its GPUs: for `load_time`, the first load of an empty GPU,
    or `switch_time`, a change of model, then from `start_time` to `end_time` for the node itself. `gpu_id` is the
    first of `gpu_ids`. `execution_time` is what it took, `estimated_time` what was expected, `time_source` where that
    is from.
    """

    request_id: str
    workflow_id: str
    node_id: str
    model_name: str
    gpu_id: int
    gpu_ids: tuple[int, ...]
    start_time: float
    end_time: float
    execution_time: float
    estimated_time: float
    time_source: TimeSource
    ready_time: float
    waiting_time: float
    switch_time: float
    load_time: float


@dataclass(frozen=True, kw_only=True)
class ExecutionLog:
    """The document, with executions in the order of their starts."""

    summary: LogSummary
    executions: tuple[LoggedExecution, ...]


def execution_log(schedule: Schedule, figures: ScheduleMetrics, *, mode: str, policy: str) -> ExecutionLog:
    """Return the document of a schedule and its figures."""
    summary = log_summary(figures, mode=mode, policy=policy, cold_load=schedule.machine.cold_load)
    return ExecutionLog(summary=summary, executions=tuple(_executions(schedule)))


def log_summary(figures: ScheduleMetrics, *, mode: str, policy: str, cold_load: ColdLoad) -> LogSummary:
    """Return the summary of an execution log."""
    return LogSummary(
        total_requests=figures.requests,
        total_nodes_executed=figures.executions,
        mode=mode,
        simulate=False,
        gpus=len(figures.gpus),
        makespan=figures.makespan_s,
        policy=policy,
        cold_load=cold_load,
        completed_requests=figures.requests,
        total_model_switches=figures.switches,
        total_switch_time=figures.switch_s,
        total_cold_loads=figures.cold_loads,
        total_load_time=figures.cold_load_s,
    )


def _executions(schedule: Schedule) -> Iterator[LoggedExecution]:
    work = schedule.work
    columns = zip(
        *(column.tolist() for column in (schedule.node, schedule.gpu, schedule.count, schedule.is_switch)),
        *(column.tolist() for column in (schedule.ready_s, schedule.taken_s, schedule.start_s, schedule.end_s)),
        schedule.fetch_s.tolist(),
        strict=True,
    )
    for node, gpu, count, switched, ready_s, taken_s, start_s, end_s, fetch_s in columns:
        request, name = work.name_of(node)
        yield LoggedExecution(
            request_id=request.id,
            workflow_id=request.workflow,
            node_id=name,
            model_name=work.models[work.model[node]].id,
            gpu_id=gpu,
            gpu_ids=tuple(range(gpu, gpu + count)),
            start_time=start_s,
            end_time=end_s,
            execution_time=work.duration_s[node],
            estimated_time=work.estimate_s[node],
            time_source=SOURCES[work.source[node]],
            ready_time=ready_s,
            waiting_time=taken_s - ready_s,
            switch_time=fetch_s if switched else 0.0,
            load_time=0.0 if switched else fetch_s,
        )
