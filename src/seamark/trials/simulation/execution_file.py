"""executions.parquet: the node executions of a simulated trial, from which its figures and its log are derived."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.metrics.samples import DamagedError
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.simulation.execution_log import ExecutionLog, LoggedExecution, log_summary
from seamark.simulation.executions import Executions, executions_of
from seamark.simulation.machine import ColdLoad
from seamark.simulation.node_times import SOURCES
from seamark.simulation.schedule import Schedule
from seamark.simulation.schedule_metrics import metrics_of
from seamark.storage.codec import decode, encode
from seamark.storage.paths import replacing

METADATA_KEY = b"seamark"
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
TEXTS = [field.name for field in COLUMNS if field.type == pa.string()]


@dataclass(frozen=True, kw_only=True)
class SimulationFacts:
    """What executions are of: the machine, the policy, `mode` (`offline`: all requests at zero, else `online`), the
    models in the order of their file, and the seed of drawn times, None where no time was drawn."""

    gpus: int
    cold_load: ColdLoad
    policy: str
    mode: str
    models: tuple[str, ...]
    seed: int | None = None


def execution_table(schedule: Schedule, facts: SimulationFacts) -> pa.Table:
    """Return the executions of a schedule as rows of COLUMNS."""
    work, ran = schedule.work, executions_of(schedule)
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
        "duration_s": np.asarray(work.duration_s, np.float64)[schedule.node],
        "estimated_s": np.asarray(work.estimate_s, np.float64)[schedule.node],
        "time_source": [SOURCES[work.source[node]] for node in nodes],
    }
    schema = COLUMNS.with_metadata({METADATA_KEY: json.dumps(encode(facts)).encode()})
    return pa.Table.from_arrays([_array(values[each.name], each.type) for each in schema], schema=schema)


def write_executions(path: Path, schedule: Schedule, facts: SimulationFacts) -> None:
    """Write the executions of a schedule, whole or not at all. Raises OSError (no space)."""
    table = execution_table(schedule, facts)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True, use_dictionary=TEXTS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Return a column made from its bytes: pa.array would import pandas, which takes longer than most simulations."""
    if kind != pa.string():
        column = np.ascontiguousarray(values, kind.to_pandas_dtype())
        return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])
    texts = [str(each).encode() for each in values]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))])


def schedule_of_trial(path: Path) -> ScheduleMetrics:
    """Return the figures of a simulated trial. Raises DamagedError as `read_executions`."""
    _, _, ran = read_executions(path)
    return metrics_of(ran)


def log_of_file(path: Path) -> ExecutionLog:
    """Return the execution log of a simulated trial. Raises DamagedError as `read_executions`."""
    table, facts, ran = read_executions(path)
    summary = log_summary(metrics_of(ran), mode=facts.mode, policy=facts.policy, cold_load=facts.cold_load)
    return ExecutionLog(summary=summary, executions=tuple(map(_logged, table.to_pylist())))


def _logged(row: Mapping[str, Any]) -> LoggedExecution:
    fetch_s, gpu = row["fetch_s"], row["gpu"]
    return LoggedExecution(
        request_id=row["request_id"],
        workflow_id=row["workflow"],
        node_id=row["node"],
        model_name=row["model"],
        gpu_id=gpu,
        gpu_ids=tuple(range(gpu, gpu + row["gpus"])),
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


def read_executions(path: Path) -> tuple[pa.Table, SimulationFacts, Executions]:
    """Return the rows of a file, what they are of, and their numbers. Raises DamagedError for a file that is missing,
    cannot be read, or says what cannot be."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        facts = decode(json.loads((table.schema.metadata or {})[METADATA_KEY]), SimulationFacts)
        return table.select(COLUMNS.names), facts, _numbers(table, facts)
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing") from None
    except (pa.ArrowException, OSError, ValueError, LookupError) as cause:
        raise DamagedError(f"{path.name} is damaged: {' '.join(str(cause).split())[:200]}") from cause


def _numbers(table: pa.Table, facts: SimulationFacts) -> Executions:
    """Return the columns of figures. Raises ValueError and LookupError for values that cannot be."""
    names = ("request", "gpu", "gpus", "arrival_s", "ready_s", "taken_s", "fetch_s", "end_s")
    column = {name: table[name].to_numpy() for name in names}
    places = {model: number for number, model in enumerate(facts.models)}
    fetch = np.asarray(table["fetch"].to_pylist())
    request = column["request"].astype(np.int64)
    requests = int(request.max(initial=-1)) + 1
    if request.min(initial=0) < 0 or len(np.unique(request)) != requests:
        raise ValueError("requests are missing in it")
    arrival_s = np.zeros(requests)
    arrival_s[request] = column["arrival_s"]
    gpu, count = column["gpu"].astype(np.int64), column["gpus"].astype(np.int64)
    if gpu.min(initial=0) < 0 or count.min(initial=1) < 1 or (gpu + count).max(initial=0) > facts.gpus:
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
    )
