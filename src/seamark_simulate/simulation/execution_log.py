"""The execution log of a schedule: one JSON document with a summary and a record of each node execution."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NotRequired, TypedDict

import numpy as np

from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.values import OPTIONAL
from seamark_simulate.simulation.machine import ColdLoad, GpuChange, Layout
from seamark_simulate.simulation.schedule import Schedule, rows_of
from seamark_simulate.simulation.workload import SOURCES, TimeSource
from seamark_simulate.simulation.world import COMPLETED


@dataclass(frozen=True, kw_only=True)
class LogSummary:
    """Figures of the whole. `mode` is `offline` for requests that all arrive at zero, else `online`; `simulate` says
    whether models were called; `gpus` are their ids. Times are in seconds.

    Of a machine file the log has the `machine`, and GPUs that left or came back in `gpu_changes`. `outcomes` counts
    executions that did not do their work, by the reason, and `not_run` the nodes that were never run.
    """

    total_requests: int
    total_nodes_executed: int
    mode: str
    simulate: bool
    gpus: tuple[int, ...]
    makespan: float
    policy: str
    cold_load: ColdLoad
    completed_requests: int
    total_model_switches: int
    total_switch_time: float
    total_cold_loads: int
    total_load_time: float
    machine: Layout | None = field(default=None, metadata=OPTIONAL)
    gpu_changes: tuple[GpuChange, ...] = field(default=(), metadata=OPTIONAL)
    total_transfer_time: float = field(default=0.0, metadata=OPTIONAL)
    outcomes: Mapping[str, int] | None = field(default=None, metadata=OPTIONAL)
    not_run: int = field(default=0, metadata=OPTIONAL)


class LoggedExecution(TypedDict):
    """One execution of a node, in seconds from the earliest arrival. A dict, as there may be millions.

    It waited `waiting_time` from `ready_time`, then held its GPUs: for `load_time`, the first load of an empty GPU,
    or `switch_time`, a change of model, then from `start_time` to `end_time` for the node itself. `gpu_id` is the
    first of `gpu_ids`. `execution_time` is what it took, `estimated_time` what was expected on a GPU of speed 1,
    `time_source` where that is from. `transfer_time` is that of data from other GPUs, after the model is there;
    `outcome` is why an execution did not do its work, `reason` what a server said of it.
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
    transfer_time: NotRequired[float]
    outcome: NotRequired[str]
    reason: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class ExecutionLog:
    """The document, with executions in the order of their starts. They are made when they are read: there may be
    millions."""

    summary: LogSummary
    executions: Iterable[LoggedExecution]


@dataclass(frozen=True, kw_only=True)
class SimulationFacts:
    """What executions are of: the machine, the policy, `mode` (`offline`: all requests at zero, else `online`), the
    models in the order of their file, and the seed of drawn times and failures, None where nothing was drawn.

    Of a machine file also its `machine`, and its GPUs that left or came back. `incomplete` are the numbers of
    requests that did not complete, with the `unstarted` among them and their arrivals in seconds, and `not_run`
    counts nodes without an execution.
    """

    gpus: int
    cold_load: ColdLoad
    policy: str
    mode: str
    models: tuple[str, ...]
    seed: int | None = None
    machine: Layout | None = field(default=None, metadata=OPTIONAL)
    gpu_changes: tuple[GpuChange, ...] = field(default=(), metadata=OPTIONAL)
    incomplete: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    unstarted: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)
    not_run: int = field(default=0, metadata=OPTIONAL)


def facts_of(schedule: Schedule, *, policy: str, mode: str, seed: int | None = None) -> SimulationFacts:
    """Return what the executions of a schedule are of."""
    work, machine = schedule.work, schedule.machine
    facts = SimulationFacts(
        gpus=machine.gpus,
        cold_load=machine.cold_load,
        policy=policy,
        mode=mode,
        models=tuple(model.id for model in work.models),
        seed=seed,
        machine=machine.layout,
    )
    if schedule.measured is None:
        return facts
    ran = schedule.ran
    started = set(ran.request.tolist())
    unstarted = {str(request): work.arrival_s[request] for request in ran.incomplete if request not in started}
    return replace(
        facts,
        gpu_changes=tuple(change for _, change in schedule.measured.changes),
        incomplete=ran.incomplete,
        unstarted=unstarted or None,
        not_run=ran.not_run,
    )


