"""executions.parquet: the node executions of a simulated trial, from which its figures and its log are derived."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.metrics.samples import DamagedError
from seamark.analysis.schedule.execution_rows import METADATA_KEY, read_execution_table
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.storage.codec import decode, encode
from seamark.storage.documents import replacing
from seamark_simulate.simulation.execution_log import (
    ExecutionLog,
    LoggedExecution,
    SimulationFacts,
    add_optional,
    log_summary,
)
from seamark_simulate.simulation.schedule import Executions, Schedule
from seamark_simulate.simulation.schedule_metrics import metrics_of
from seamark_simulate.simulation.workload import SOURCES
from seamark_simulate.simulation.world import COMPLETED

FETCHES = ("none", "load", "switch")
"""What precedes a node on its GPUs: nothing, the first load of an empty GPU, or a change of model."""
COLUMNS = pa.schema(
    [
        ("request", pa.int64()),
        ("request_id", pa.string()),
        ("workflow", pa.string()),
        ("node", pa.string()),
        ("model", pa.string()),
        ("gpu", pa.int32()),
        ("gpus", pa.int32()),
        *((name, pa.float64()) for name in ("arrival_s", "ready_s", "taken_s", "fetch_s", "start_s", "end_s")),
        ("fetch", pa.string()),
        *((name, pa.float64()) for name in ("duration_s", "estimated_s")),
        ("time_source", pa.string()),
    ]
)
"""A row for each execution, in the order of starts; times in seconds from the first arrival. `request` counts the
requests from 0, `gpu` is the first of `gpus`. `start_s` is `taken_s` + `fetch_s`; `time_source` is that of
`estimated_s`."""
OUTCOME_COLUMNS = (("outcome", pa.string()), ("transfer_s", pa.float64()))
"""Also of runs whose executions may be interrupted or fail, and of machine files: why an execution did not do its
work, `completed` where it did, and the time of data from other GPUs, which ends at `start_s`."""
GPU_COLUMN = ("gpu_ids", pa.list_(pa.int32()))
"""Also where the GPUs of an execution are not consecutive: their ids."""
TEXTS = [field.name for field in COLUMNS if field.type == pa.string()]


def execution_table(schedule: Schedule, facts: SimulationFacts) -> pa.Table:
    """Return the executions of a schedule as rows of COLUMNS."""
    work, ran = schedule.work, schedule.ran
    nodes, requests = schedule.node.tolist(), [work.requests[number] for number in ran.request.tolist()]
    named = [work.name_of(node)[1] for node in nodes]
    values: Mapping[str, Any] = {
        "request": ran.request,
        "request_id": [request.id for request in requests],
        "workflow": [request.workflow for request in requests],
        "node": named,
        "model": [ran.models[model] for model in ran.model.tolist()],
        "gpu": ran.gpu,
        "gpus": ran.count,
        "arrival_s": ran.arrival_s[ran.request],
        "ready_s": ran.ready_s,
        "taken_s": ran.taken_s,
        "fetch_s": ran.fetch_s,
        "start_s": ran.start_s,
        "end_s": ran.end_s,
        "fetch": np.asarray(FETCHES)[ran.is_cold + 2 * ran.is_switch],
        "duration_s": schedule.duration_s,
        "estimated_s": np.asarray(work.estimate_s, np.float64)[schedule.node],
        "time_source": [SOURCES[work.source[node]] for node in nodes],
    }
    if (measured := schedule.measured) is not None:
        values = {**values, "outcome": measured.outcome, "transfer_s": measured.transfer_s, "gpu_ids": measured.gpus}
    optional = () if measured is None else (*OUTCOME_COLUMNS, *((GPU_COLUMN,) if measured.gpus is not None else ()))
    schema = pa.schema([*COLUMNS, *optional]).with_metadata({METADATA_KEY: json.dumps(encode(facts)).encode()})
    return pa.Table.from_arrays([_array(values[column.name], column.type) for column in schema], schema=schema)


def write_executions(path: Path, schedule: Schedule, facts: SimulationFacts) -> None:
    """Write the executions of a schedule, whole or not at all. Raises OSError (no space)."""
    table = execution_table(schedule, facts)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True, use_dictionary=TEXTS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Return a column made from its bytes: pa.array would import pandas, which takes longer than most simulations."""
    if pa.types.is_list(kind):
        offsets = np.cumsum([0, *map(len, values)])
        flat = [gpu for gpus in values for gpu in gpus]
        return pa.ListArray.from_arrays(_array(offsets, pa.int32()), _array(flat, kind.value_type))
    if kind != pa.string():
        column = np.ascontiguousarray(values, kind.to_pandas_dtype())
        return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])
    texts = [str(value).encode() for value in values]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))])


