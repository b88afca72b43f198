"""The log of a schedule as text: a line for each event, and the block of metrics. The form of both is fixed."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark_simulate.simulation.schedule import Schedule, rows_of
from seamark_simulate.simulation.world import COMPLETED

RULE = "=" * 60
PART = 10_000
ARRIVAL, CHANGE, END = range(3)
NEVER = (math.inf, "")


def header_lines(
    schedule: Schedule, *, begin: str, mode: str, name: str = "baseline", calls: bool = False
) -> list[str]:
    """Return the first lines. `begin` is the wall time of the clock's zero, which precedes each; `calls`: models are
    called."""
    lines = (
        f"Starting {name} scheduler with {len(schedule.work.requests)} requests",
        f"Mode: {mode}, Simulate: {str(calls).lower()}",
        f"Available GPUs: {list(range(schedule.machine.gpus))}",
        "Starting discrete event simulation...",
    )
    return [f"{begin} - {line}" for line in lines]


def event_lines(schedule: Schedule) -> Iterator[str]:
    """Yield a line for each arrival, switch, start and end, in the order of events.

    Events are ordered as in the engine: by time, arrivals first, in the order of requests or of starts. A start
    stands after the event that caused it.
    """
    work, outcomes = schedule.work, schedule.outcome
    changes = () if schedule.measured is None else schedule.measured.changes
    left = [work.first_node[number + 1] - work.first_node[number] for number in range(len(work.requests))]
    starts = _starts(schedule)
    begun, line = next(starts, NEVER)
    for step, kind, number, at_s in _events(schedule):
        while begun < step:  # starts that events before have caused
            yield line
            begun, line = next(starts, NEVER)
        if kind == ARRIVAL:
            request = work.requests[number]
            yield f"[{at_s:.2f}s] Processing request {request.id} (workflow: {request.workflow})"
            continue
        if kind == CHANGE:
            change = changes[number][1]
            yield f"[{at_s:.2f}s] GPU(s) {list(change.gpus)} {change.what}"
            continue
        node = schedule.node.item(number)
        request, name = work.name_of(node)
        where = f"GPU(s) {list(schedule.ran.gpus_of(number))}"
        if outcomes[number] != COMPLETED:
            yield f"[{at_s:.2f}s] Failed node {name} of request {request.id} on {where} ({outcomes[number]})"
            continue
        yield f"[{at_s:.2f}s] Completed node {name} of request {request.id} on {where}"
        owner = work.request_of.item(node)
        left[owner] -= 1
        if not left[owner]:
            yield f"[{at_s:.2f}s] Request {request.id} completed"
    if begun < NEVER[0]:
        yield line
    yield from (line for _, line in starts)
    yield f"Simulation completed at time {schedule.ran.makespan_s:.2f}s"


def _starts(schedule: Schedule) -> Iterator[tuple[float, str]]:
    """Yield the lines of each start, with the number of events until then."""
    work, ran = schedule.work, schedule.ran
    columns = (schedule.step, schedule.node, ran.is_switch, ran.fetch_s, ran.taken_s, ran.start_s, ran.end_s)
    for number, (step, node, switched, fetch_s, taken_s, start_s, end_s) in enumerate(rows_of(*columns)):
        request, name = work.name_of(node)
        where = f"GPU(s) {list(schedule.ran.gpus_of(number))}"
        if switched:
            gone = ", ".join(work.models[model].id for model in schedule.evicted_for(number))
            ends = f"from {gone} to {work.models[work.model[node]].id}"
            yield step, f"Scheduling model switch on {where} {ends} (switch time: {fetch_s:.2f}s)"
        times = f"start: {start_s:.2f}s, end: {end_s:.2f}s"
        yield step, f"[{taken_s:.2f}s] Scheduled node {name} of request {request.id} on {where} ({times})"


def parts_of(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines joined, some thousands at a time: of all at once a large run has gigabytes."""
    rest = iter(lines)
    while part := list(islice(rest, PART)):
        yield "\n".join(part)


def _events(schedule: Schedule) -> Iterable[tuple[int, int, int, float]]:
    """Return step, kind, number and time of each arrival, end and change of GPUs, in the order of events."""
    arrival_s, measured = schedule.work.arrival_s, schedule.measured
    if measured is None:
        at_s, arrivals = np.concatenate([arrival_s, schedule.end_s]), len(arrival_s)
        order = np.argsort(at_s, kind="stable")
        is_end = order >= arrivals
        numbers = order - np.where(is_end, arrivals, 0)
        return rows_of(np.arange(1, len(order) + 1), np.where(is_end, END, ARRIVAL), numbers, at_s[order])
    end_s = schedule.end_s.tolist()
    arrived, ended = measured.arrival_step.tolist(), measured.end_step.tolist()
    rows = [(step, ARRIVAL, number, arrival_s[number]) for number, step in enumerate(arrived) if step >= 0]
    rows += [(step, CHANGE, number, change.at_s) for number, (step, change) in enumerate(measured.changes)]
    return sorted(rows + [(step, END, number, end_s[number]) for number, step in enumerate(ended)])


def metrics_block(figures: ScheduleMetrics, log_name: str, more: Iterable[str] = ()) -> list[str]:
    """Return the block of metrics, with `more` lines before the name of the execution log at its end."""
    lines = ["", RULE, "EXECUTION METRICS", RULE]
    lines += [f"Total execution time (makespan): {figures.makespan_s:.2f} seconds", "", "Request completion times:"]
    if (times := figures.completion) is not None:
        rows = {"Average": times.mean_s, "Median": times.median_s, "P99": times.p99_s}
        lines += [
            f"  {name}: {value:.2f}s" for name, value in (rows | {"Min": times.min_s, "Max": times.max_s}).items()
        ]
    lines += ["", "GPU utilization:"]
    lines += [
        f"  GPU {gpu}: {use.executions} executions, {use.busy_s:.2f}s busy time ({use.use_ratio:.1%} utilization)"
        for gpu, use in enumerate(figures.gpus)
    ]
    lines += ["", "Model execution counts:"]
    lines += [f"  {model}: {count} executions" for model, count in figures.models.items()]
    return [*lines, *more, "", f"Detailed execution log written to {log_name}"]


def switch_lines(figures: ScheduleMetrics) -> list[str]:
    """Return the statistics of model switches and of waiting, which the fixed block does not have."""
    lines = ["", "Model switching:", f"  Switches: {figures.switches} in {figures.switch_s:.2f}s"]
    lines.append(f"  First loads of empty GPUs: {figures.cold_loads} in {figures.cold_load_s:.2f}s")
    if (waiting := figures.waiting) is not None:
        lines.append(f"  Waiting of nodes for GPUs: {waiting.mean_s:.2f}s on average, P99 {waiting.p99_s:.2f}s")
    if figures.transfer_s:
        lines.append(f"  Data between GPUs: {figures.transfer_s:.2f}s")
    return [*lines, *outcome_lines(figures)]


def outcome_lines(figures: ScheduleMetrics) -> list[str]:
    """Return what was not done; nothing where all was."""
    if (outcomes := figures.outcomes) is None:
        return []
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.executions.items()) or "none"
    return [
        f"Executions without a result: {counts}, {outcomes.held_s:.2f} GPU seconds",
        f"  Nodes never run: {outcomes.not_run}; requests not completed: {outcomes.incomplete_requests}",
    ]
