"""Checker of an execution log: overlaps on GPUs, fields, durations, windows; with the inputs also the rules."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark_simulate.simulation.logged_rows import TOLERANCE_S, Row, equal, gpu_count, has_any_windows, row_of
from seamark_simulate.simulation.machine import ColdLoad, Machine
from seamark_simulate.simulation.machine_checker import check_machine
from seamark_simulate.simulation.system import Request, System

SUMMARY = ("total_requests", "total_nodes_executed", "mode", "simulate", "gpus", "makespan")


@dataclass(frozen=True, kw_only=True)
class Named:
    """An execution in a report."""

    request_id: str
    node_id: str
    start_time: float
    end_time: float


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Two executions that hold one GPU at the same time, from `overlap_start` to `overlap_end`."""

    gpu_id: int
    execution1: Named
    execution2: Named
    overlap_start: float
    overlap_end: float

    @property
    def text(self) -> str:
        """One line about it."""
        first, second = (
            f"{execution.request_id}/{execution.node_id}" for execution in (self.execution1, self.execution2)
        )
        return (
            f"GPU {self.gpu_id}: {first} and {second} overlap from {self.overlap_start:g} s to {self.overlap_end:g} s"
        )


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What is wrong with a log: conflicts on GPUs, and lines about all else. `executions` are those that it lists;
    `gpus`: how many it says it had."""

    executions: int
    gpus: int | None = None
    conflicts: list[Conflict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.conflicts and not self.problems


def check_log(document: Mapping[str, Any]) -> CheckResult:
    """Check a log by itself: fields, durations, duplicates, GPU ids, windows, overlaps, and its summary."""
    listed = document.get("executions")
    parts: Sequence[Any] = listed if isinstance(listed, list) else []
    summary = document.get("summary")
    gpus = gpu_count(summary.get("gpus")) if isinstance(summary, dict) else None
    result = CheckResult(executions=len(parts), gpus=gpus)
    if listed is None:
        result.problems.append("the field 'executions' is missing")
    elif not isinstance(listed, list):
        result.problems.append("executions: is not a list")
    if not isinstance(summary, dict):
        result.problems.append("the field 'summary' is missing" if summary is None else "summary: is not an object")
        summary = {}
    else:
        result.problems.extend(f"summary: the field '{key}' is missing" for key in SUMMARY if key not in summary)
    for number, part in enumerate(parts):
        row = row_of(f"executions[{number}]", part, gpus, has_any_windows(summary), result.problems.append)
        if row is not None:
            result.rows.append(row)
    _check_duplicates(result.rows, result.problems.append)
    result.conflicts.extend(conflicts(result.rows))
    if len(result.rows) == len(parts):
        _check_summary(summary, result.rows, result.problems.append)
    return result


def _check_duplicates(rows: Iterable[Row], note: Callable[[str], None]) -> None:
    """Note nodes that were executed again after an execution that did its work, or before another one had ended."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        before = seen.get((row.request_id, row.node_id))
        if before is not None and before.is_completed:
            note(f"{row.place}: the node was executed before, in {before.place}")
        elif before is not None and row.taken_s < before.end_s - TOLERANCE_S:
            note(f"{row.place}: the node was begun again before it ended, in {before.place}")
        seen[row.request_id, row.node_id] = row if before is None or not before.is_completed else before


def conflicts(rows: Iterable[Row]) -> list[Conflict]:
    """Return each pair of executions that hold one GPU at one time, its loads and switches included."""
    by_gpu: dict[int, list[Row]] = {}
    for row in rows:
        for gpu in set(row.gpu_ids):
            by_gpu.setdefault(gpu, []).append(row)
    pairs = []
    for gpu, held in sorted(by_gpu.items()):
        running: list[Row] = []
        for row in sorted(held, key=lambda row: (row.taken_s, row.end_s)):
            running = [execution for execution in running if execution.end_s - row.taken_s > TOLERANCE_S]
            for other in running:
                end_s = min(other.end_s, row.end_s)
                if end_s - row.taken_s > TOLERANCE_S:
                    pairs.append(
                        Conflict(
                            gpu_id=gpu,
                            execution1=_named(other),
                            execution2=_named(row),
                            overlap_start=row.taken_s,
                            overlap_end=end_s,
                        )
                    )
            running.append(row)
    return pairs


def _named(row: Row) -> Named:
    return Named(request_id=row.request_id, node_id=row.node_id, start_time=row.start_s, end_time=row.end_s)


def _check_summary(summary: Mapping[str, Any], rows: Sequence[Row], note: Callable[[str], None]) -> None:
    latest_s = max((row.end_s for row in rows), default=0.0)
    makespan = summary.get("makespan")
    if type(makespan) not in (int, float, type(None)) or (makespan is not None and not math.isfinite(makespan)):
        note(f"summary: makespan is {makespan!r}, not a number of seconds")
    elif makespan is not None and not equal(makespan, latest_s, latest_s):
        note(f"summary: makespan is {makespan:g} s, but the last execution ends at {latest_s:g} s")
    counts = {"total_nodes_executed": len(rows), "total_requests": len({row.request_id for row in rows})}
    if summary.get("not_run"):
        del counts["total_requests"]  # some may have no execution
    for key, count in counts.items():
        if key in summary and summary[key] != count:
            note(f"summary: {key} is {summary[key]!r}, but the executions have {count}")
    outcomes = dict(Counter(row.outcome for row in rows if not row.is_completed))
    if outcomes != (summary.get("outcomes") or {}):
        note(f"summary: outcomes are {summary.get('outcomes')!r}, but the executions have {outcomes}")


