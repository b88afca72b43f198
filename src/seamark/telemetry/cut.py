"""Telemetry of one trial: its interval of the files of the deployment's supervisor and of the load.

Memory holds the rows of the trial only, however long its deployment has run.
"""

import contextlib
import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import SEEK_END, BytesIO
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from seamark.model.results.load_record import LoadRecord
from seamark.storage.documents import regular, replacing
from seamark.storage.paths import TrialFolder

BLOCK_BYTES = 1 << 18
OF_PROCESSES = ("server", "client")
Row = tuple[float, str, str, float, str]

SCHEMA = pa.schema(
    [
        ("at_s", pa.float64()),
        ("source", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
    ]
)


def cut(files: Sequence[Path], epoch_unix_s: float, end_s: float) -> pa.Table:
    """Return the rows of all `files` from 0 to `end_s` seconds after `epoch_unix_s`, in order of time.

    Columns at_s, source, name, value, unit. A missing file has no rows; a damaged line is skipped.
    """
    rows = sorted(row for file in files if file.is_file() for row in _rows(file, epoch_unix_s, end_s))
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def _of_other(name: str, files: Sequence[Path], epoch_unix_s: float, end_s: float) -> pa.Table:
    """Return the use of CPUs by another party's processes, as the sources `NAME.server` and `NAME.client`."""
    table = cut(files, epoch_unix_s, end_s)
    rows = [row for row in table.to_pylist() if row["source"] in OF_PROCESSES and row["name"] == "cpu_ratio"]
    return pa.Table.from_pylist([row | {"source": f"{name}.{row['source']}"} for row in rows], SCHEMA)


def _moved(table: pa.Table, offset_s: float) -> pa.Table:
    """Return the rows with times later by `offset_s`."""
    if not offset_s:
        return table
    at_s = pa.array([at_s + offset_s for at_s in table.column("at_s").to_pylist()], pa.float64())
    return table.set_column(0, SCHEMA.field("at_s"), at_s)


def _rows(file: Path, epoch_unix_s: float, end_s: float) -> Iterator[Row]:
    with regular(file).open("rb") as opened:
        lines = _lines(opened, epoch_unix_s, end_s)
        inside = (line.decode(errors="replace") for line in lines if 0.0 <= _at_s(line, epoch_unix_s) <= end_s)
        for cells in csv.reader(inside):
            with contextlib.suppress(ValueError):
                at, source, name, value, unit = cells
                yield float(at) - epoch_unix_s, source, name, float(value), unit


def _lines(file: BinaryIO, epoch_unix_s: float, end_s: float) -> Iterator[bytes]:
    """Yield the lines of the blocks that can have times from 0 to `end_s`, so that a trial does not read all that its
    deployment has recorded. A block in which the clock was set back, or whose times are unknown, is read; a
    reading whose clock was wrong for less than a block may be missed by a trial of that other time."""
    marks = list(_marks(file, epoch_unix_s))
    for (at_byte, first_s), (to_byte, next_s) in pairwise(marks):
        if not (next_s < 0.0 and first_s <= next_s) and not (first_s > end_s and first_s <= next_s):
            file.seek(at_byte)
            yield from BytesIO(file.read(to_byte - at_byte))


def _marks(file: BinaryIO, epoch_unix_s: float) -> Iterator[tuple[int, float]]:
    """Yield place and time of the first whole line of every BLOCK_BYTES of a file, and its end; NaN for no time."""
    size = file.seek(0, SEEK_END)
    place = 0
    for offset in range(0, size, BLOCK_BYTES):
        file.seek(max(0, offset - 1))
        if offset:
            file.readline()
        if offset == 0 or place < file.tell() < size:
            place = file.tell()
            yield place, _at_s(file.readline(), epoch_unix_s)
    yield size, math.nan


def _at_s(line: bytes, epoch_unix_s: float) -> float:
    """Return the time of a line, NaN (outside of every interval) for one that does not begin with a time."""
    try:
        return float(line.partition(b",")[0]) - epoch_unix_s
    except ValueError:
        return math.nan


def load_window(load: LoadRecord) -> tuple[float, float]:
    """Return start (s since 1970) and length of a trial's load by its load.json.

    A load that ended early, or never began, is no longer than it ran.
    """
    if load.epoch_unix_ns is None:
        return 0.0, 0.0
    epoch_unix_s = load.epoch_unix_ns / 1e9
    planned_s = (load.warmup_s or 0.0) + (load.duration_s or 0.0)
    if load.finished_at:
        lasted_s = datetime.fromisoformat(load.finished_at).timestamp() - epoch_unix_s
        return epoch_unix_s, max(0.0, min(planned_s, lasted_s))
    return epoch_unix_s, planned_s


def load_windows(load: LoadRecord) -> list[tuple[float, float, float]]:
    """Return start (s since 1970) and length of each session of a load, and its place on the load's time axis."""
    if len(load.sessions) > 1:
        return [((session.epoch_unix_ns or 0) / 1e9, session.length_s, session.offset_s) for session in load.sessions]
    return [(*load_window(load), 0.0)]


def cut_telemetry(
    deployment_csv: Path,
    client_csv: Path,
    load: LoadRecord,
    folder: TrialFolder,
    beside: Mapping[str, Sequence[Path]] = MappingProxyType({}),
) -> pa.Table:
    """Write telemetry.parquet and telemetry.csv of a trial; return the table. The use of CPUs by the processes of
    other parties on the same machine joins it, from the files `beside`, by party."""
    tables = [
        (cut([deployment_csv, client_csv], epoch_s, length_s), offset_s)
        for epoch_s, length_s, offset_s in load_windows(load)
    ]
    tables += [(_of_other(name, files, *load_window(load)), 0.0) for name, files in beside.items()]
    table = pa.concat_tables([_moved(part, offset_s) for part, offset_s in tables])
    with replacing(folder.telemetry) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    with replacing(folder.telemetry_csv) as temporary:
        pa.csv.write_csv(table, temporary, pa.csv.WriteOptions(quoting_style="needed"))
    return table