def schedule_of_trial(path: Path) -> ScheduleMetrics:
    """Return the figures of a simulated trial. Raises DamagedError as `read_executions`."""
    _, _, ran = read_executions(path)
    return metrics_of(ran)


def log_of_file(path: Path) -> ExecutionLog:
    """Return the execution log of a simulated trial. Raises DamagedError as `read_executions`."""
    table, facts, ran = read_executions(path)
    return ExecutionLog(
        summary=log_summary(metrics_of(ran), facts), executions=tuple(map(_logged, table.to_pylist()))
    )


def _logged(row: Mapping[str, Any]) -> LoggedExecution:
    fetch_s, gpu = row["fetch_s"], row["gpu"]
    logged = LoggedExecution(
        request_id=row["request_id"],
        workflow_id=row["workflow"],
        node_id=row["node"],
        model_name=row["model"],
        gpu_id=gpu,
        gpu_ids=tuple(row.get("gpu_ids") or range(gpu, gpu + row["gpus"])),
        start_time=row["start_s"],
        end_time=row["end_s"],
        execution_time=row["duration_s"],
        estimated_time=row["estimated_s"],
        time_source=row["time_source"],
        ready_time=row["ready_s"],
        waiting_time=row["taken_s"] - row["ready_s"],
        switch_time=fetch_s if row["fetch"] == "switch" else 0.0,
        load_time=fetch_s if row["fetch"] == "load" else 0.0,
    )
    add_optional(logged, row.get("transfer_s") or 0.0, row.get("outcome") or COMPLETED)
    return logged


def read_executions(path: Path) -> tuple[pa.Table, SimulationFacts, Executions]:
    """Return the rows of a file, what they are of, and their numbers. Raises DamagedError for a file that is missing,
    cannot be read, or says what cannot be."""
    table = read_execution_table(path)
    try:
        facts = decode(json.loads((table.schema.metadata or {})[METADATA_KEY]), SimulationFacts)
        names = [name for name, _ in (*OUTCOME_COLUMNS, GPU_COLUMN) if name in table.column_names]
        return table.select([*COLUMNS.names, *names]), facts, _numbers(table, facts)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as cause:
        raise DamagedError(f"{path.name} is damaged: {' '.join(str(cause).split())[:200]}") from cause


def _numbers(table: pa.Table, facts: SimulationFacts) -> Executions:
    """Return the columns of figures. Raises ValueError and LookupError for values that cannot be."""
    names = ("request", "gpu", "gpus", "arrival_s", "ready_s", "taken_s", "fetch_s", "end_s")
    column = {name: table[name].to_numpy() for name in names}
    places = {model: number for number, model in enumerate(facts.models)}
    fetch = np.asarray(table["fetch"].to_pylist())
    request = column["request"].astype(np.int64)
    unstarted = {int(number): at_s for number, at_s in (facts.unstarted or {}).items()}
    known = {*np.unique(request).tolist(), *unstarted}
    requests = max(known, default=-1) + 1
    if min(known, default=0) < 0 or len(known) != requests or not known.issuperset(facts.incomplete):
        raise ValueError("requests are missing in it")
    arrival_s = np.zeros(requests)
    arrival_s[request] = column["arrival_s"]
    arrival_s[list(unstarted)] = list(unstarted.values())
    optional = {name: table[name] for name, _ in (*OUTCOME_COLUMNS, GPU_COLUMN) if name in table.column_names}
    gpu_ids = [tuple(ids) for ids in optional["gpu_ids"].to_pylist()] if "gpu_ids" in optional else None
    if gpu_ids is not None and any(not 0 <= gpu_id < facts.gpus for ids in gpu_ids for gpu_id in ids):
        raise ValueError(f"it has executions on other GPUs than 0 to {facts.gpus - 1}")
    gpu, count = column["gpu"].astype(np.int64), column["gpus"].astype(np.int64)
    last = gpu + (count if gpu_ids is None else 1)
    if gpu.min(initial=0) < 0 or count.min(initial=1) < 1 or last.max(initial=0) > facts.gpus:
        raise ValueError(f"it has executions on other GPUs than 0 to {facts.gpus - 1}")
    return Executions(
        gpus=facts.gpus,
        models=facts.models,
        arrival_s=arrival_s,
        request=request,
        model=np.asarray([places[model] for model in table["model"].to_pylist()], np.int64),
        gpu=gpu,
        count=count,
        is_switch=fetch == "switch",
        is_cold=fetch == "load",
        ready_s=column["ready_s"],
        taken_s=column["taken_s"],
        fetch_s=column["fetch_s"],
        end_s=column["end_s"],
        transfer_s=optional["transfer_s"].to_numpy() if "transfer_s" in optional else None,
        outcome=optional["outcome"].to_pylist() if "outcome" in optional else None,
        incomplete=facts.incomplete,
        not_run=facts.not_run,
        gpu_ids=gpu_ids,
    )