def check_rules(
    result: CheckResult, document: Mapping[str, Any], system: System, requests: Iterable[Request]
) -> None:
    """Check a log against its inputs too, adding to the problems of a result: each node once, with its model and
    number of GPUs, after its predecessors and its request's arrival, and after the fetch of its model."""
    summary = document.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    known = {request.id: request for request in requests}
    note = result.problems.append
    models = {name: {node.id: node.model for node in workflow.nodes} for name, workflow in system.workflows.items()}
    before: dict[tuple[str, str], list[str]] = {}
    for workflow in system.workflows.values():
        for edge in workflow.edges:
            before.setdefault((workflow.id, edge.target), []).append(edge.source)
    rows = [row for row in result.rows if _fits_inputs(row, known, system, models, note)]
    ended_s = {(row.request_id, row.node_id): row.end_s for row in rows if row.is_completed}
    online = summary.get("mode") == "online"
    for row in rows:
        request = known[row.request_id]
        at_s = (request.at_s or 0.0) if online else 0.0
        if row.taken_s < at_s - TOLERANCE_S:
            note(f"{row.place}: GPUs taken at {row.taken_s:g} s, before its request's arrival at {at_s:g} s")
        for source in before.get((row.workflow_id, row.node_id), ()):
            before_s = ended_s.get((row.request_id, source))
            if before_s is None:
                note(f"{row.place}: it ran, but {source} before it did not complete")
            elif row.taken_s < before_s - TOLERANCE_S:
                note(f"{row.place}: GPUs taken at {row.taken_s:g} s, before {source} ended at {before_s:g} s")
    _check_missing(rows, summary, known.values(), system, before, note)
    if summary.get("machine") is not None:
        check_machine(rows, summary, known, system, note)
    elif summary.get("simulate") is not True:  # fetches that were measured take what they take
        forms: tuple[ColdLoad, ...] = ("charged", "free")
        colds = [form for form in forms if form == summary.get("cold_load")] or forms
        _check_fetches(rows, system, [Machine(gpus=1, cold_load=cold) for cold in colds], note)


def _check_missing(
    rows: Iterable[Row],
    summary: Mapping[str, Any],
    requests: Iterable[Request],
    system: System,
    before: Mapping[tuple[str, str], Sequence[str]],
    note: Callable[[str], None],
) -> None:
    """Note nodes without an execution, unless one before them did not complete or GPUs left the machine; and their
    number, where it is not that of the summary."""
    executed = {(row.request_id, row.node_id): row.is_completed for row in rows}
    few_gpus = bool(summary.get("not_run")) and (bool(summary.get("gpu_changes")) or summary.get("simulate") is True)
    missing = 0
    for request in requests:
        for node in system.workflows[request.workflow].nodes:
            if (request.id, node.id) in executed:
                continue
            sources = before.get((request.workflow, node.id), ())
            if any(not executed.get((request.id, source), False) for source in sources) or few_gpus:
                missing += 1
            else:
                note(f"request {request.id}: the node {node.id} was not executed")
    if missing != summary.get("not_run", 0):
        note(f"summary: not_run is {summary.get('not_run', 0)!r}, but {missing} nodes have no execution")


def _fits_inputs(
    row: Row,
    known: Mapping[str, Request],
    system: System,
    models: Mapping[str, Mapping[str, str]],
    note: Callable[[str], None],
) -> bool:
    """Return whether an execution is one of the inputs'; note what differs. `models` are those of nodes, by
    workflow."""
    request = known.get(row.request_id)
    if request is None:
        note(f"{row.place}: no request has this id")
        return False
    if request.workflow != row.workflow_id:
        note(f"{row.place}: its workflow is {request.workflow}, not {row.workflow_id}")
        return False
    model = models[request.workflow].get(row.node_id)
    if model is None:
        note(f"{row.place}: the workflow {row.workflow_id} has no such node")
        return False
    if model != row.model:
        note(f"{row.place}: its model is {model}, not {row.model}")
        return False
    needed = system.models[model].gpus_required
    if needed != len(row.gpu_ids):
        note(f"{row.place}: it ran on {len(row.gpu_ids)} GPUs, but its model needs {needed}")
    return True


def _check_fetches(
    rows: Sequence[Row], system: System, machines: Sequence[Machine], note: Callable[[str], None]
) -> None:
    """Follow which model each GPU holds, and compare each load and switch with what it costs on one of the
    machines."""
    resident: dict[int, str] = {}
    for row in sorted(rows, key=lambda row: row.start_s):  # of equals the earlier line: executions without a length
        held = resident.get(row.gpu_ids[0])
        old, new = None if held is None else system.models[held], system.models[row.model]
        if row.fetch_s is not None:
            costs = [machine.fetch_s(old, new) for machine in machines]
            if not any(equal(row.fetch_s, cost_s, 0.0) for cost_s in costs):
                change = f"from {held} to {row.model}" if old is not None else f"of {row.model} to an empty GPU"
                note(f"{row.place}: the fetch {change} takes {costs[0]:g} s, not {row.fetch_s:g} s")
        resident.update(dict.fromkeys(row.gpu_ids, row.model))
