"""Executions of a trial as columns, read by name: files of later versions may have more of them; and what their
metadata say of the machine: inside which GPUs windows lie, and when GPUs were gone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import DamagedError
from seamark.storage.documents import regular

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
METADATA_KEY = b"seamark"
TIMES = ("arrival_s", "ready_s", "taken_s", "start_s", "end_s")
FETCHES = LOAD, SWITCH, TRANSFER = ("load", "switch", "transfer")
"""What holds GPUs before a node runs: the model is loaded or changed, then data come from other GPUs."""
AWAY = {"failed": "repaired", "removed": "added"}
"""A change by which a GPU goes, and that by which it comes back from it."""


@dataclass(frozen=True, kw_only=True)
class Gone:
    """Intervals in which a GPU was not there, shape (intervals,); the end of one that never came back is infinite."""

    gpu: Ints
    begin_s: Floats
    end_s: Floats


@dataclass(frozen=True, kw_only=True)
class ExecutionRows:
    """Executions that held GPUs, on a machine of `gpus` GPUs; times in seconds from the first arrival.

    All columns but the last four are by execution, shape (executions,). From `taken_s` to `start_s` the GPUs load
    (`is_switch`: change) the model, and fetch data in the last `transfer_s` of it; until `end_s` they run the node.
    `model` is a place in `models`. `held_row` and `held_gpu`, shape (holdings,), are pairs of an execution and one of
    its GPUs. `consecutive`: the GPUs of an execution must be neighbours; they are of one domain, by GPU in `domain`.
    `is_first`: a node's first execution, and not one after another that was interrupted. `gone` is when GPUs were not
    there.
    """

    gpus: int
    models: tuple[str, ...]
    consecutive: bool
    model: Ints
    count: Ints
    is_switch: NDArray[np.bool_]
    arrival_s: Floats
    ready_s: Floats
    taken_s: Floats
    start_s: Floats
    transfer_s: Floats
    end_s: Floats
    is_first: NDArray[np.bool_]
    held_row: Ints
    held_gpu: Ints
    domain: Ints
    gone: Gone

    @property
    def makespan_s(self) -> float:
        """The latest end; 0 without executions."""
        return float(self.end_s.max(initial=0.0))


def read_execution_table(path: Path) -> pa.Table:
    """Return the rows of a file of executions. Raises DamagedError for one that is missing or cannot be read."""
    try:
        with pq.ParquetFile(regular(path), page_checksum_verification=True) as file:
            return file.read()
    except FileNotFoundError:
        raise DamagedError(f"{path.name} is missing") from None
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise DamagedError.by(cause, path.name) from cause


def read_rows(path: Path) -> ExecutionRows:
    """Return the executions of a file. Raises DamagedError as `read_execution_table`, and for impossible values."""
    table = read_execution_table(path)
    try:
        return rows_of(table)
    except (pa.ArrowException, ValueError, LookupError, TypeError) as cause:
        raise DamagedError.by(cause, path.name) from cause


def ran(table: pa.Table) -> pa.Table:
    """Return the executions of a table that held GPUs: the others have no times. Raises LookupError without a column
    of times or GPUs."""
    known = np.ones(len(table), bool)
    for name in ("gpu", *TIMES):
        known &= table[name].is_valid().to_numpy()
    for name in TIMES:
        known &= np.isfinite(table[name].to_numpy().astype(np.float64))
    return table.filter(pa.array(known))


def rows_of(table: pa.Table) -> ExecutionRows:
    """Return the executions of a table that held GPUs. Raises ValueError and LookupError for impossible values."""
    facts, table = _facts(table), ran(table)
    arrival_s, ready_s, taken_s, start_s, end_s = (table[name].to_numpy().astype(np.float64) for name in TIMES)
    if (start_s < taken_s).any() or (end_s < start_s).any():
        raise ValueError("executions end before they begin")
    named = table["model"].cast(pa.string()).combine_chunks().dictionary_encode()
    models = tuple(str(name) for name in named.dictionary.to_pylist())
    count, held_gpu = gpus_of(table)
    gpus = int(facts.get("gpus") or held_gpu.max(initial=0) + 1)
    if held_gpu.min(initial=0) < 0 or held_gpu.max(initial=0) >= gpus:
        raise ValueError(f"it has executions on other GPUs than 0 to {gpus - 1}")
    fetch = table["fetch"] if "fetch" in table.column_names else pa.chunked_array([pa.nulls(len(table), pa.string())])
    return ExecutionRows(
        gpus=gpus,
        models=models,
        consecutive=(facts.get("machine") or {}).get("windows") != "any",
        model=named.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64),
        count=count,
        is_switch=pc.fill_null(pc.equal(fetch, SWITCH), False).to_numpy().astype(bool),
        arrival_s=arrival_s,
        ready_s=ready_s,
        taken_s=taken_s,
        start_s=start_s,
        transfer_s=_transfers(table, start_s - taken_s),
        end_s=end_s,
        is_first=_first(table),
        held_row=np.repeat(np.arange(len(table)), count),
        held_gpu=held_gpu,
        domain=domains_of(facts, gpus),
        gone=gone_of(facts, gpus),
    )


def _first(table: pa.Table) -> NDArray[np.bool_]:
    """Return whether each execution is the first of its node; all are in a file without outcomes."""
    firsts = np.ones(len(table), bool)
    if {"request", "node", "outcome"} <= set(table.column_names):
        seen = set[tuple[Any, Any]]()
        for row, node in enumerate(zip(table["request"].to_pylist(), table["node"].to_pylist(), strict=True)):
            firsts[row] = node not in seen
            seen.add(node)
    return firsts


def _transfers(table: pa.Table, before_s: Floats) -> Floats:
    """Return the times of data from other GPUs, a part of what passed `before_s` the run; 0 where a file has none."""
    if "transfer_s" not in table.column_names:
        return np.zeros(len(table))
    transfer_s = pc.fill_null(table["transfer_s"], 0.0).to_numpy().astype(np.float64)
    return np.asarray(np.clip(np.nan_to_num(transfer_s), 0.0, before_s))


def gpus_of(table: pa.Table) -> tuple[Ints, Ints]:
    """Return the number of GPUs of each execution, and all their GPUs one after another: those of `gpu_ids` where a
    file lists them, else `gpus` neighbours from `gpu` on."""
    if "gpu_ids" in table.column_names:
        lists = table["gpu_ids"].to_pylist()
        count = np.asarray([len(gpu_ids) for gpu_ids in lists], np.int64)
        return count, np.asarray([gpu for gpu_ids in lists for gpu in gpu_ids], np.int64)
    first = table["gpu"].to_numpy().astype(np.int64)
    count = table["gpus"].to_numpy().astype(np.int64)
    begins = np.repeat(np.cumsum(count) - count, count)
    return count, np.repeat(first, count) + np.arange(int(count.sum())) - begins


def _facts(table: pa.Table) -> Mapping[str, Any]:
    facts = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return facts if isinstance(facts, dict) else {}


def domains_of(facts: Mapping[str, Any], gpus: int) -> Ints:
    """Return by GPU the number of the GPUs inside which its windows lie: those of its host, or all. Raises ValueError
    for hosts that have other GPUs."""
    machine = facts.get("machine") or {}
    if machine.get("span_hosts") or not machine.get("hosts"):
        return np.zeros(gpus, np.int64)
    counts = [int(host["gpus"]) for host in machine["hosts"]]
    if sum(counts) != gpus or min(counts) < 0:
        raise ValueError(f"its hosts have {sum(counts)} GPUs, and not {gpus}")
    return np.repeat(np.arange(len(counts)), counts)


def gone_of(facts: Mapping[str, Any], gpus: int) -> Gone:
    """Return when GPUs were gone. Raises ValueError for a GPU that the machine does not have."""
    whys: dict[int, set[str]] = {}
    since_s: dict[int, float] = {}
    spans: list[tuple[int, float, float]] = []
    for change in facts.get("gpu_changes") or ():
        at_s, what = float(change["at_s"]), change["what"]
        for gpu in map(int, change["gpus"]):
            if not 0 <= gpu < gpus:
                raise ValueError(f"it has a change of another GPU than 0 to {gpus - 1}")
            why, was_gone = whys.setdefault(gpu, set()), gpu in since_s
            if what in AWAY:
                why.add(what)
            else:
                why -= {away for away, back in AWAY.items() if back == what}
            if why and not was_gone:
                since_s[gpu] = at_s
            elif was_gone and not why:
                spans.append((gpu, since_s.pop(gpu), at_s))
    spans += [(gpu, begin_s, inf) for gpu, begin_s in since_s.items()]
    return Gone(
        gpu=np.asarray([gpu for gpu, _, _ in spans], np.int64),
        begin_s=np.asarray([begin_s for _, begin_s, _ in spans], np.float64),
        end_s=np.asarray([end_s for _, _, end_s in spans], np.float64),
    )