def log_summary(figures: ScheduleMetrics, facts: SimulationFacts, *, calls: bool = False) -> LogSummary:
    """Return the summary of an execution log. `calls`: models were called."""
    outcomes = figures.outcomes
    return LogSummary(
        total_requests=figures.requests,
        total_nodes_executed=figures.executions,
        mode=facts.mode,
        simulate=calls,
        gpus=tuple(range(facts.gpus)),
        makespan=figures.makespan_s,
        policy=facts.policy,
        cold_load=facts.cold_load,
        completed_requests=figures.requests - (0 if outcomes is None else outcomes.incomplete_requests),
        total_model_switches=figures.switches,
        total_switch_time=figures.switch_s,
        total_cold_loads=figures.cold_loads,
        total_load_time=figures.cold_load_s,
        machine=facts.machine,
        gpu_changes=facts.gpu_changes,
        total_transfer_time=figures.transfer_s,
        outcomes=None if outcomes is None else outcomes.executions,
        not_run=0 if outcomes is None else outcomes.not_run,
    )


def execution_log(
    schedule: Schedule,
    figures: ScheduleMetrics,
    *,
    mode: str,
    policy: str,
    reasons: Mapping[int, str] | None = None,
) -> ExecutionLog:
    """Return the document of a schedule and its figures. `reasons` of failures are by execution, in the order of
    starts, where models were called."""
    facts = facts_of(schedule, policy=policy, mode=mode)
    summary = log_summary(figures, facts, calls=reasons is not None)
    return ExecutionLog(summary=summary, executions=_Executions(schedule, reasons or {}))


class _Executions:
    """The executions of a schedule, made each time that they are read."""

    def __init__(self, schedule: Schedule, reasons: Mapping[int, str]) -> None:
        self._schedule, self._reasons = schedule, reasons

    def __iter__(self) -> Iterator[LoggedExecution]:
        schedule, work, ran = self._schedule, self._schedule.work, self._schedule.ran
        transfer_s = np.zeros(len(ran.model)) if ran.transfer_s is None else ran.transfer_s
        rows = rows_of(
            *(schedule.node, ran.gpu, ran.is_switch, ran.ready_s, ran.taken_s, ran.start_s),
            *(ran.end_s, ran.fetch_s, schedule.duration_s, transfer_s),
        )
        for number, row in enumerate(rows):
            node, gpu, switched, ready_s, taken_s, start_s, end_s, fetch_s, duration_s, transfer_s = row
            request, name = work.name_of(node)
            logged: LoggedExecution = {
                "request_id": request.id,
                "workflow_id": request.workflow,
                "node_id": name,
                "model_name": work.models[work.model[node]].id,
                "gpu_id": gpu,
                "gpu_ids": ran.gpus_of(number),
                "start_time": start_s,
                "end_time": end_s,
                "execution_time": duration_s,
                "estimated_time": work.estimate_s[node],
                "time_source": SOURCES[work.source[node]],
                "ready_time": ready_s,
                "waiting_time": taken_s - ready_s,
                "switch_time": fetch_s if switched else 0.0,
                "load_time": 0.0 if switched else fetch_s,
            }
            add_optional(logged, transfer_s, schedule.outcome[number], self._reasons.get(number))
            yield logged


def add_optional(logged: LoggedExecution, transfer_s: float, outcome: str, reason: str | None = None) -> None:
    """Add what most executions do not have."""
    if transfer_s:
        logged["transfer_time"] = transfer_s
    if outcome != COMPLETED:
        logged["outcome"] = outcome
    if reason is not None:
        logged["reason"] = reason
