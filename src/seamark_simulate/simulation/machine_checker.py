"""Checker of a log of a machine file: what its GPUs hold and when they are there, data, speeds and interruptions.

It follows the rules of docs/how-to-simulate.md by itself, and not by the code of the simulator.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamark.analysis.schedule.execution_rows import gone_of
from seamark.storage.codec import MismatchError, decode
from seamark_simulate.simulation.logged_rows import TOLERANCE_S, Row, equal, gpu_count
from seamark_simulate.simulation.machine import GpuChange, Layout
from seamark_simulate.simulation.system import Model, Request, System

Note = Callable[[str], None]


def check_machine(
    rows: Sequence[Row],
    summary: Mapping[str, Any],
    requests: Mapping[str, Request],
    system: System,
    note: Note,
) -> None:
    """Note what contradicts the machine that a log names: GPUs that are too small, gone or on several hosts, times of
    loads, switches, data and nodes, and interruptions that the machine does not have."""
    try:
        layout = decode(summary["machine"], Layout)
        changes = decode(summary.get("gpu_changes", []), tuple[GpuChange, ...])
    except MismatchError as wrong:
        note(f"summary: machine or gpu_changes: {wrong}")
        return
    if (gpus := gpu_count(summary.get("gpus"))) != layout.gpus:
        note(f"summary: gpus is {gpus}, but the machine has {layout.gpus}")
        return
    numbers = [
        number
        for host in layout.hosts
        for number in (
            *(host.gpus, host.nvlink_gb_per_s, host.network_gb_per_s, host.disk_gb_per_s),
            *(host.kind.pcie_gb_per_s, host.kind.speed, *host.kind.speeds.values()),
        )
    ]
    if any(number is not None and number <= 0 for number in numbers):
        note("summary: machine: a bandwidth, a speed or a number of GPUs is not above 0")
        return
    named = [*(row.gpu_ids for row in rows), *(change.gpus for change in changes)]
    if outside := [gpu for gpus in named for gpu in gpus if not 0 <= gpu < layout.gpus]:
        note(f"summary: the machine has {layout.gpus} GPUs, and no GPU {outside[0]}")
        return
    gone: list[list[tuple[float, float]]] = [[] for _ in range(layout.gpus)]
    away = gone_of(summary, layout.gpus)
    for gpu, begin_s, end_s in zip(away.gpu.tolist(), away.begin_s.tolist(), away.end_s.tolist(), strict=True):
        gone[gpu].append((begin_s, end_s))
    for row in rows:
        _check_gpus(row, layout, system.models[row.model], gone, note)
    _check_residents(rows, layout, changes, system, summary.get("cold_load") == "free", note)
    _check_data(rows, layout, system, note)
    _check_times(rows, layout, requests, note)
    _check_interruptions(rows, layout, changes, note)


def _check_gpus(
    row: Row, layout: Layout, model: Model, gone: Sequence[Sequence[tuple[float, float]]], note: Note
) -> None:
    if not layout.span_hosts and len({layout.host_of[gpu] for gpu in row.gpu_ids}) > 1:
        note(f"{row.place}: its GPUs {list(row.gpu_ids)} are on several hosts")
    for gpu in row.gpu_ids:
        kind = layout.host(gpu).kind
        if kind.memory_gb is not None and model.memory_gb > kind.memory_gb:
            note(f"{row.place}: {model.id} needs {model.memory_gb:g} GB, and GPU {gpu} has {kind.memory_gb:g} GB")
        for begin_s, end_s in gone[gpu]:
            if row.end_s > begin_s + TOLERANCE_S and row.taken_s < end_s - TOLERANCE_S:
                note(f"{row.place}: GPU {gpu} is not there from {begin_s:g} s on")


def _check_residents(
    rows: Sequence[Row],
    layout: Layout,
    changes: Sequence[GpuChange],
    system: System,
    loads_free: bool,
    note: Note,
) -> None:
    """Follow the models of each GPU, the least recently used first, in the order of the log."""
    held: list[list[str]] = [[] for _ in range(layout.gpus)]
    leaving = sorted(
        (change for change in changes if change.what in ("removed", "failed")), key=lambda change: -change.at_s
    )
    coming = [[change.at_s for change in leaving if gpu in change.gpus] for gpu in range(layout.gpus)]
    left_at_s = [-1.0] * layout.gpus
    ending: list[Row] = []
    for row in rows:
        # what was not fetched whole is not there after the end; a GPU that leaves is empty when it is back
        for ended in [other for other in ending if other.end_s <= row.taken_s + TOLERANCE_S]:
            ending.remove(ended)
            for gpu in ended.gpu_ids:
                held[gpu] = [name for name in held[gpu] if name != ended.model]
        for gpu in row.gpu_ids:
            while coming[gpu] and coming[gpu][-1] <= row.taken_s + TOLERANCE_S:
                held[gpu], left_at_s[gpu] = [], coming[gpu].pop()
        model = system.models[row.model]
        cost_s, what = _fetch(model, held[row.gpu_ids[0]], row.gpu_ids[0], layout, system, loads_free)
        if row.fetch_s is not None:
            is_whole = equal(row.fetch_s, cost_s, row.end_s)
            if not is_whole and (row.is_completed or row.fetch_s > cost_s):
                note(f"{row.place}: {what} takes {cost_s:g} s, not {row.fetch_s:g} s")
            elif not is_whole:
                ending.append(row)
        for gpu in row.gpu_ids:
            if row.model in held[gpu]:
                held[gpu].remove(row.model)
            else:
                held[gpu] = held[gpu][_evicted(model, held[gpu], gpu, layout, system) :]
            held[gpu].append(row.model)
            if not row.is_completed and row.end_s <= left_at_s[gpu] + TOLERANCE_S:
                held[gpu] = []  # taken in the instant in which the GPU left, between two changes of the machine


def _evicted(model: Model, held: Sequence[str], gpu: int, layout: Layout, system: System) -> int:
    """Return how many models, the least recently used first, have to go for another one."""
    memory_gb = layout.host(gpu).kind.memory_gb
    if not layout.several_models or memory_gb is None:
        return len(held)
    count = 0
    while sum(system.models[name].memory_gb for name in held[count:]) + model.memory_gb > memory_gb + 1e-9:
        count += 1
        if count > len(held):
            return len(held)
    return count


def _fetch(
    model: Model, held: Sequence[str], gpu: int, layout: Layout, system: System, loads_free: bool
) -> tuple[float, str]:
    if not model.fetched or model.id in held:
        return 0.0, f"{model.id}, which GPU {gpu} holds,"
    count = _evicted(model, held, gpu, layout, system)
    if not count:
        return 0.0 if loads_free else layout.load_s(model, gpu), f"the load of {model.id}"
    moved_gb = model.memory_gb + sum(system.models[name].memory_gb for name in held[:count])
    switch_s = moved_gb / layout.host(gpu).kind.pcie_gb_per_s + layout.switch_overhead_s
    return switch_s, f"the switch from {', '.join(held[:count])} to {model.id}"


def _check_data(rows: Sequence[Row], layout: Layout, system: System, note: Note) -> None:
    """Compare the time of data with the sum over the edges of a node, from where its predecessors ran; or where
    transfers overlap, the GPUs' begin with the last of its data."""
    ran = {(row.request_id, row.node_id): row for row in rows if row.is_completed}
    for row in rows:
        sources = [
            (source, layout.transfer_s(edge.data_bytes, source.gpu_ids[0], row.gpu_ids[0]))
            for edge in system.workflows[row.workflow_id].edges
            if edge.target == row.node_id and (source := ran.get((row.request_id, edge.source))) is not None
        ]
        due_s = sum(transfer_s for _, transfer_s in sources)
        if layout.transfers == "overlap":
            there_s = max((source.end_s + transfer_s for source, transfer_s in sources), default=0.0)
            if row.is_completed and row.taken_s < there_s - TOLERANCE_S:
                note(f"{row.place}: GPUs taken at {row.taken_s:g} s, before its data are there at {there_s:g} s")
            due_s = 0.0
        if row.transfer_s > due_s + TOLERANCE_S or (row.is_completed and not equal(row.transfer_s, due_s, row.end_s)):
            note(f"{row.place}: its data take {due_s:g} s to GPU {row.gpu_ids[0]}, not {row.transfer_s:g} s")


