"""A trial's events in the Trace Event Format (JSON), which Perfetto and chrome://tracing open. Constant memory."""

import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.model.sample import EventKind
from seamark.storage.documents import regular, replacing

ON_THREADS = (EventKind.RUN, EventKind.PREPARE, EventKind.STEP)
"""Kinds drawn on the thread that recorded them, where they nest. Waits overlap, and have tracks of their own."""
KINDS = tuple(kind.name.lower() for kind in EventKind)
COLUMNS = ("query", "begin_ns", "end_ns", "thread", "visit", "stage", "what", "worker")
Row = tuple[int, int, int, int, int, int, int, int]
"""An event: its COLUMNS."""


def write_perfetto(events: Path, target: Path, *, from_s: float = 0.0, to_s: float | None = None) -> int:
    """Write the events that touch [from_s, to_s) from the start of load to `target`, compressed if its name ends in
    `.gz`; return their number. A worker is a process of the trace, a track one of its threads.

    Raises ValueError for damaged events and OSError (no space).
    """
    count = 0
    with trace_file(target) as file:
        threads: set[tuple[int, int]] = set()
        for row, names in _rows(events):
            _, begin_ns, end_ns, thread, _, _, _, worker = row
            if end_ns < from_s * 1e9 or (to_s is not None and begin_ns >= to_s * 1e9):
                continue
            if (worker, thread) not in threads:
                file.write(_heads(worker, thread))
                threads.add((worker, thread))
            file.write(_entries(row, names))
            count += 1
        file.write('{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "worker 0"}}')
    return count


@contextmanager
def trace_file(target: Path) -> Iterator[TextIO]:
    """Open a trace for its events, compressed if its name ends in `.gz`; it is there once it is whole."""
    with replacing(target) as temporary, _opened(temporary, compress=target.suffix == ".gz") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        yield file
        file.write("\n]}\n")


def _opened(path: Path, *, compress: bool) -> TextIO:
    return cast(TextIO, gzip.open(path, "wt", compresslevel=3)) if compress else path.open("w", encoding="utf-8")


def _rows(path: Path) -> Iterator[tuple[Row, Sequence[str]]]:
    """Yield each event, and the names of all stages as JSON."""
    try:
        with pq.ParquetFile(regular(path), page_checksum_verification=True) as file:
            stages = json.loads((file.schema_arrow.metadata or {})[b"seamark"])["stages"]
            names = [json.dumps(str(name))[1:-1] for name in stages]
            for batch in file.iter_batches():
                for row in zip(*(batch.column(name).to_pylist() for name in COLUMNS), strict=True):
                    yield row, names
    except (pa.ArrowException, KeyError, ValueError) as cause:
        raise ValueError(f"{path}: is damaged: {' '.join(str(cause).split())[:200]}") from cause


def _entries(row: Row, names: Sequence[str]) -> str:
    """Return the entries of one event as JSON, each with a comma."""
    query, begin_ns, end_ns, thread, visit, stage, what, worker = row
    name = names[stage] if 0 <= stage < len(names) else f"stage {stage}"
    kind = KINDS[what] if 0 <= what < len(KINDS) else str(what)
    begin_us, end_us = begin_ns / 1e3, end_ns / 1e3
    about = f'"cat": "{kind}", "pid": {worker}, "tid": {thread}, "args": {{"query": {query}, "visit": {visit}}}}},\n'
    if what in ON_THREADS:
        shown = name if what == EventKind.RUN else f"{name}: {kind}"
        return f'{{"name": "{shown}", "ph": "X", "ts": {begin_us}, "dur": {(end_ns - begin_ns) / 1e3}, {about}'
    if what == EventKind.FIRST_UNIT:
        return f'{{"name": "{name}: first unit", "ph": "i", "s": "t", "ts": {end_us}, {about}'
    pair = f'{{"name": "{name}: {kind}", "id": "{worker}.{query}.{visit}",'
    return f'{pair} "ph": "b", "ts": {begin_us}, {about}{pair} "ph": "e", "ts": {end_us}, {about}'


def _heads(worker: int, thread: int) -> str:
    """Return the entries that name a worker and one of its threads."""
    named = f'{{"ph": "M", "pid": {worker}, "name": "process_name", "args": {{"name": "worker {worker}"}}}},\n'
    about = f'"name": "thread_name", "args": {{"name": "thread {thread}"}}'
    return f'{named}{{"ph": "M", "pid": {worker}, "tid": {thread}, {about}}},\n'
