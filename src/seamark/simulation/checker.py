"""Checker of an execution log: overlaps on GPUs, fields, durations, windows; with the inputs also the rules."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from seamark.errors import did_you_mean
from seamark.simulation.machine import ColdLoad, Machine
from seamark.simulation.system import Request, System
from seamark.simulation.world import COMPLETED

TOLERANCE_S = 1e-6
"""Times of a log are sums of rounded numbers, and other programs print six digits."""
TEXTS = ("request_id", "workflow_id", "node_id", "model_name")
TIMES = ("start_time", "end_time", "execution_time", "estimated_time")
EXTRA_TIMES = ("ready_time", "waiting_time", "switch_time", "load_time")
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
        first, second = (f"{each.request_id}/{each.node_id}" for each in (self.execution1, self.execution2))
        return (
            f"GPU {self.gpu_id}: {first} and {second} overlap from {self.overlap_start:g} s to {self.overlap_end:g} s"
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One execution of a log whose fields are right. It holds its GPUs from `taken_s`, when its model is fetched."""

    place: str
    request_id: str
    workflow_id: str
    node_id: str
    model: str
    gpu_ids: tuple[int, ...]
    start_s: float
    end_s: float
    fetch_s: float | None
    failed: bool = False

    @property
    def taken_s(self) -> float:
        """When it took its GPUs; its start, in a log without the times of fetches."""
        return self.start_s - (self.fetch_s or 0.0)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What is wrong with a log: conflicts on GPUs, and lines about all else. `executions` are those that it lists."""

    executions: int
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
    result = CheckResult(executions=len(parts))
    if listed is None:
        result.problems.append("the field 'executions' is missing")
    elif not isinstance(listed, list):
        result.problems.append("executions: is not a list")
    summary = document.get("summary")
    if not isinstance(summary, dict):
        result.problems.append("the field 'summary' is missing" if summary is None else "summary: is not an object")
        summary = {}
    else:
        result.problems.extend(f"summary: the field '{key}' is missing" for key in SUMMARY if key not in summary)
    gpus = _gpu_count(summary.get("gpus"))
    for number, part in enumerate(parts):
        row = _row(f"executions[{number}]", part, gpus, result.problems.append)
        if row is not None:
            result.rows.append(row)
    _check_duplicates(result.rows, result.problems.append)
    result.conflicts.extend(conflicts(result.rows))
    if len(result.rows) == len(parts):
        _check_summary(summary, result.rows, result.problems.append)
    return result


def _gpu_count(value: Any) -> int | None:
    """Return the number of GPUs, which a log gives as such or as a list of ids."""
    return len(value) if isinstance(value, list) else value if type(value) is int else None


def _row(place: str, part: Any, gpus: int | None, note: Callable[[str], None]) -> Row | None:
    if not isinstance(part, dict):
        note(f"{place}: is not an object")
        return None
    wrong = [*_wrong_fields(place, part)]
    gpu_ids = part.get("gpu_ids", [part.get("gpu_id")])
    if not isinstance(gpu_ids, list) or not gpu_ids or not all(type(gpu) is int for gpu in gpu_ids):
        wrong.append(f"{place}: gpu_ids is not a list of GPU ids")
    if wrong:
        for line in wrong:
            note(line)
        return None
    name = f"{place} ({part['request_id']}/{part['node_id']})"
    _check_gpus(name, part["gpu_id"], gpu_ids, gpus, note)
    start_s, end_s, execution_s = part["start_time"], part["end_time"], part["execution_time"]
    if start_s < -TOLERANCE_S:
        note(f"{name}: start_time {start_s:g} is before 0")
    if end_s < start_s:
        note(f"{name}: it ends at {end_s:g} s, before its start at {start_s:g} s")
    elif not _equal(end_s - start_s, execution_s, end_s):
        note(f"{name}: execution_time is {execution_s:g} s, but from start to end are {end_s - start_s:g} s")
    fetch = [part[key] for key in ("switch_time", "load_time") if key in part]
    waited = [part[key] for key in ("ready_time", "waiting_time") if key in part]
    if fetch and len(waited) == 2 and not _equal(sum(waited) + sum(fetch), start_s, end_s):
        note(f"{name}: ready_time, waiting_time, switch_time and load_time do not add up to start_time {start_s:g}")
    return Row(
        place=name,
        request_id=part["request_id"],
        workflow_id=part["workflow_id"],
        node_id=part["node_id"],
        model=part["model_name"],
        gpu_ids=tuple(gpu_ids),
        start_s=start_s,
        end_s=end_s,
        fetch_s=sum(fetch) if fetch else None,
        failed=part.get("outcome", COMPLETED) != COMPLETED,
    )


def _wrong_fields(place: str, part: Mapping[str, Any]) -> Iterable[str]:
    """Yield a line for each field that is missing or of the wrong type."""
    for key in (*TEXTS, "gpu_id", *TIMES):
        if key not in part:
            guess = did_you_mean(key, set(part) - {*TEXTS, *TIMES, *EXTRA_TIMES})
            yield f"{place}: the field '{key}' is missing.{guess}".removesuffix(".")
        elif key in TEXTS and not isinstance(part[key], str):
            yield f"{place}: {key} is not text"
    for key in (*TIMES, *EXTRA_TIMES):
        value = part.get(key, 0)
        if type(value) not in (int, float) or not math.isfinite(value):
            yield f"{place}: {key} is {value!r}, not a number of seconds"
        elif value < -TOLERANCE_S and key != "start_time":
            yield f"{place}: {key} is {value:g}, below 0"
    if "gpu_id" in part and type(part["gpu_id"]) is not int:
        yield f"{place}: gpu_id is not a GPU id"


def _check_gpus(
    name: str, gpu_id: int, gpu_ids: Sequence[int], gpus: int | None, note: Callable[[str], None]
) -> None:
    if gpu_id != gpu_ids[0]:
        note(f"{name}: gpu_id {gpu_id} is not the first of gpu_ids {list(gpu_ids)}")
    if any(second != first + 1 for first, second in pairwise(gpu_ids)):
        note(f"{name}: the GPUs {list(gpu_ids)} are not consecutive")
    outside = [gpu for gpu in gpu_ids if gpu < 0 or (gpus is not None and gpu >= gpus)]
    if outside:
        note(f"{name}: there is no GPU {outside[0]}" + ("" if gpus is None else f" among {gpus}"))


def _equal(first: float, second: float, scale: float) -> bool:
    """Return whether two times are equal but for the rounding of sums of that size."""
    return abs(first - second) <= TOLERANCE_S + 1e-9 * abs(scale)


def _check_duplicates(rows: Iterable[Row], note: Callable[[str], None]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for row in rows:
        key = (row.request_id, row.node_id)
        if key in seen:
            note(f"{row.place}: the node was executed before, in {seen[key]}")
        seen.setdefault(key, row.place)


def conflicts(rows: Iterable[Row]) -> list[Conflict]:
    """Return each pair of executions that hold one GPU at one time, its loads and switches included."""
    by_gpu: dict[int, list[Row]] = {}
    for row in rows:
        for gpu in set(row.gpu_ids):
            by_gpu.setdefault(gpu, []).append(row)
    found = []
    for gpu, held in sorted(by_gpu.items()):
        running: list[Row] = []
        for row in sorted(held, key=lambda row: (row.taken_s, row.end_s)):
            running = [each for each in running if each.end_s - row.taken_s > TOLERANCE_S]
            for other in running:
                end_s = min(other.end_s, row.end_s)
                if end_s - row.taken_s > TOLERANCE_S:
                    found.append(
                        Conflict(
                            gpu_id=gpu,
                            execution1=_named(other),
                            execution2=_named(row),
                            overlap_start=row.taken_s,
                            overlap_end=end_s,
                        )
                    )
            running.append(row)
    return found


def _named(row: Row) -> Named:
    return Named(request_id=row.request_id, node_id=row.node_id, start_time=row.start_s, end_time=row.end_s)


def _check_summary(summary: Mapping[str, Any], rows: Sequence[Row], note: Callable[[str], None]) -> None:
    latest_s = max((row.end_s for row in rows), default=0.0)
    makespan = summary.get("makespan")
    if type(makespan) not in (int, float, type(None)) or (makespan is not None and not math.isfinite(makespan)):
        note(f"summary: makespan is {makespan!r}, not a number of seconds")
    elif makespan is not None and not _equal(makespan, latest_s, latest_s):
        note(f"summary: makespan is {makespan:g} s, but the last execution ends at {latest_s:g} s")
    counts = {"total_nodes_executed": len(rows), "total_requests": len({row.request_id for row in rows})}
    for key, count in counts.items():
        if key in summary and summary[key] != count and not (key == "total_requests" and _may_lack(summary, count)):
            note(f"summary: {key} is {summary[key]!r}, but the executions have {count}")
    failed = sum(row.failed for row in rows)
    outcomes = summary.get("outcomes") or {}
    counted = sum(each for each in outcomes.values() if type(each) is int) if isinstance(outcomes, dict) else 0
    if counted != failed:
        note(f"summary: outcomes count {counted} executions without a result, but {failed} have such an outcome")


def _may_lack(summary: Mapping[str, Any], count: int) -> bool:
    """Return whether requests may be without an execution: none of their nodes was begun."""
    total, not_run = summary["total_requests"], summary.get("not_run", 0)
    return type(total) is int and type(not_run) is int and 0 < total - count <= not_run


def check_rules(
    result: CheckResult, document: Mapping[str, Any], system: System, requests: Iterable[Request]
) -> None:
    """Check a log against its inputs too, adding to the problems of a result: each node once, with its model and
    number of GPUs, after its predecessors and its request's arrival, and after the fetch of its model. Of a log whose
    models were called, fetches take the time that they take."""
    summary = document.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    known = {request.id: request for request in requests}
    note = result.problems.append
    models = {name: {node.id: node.model for node in each.nodes} for name, each in system.workflows.items()}
    before: dict[tuple[str, str], list[str]] = {}
    for workflow in system.workflows.values():
        for edge in workflow.edges:
            before.setdefault((workflow.id, edge.target), []).append(edge.source)
    rows = [row for row in result.rows if _fits_inputs(row, known, system, models, note)]
    ended_s = {(row.request_id, row.node_id): row.end_s for row in rows}
    failed = {(row.request_id, row.node_id) for row in rows if row.failed}
    online = summary.get("mode") == "online"
    for row in rows:
        request = known[row.request_id]
        at_s = (request.at_s or 0.0) if online else 0.0
        if row.taken_s < at_s - TOLERANCE_S:
            note(f"{row.place}: GPUs taken at {row.taken_s:g} s, before its request's arrival at {at_s:g} s")
        for source in before.get((row.workflow_id, row.node_id), ()):
            before_s = ended_s.get((row.request_id, source))
            if before_s is not None and row.taken_s < before_s - TOLERANCE_S:
                note(f"{row.place}: GPUs taken at {row.taken_s:g} s, before {source} ended at {before_s:g} s")
            if (row.request_id, source) in failed:
                note(f"{row.place}: it was executed although {source} before it had failed")
    lacking = [
        f"request {request.id}: the node {node.id} was not executed"
        for request in known.values()
        for node in system.workflows[request.workflow].nodes
        if (request.id, node.id) not in ended_s
    ]
    if len(lacking) != summary.get("not_run", 0):
        for line in lacking:
            note(line)
    if summary.get("simulate") is True:
        return
    forms: tuple[ColdLoad, ...] = ("charged", "free")
    colds = [form for form in forms if form == summary.get("cold_load")] or forms
    _check_fetches(rows, system, [Machine(gpus=1, cold_load=cold) for cold in colds], note)


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
            if not any(_equal(row.fetch_s, cost_s, 0.0) for cost_s in costs):
                change = f"from {held} to {row.model}" if old is not None else f"of {row.model} to an empty GPU"
                note(f"{row.place}: the fetch {change} takes {costs[0]:g} s, not {row.fetch_s:g} s")
        resident.update(dict.fromkeys(row.gpu_ids, row.model))