def _check_times(rows: Sequence[Row], layout: Layout, requests: Mapping[str, Request], note: Note) -> None:
    """Compare the time of a node that its request gives with what was run of it, at the speed of its GPUs; work that
    is resumed counts together."""
    done_s: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row.request_id, row.node_id
        ran_s = (row.end_s - row.start_s) * layout.speed(row.model, row.gpu_ids)
        if row.outcome == "preempted" and layout.preemption == "resumed":
            done_s[key] = done_s.get(key, 0.0) + ran_s
        elif not row.is_completed:
            done_s.pop(key, None)
        else:
            given_s = requests[row.request_id].node_execution_times_s.get(row.node_id)
            whole_s = ran_s + done_s.pop(key, 0.0)
            if given_s is not None and not equal(whole_s, given_s, row.end_s):
                note(f"{row.place}: its work takes {given_s:g} s on a GPU of speed 1, but {whole_s:g} s were done")


def _check_interruptions(rows: Sequence[Row], layout: Layout, changes: Sequence[GpuChange], note: Note) -> None:
    """Note interruptions without a cause, and nodes that failed with their GPUs more often than they are tried."""
    causes = {(change.at_s, change.what, gpu) for change in changes for gpu in change.gpus}
    attempts: dict[tuple[str, str], int] = {}
    for row in rows:
        what = {"gpu_failed": "failed", "gpu_removed": "removed"}.get(row.outcome)
        if what is not None and not any(
            reason == what and gpu in row.gpu_ids and equal(at_s, row.end_s, at_s) for at_s, reason, gpu in causes
        ):
            note(f"{row.place}: it ended as {row.outcome}, but none of its GPUs {what} then")
        if row.outcome == "preempted" and layout.preemption == "never":
            note(f"{row.place}: it was preempted, which the machine does not allow")
        key = row.request_id, row.node_id
        if layout.failures is not None and attempts.get(key, 0) >= layout.failures.attempts:
            note(f"{row.place}: the node failed {attempts[key]} times, and is not to be tried again")
        attempts[key] = attempts.get(key, 0) + (row.outcome == "gpu_failed")
