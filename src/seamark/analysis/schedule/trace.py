"""A schedule in the Trace Event Format (JSON), which Perfetto and chrome://tracing open: a track a GPU, counters."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.analysis.metrics.samples import DamagedError
from seamark.analysis.perfetto import trace_file
from seamark.analysis.schedule.execution_rows import LOAD, SWITCH, TRANSFER, Floats, Ints, ran, rows_of
from seamark.analysis.schedule.occupation import counts_over_time

PROCESS = 1
Event = dict[str, Any]


def write_schedule_trace(table: pa.Table, target: Path, *, from_s: float = 0.0, to_s: float | None = None) -> int:
    """Write the executions that touch [from_s, to_s) to `target`, compressed if its name ends in `.gz`; return their
    number.

    Each GPU is a track with slices of loads, switches, transfers and runs; `queue` and `GPUs in use` are counters.
    Times are whole ns, so slices of a track never overlap by a rounding. Raises DamagedError (impossible values) and
    OSError (no space).
    """
    try:
        chosen = ran(table)
        taken_s, end_s = (chosen[name].to_numpy() for name in ("taken_s", "end_s"))
        chosen = chosen.filter(pa.array((end_s >= from_s) & (taken_s < (np.inf if to_s is None else to_s))))
        events = [*_slices(chosen), *_counters(table, from_s, to_s)]
        names = _names(rows_of(table).gpus)
    except (pa.ArrowException, ValueError, LookupError, TypeError) as cause:
        raise DamagedError(f"the executions are damaged: {' '.join(str(cause).split())[:200]}") from cause
    events.sort(key=lambda event: (event["ts"], event["ph"] != "C"))
    with trace_file(target) as file:
        file.write(",\n".join(map(json.dumps, (*names, *events))))
    return len(chosen)


def _names(gpus: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": "GPUs"}}
    for gpu in range(gpus):
        about = {"ph": "M", "pid": PROCESS, "tid": gpu + 1}
        yield about | {"name": "thread_name", "args": {"name": f"GPU {gpu}"}}
        yield about | {"name": "thread_sort_index", "args": {"sort_index": gpu}}


def _slices(table: pa.Table) -> Iterator[Event]:
    """Yield slices for each GPU of each execution: load or switch and transfer, if they took time, then the run."""
    rows = rows_of(table)
    names = [name for name in ("request_id", "workflow", "node", "model") if name in table.column_names]
    columns = [table[name].to_pylist() for name in names]
    args = [dict(zip(("request", *names[1:]), texts, strict=True)) for texts in zip(*columns, strict=True)]
    moments = (rows.taken_s, rows.start_s - rows.transfer_s, rows.start_s, rows.end_s)
    times = list(zip(*map(_ns, moments), strict=True))
    held: list[list[int]] = [[] for _ in args]
    for row, gpu in zip(rows.held_row.tolist(), rows.held_gpu.tolist(), strict=True):
        held[row].append(gpu)
    for row, gpus in enumerate(held):
        taken, fetched, start, end = times[row]
        model, about = rows.models[rows.model[row]], args[row] | {"gpus": gpus}
        fetch = SWITCH if rows.is_switch[row] else LOAD
        for gpu in gpus:
            if fetched > taken:
                yield _slice(f"{fetch} {model}", fetch, gpu, taken, fetched, about)
            if start > fetched:
                yield _slice(TRANSFER, TRANSFER, gpu, fetched, start, about)
            yield _slice(model, "execution", gpu, start, end, about)


def _slice(name: str, kind: str, gpu: int, begin_ns: int, end_ns: int, args: Event) -> Event:
    times = {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
    return {"name": name, "cat": kind, "ph": "X", **times, "pid": PROCESS, "tid": gpu + 1, "args": args}


def _counters(table: pa.Table, from_s: float, to_s: float | None) -> Iterator[Event]:
    """Yield the number of waiting nodes and of held GPUs, whenever they change."""
    rows = rows_of(table)
    yield from _counter("queue", "nodes", *counts_over_time(rows.ready_s, rows.taken_s), from_s, to_s)
    used = counts_over_time(rows.taken_s, rows.end_s, rows.count)
    yield from _counter("GPUs in use", "GPUs", *used, from_s, to_s)


def _counter(
    name: str, unit: str, moments: Floats, values: Ints, from_s: float, to_s: float | None
) -> Iterator[Event]:
    first = int(np.searchsorted(moments, from_s, side="right"))
    last = len(moments) if to_s is None else int(np.searchsorted(moments, to_s))
    before = int(values[first - 1]) if first else 0
    at_ns = [round(from_s * 1e9), *_ns(moments[first:last])]
    for ns, value in zip(at_ns, [before, *values[first:last].tolist()], strict=True):
        yield {"name": name, "ph": "C", "ts": ns / 1e3, "pid": PROCESS, "args": {unit: value}}


def _ns(times_s: Floats) -> list[int]:
    return [int(time_ns) for time_ns in np.rint(times_s * 1e9).astype(np.int64).tolist()]
