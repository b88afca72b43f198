"""Reader of raw samples in batches, in constant memory. Counts nothing."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from seamark.model.sample import MISSING_NS, SAMPLE
from seamark.storage.documents import regular

BATCH_ROWS = 1 << 17
Times = NDArray[np.int64]
Mask = NDArray[np.bool_]


class DamagedError(ValueError):
    """The samples cannot be used: missing, truncated, of another configuration, or not samples at all."""

    @classmethod
    def by(cls, cause: Exception, what: str) -> "DamagedError":
        """Return the error for `what` is damaged, such as a file, with the beginning of its cause in one line."""
        return cls(f"{what} is damaged: {' '.join(str(cause).split())[:200]}")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some samples as columns; times in ns from the start of load, MISSING_NS for a missing one."""

    index: Times
    due: Times
    sent: Times
    first: Times
    answer: Times
    last: Times
    units: Times
    first_units: Times
    uncounted: Times
    bytes_sent: Times
    bytes_received: Times
    failure: Times
    kind: Times
    retries: Times

    @property
    def was_sent(self) -> Mask:
        """Which requests were sent."""
        return np.asarray(self.sent != MISSING_NS)

    @property
    def has_ended(self) -> Mask:
        """Which requests have an end, by a whole reply or a failure."""
        return np.asarray(self.last != MISSING_NS)

    @property
    def good(self) -> Mask:
        """Which requests have a good and complete reply."""
        return np.asarray((self.failure == 0) & self.has_ended & self.was_sent)


COLUMNS = {
    part.name: f"{part.name}_ns" if part.name in ("due", "sent", "first", "answer", "last") else part.name
    for part in fields(Batch)
}
"""Field of a batch -> column of the file."""
ADDED = {"answer_ns": MISSING_NS, "first_units": 0, "uncounted": 0, "retries": 0}
"""Columns that files of older versions lack, with their default."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A samples file with valid edges: it has the columns and metadata of Seamark."""

    path: Path
    rows: int
    latest_ns: int | None
    about: dict[str, Any]

    def batches(self, between_ns: tuple[int, int] | None = None) -> Iterator[Batch]:
        """Yield all samples; with `between_ns`, row groups without a reply in that range may be omitted.

        Raises DamagedError if a page cannot be read.
        """
        try:
            with pq.ParquetFile(regular(self.path), buffer_size=1 << 20, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    if _touches(file, group, between_ns):
                        yield from _rows_of(file, group)
        except (pa.ArrowException, OSError) as cause:
            raise DamagedError.by(cause, self.path.name) from cause


def open_samples(path: Path, config_hash: str | None = None) -> Samples:
    """Return the samples at `path`. Raises DamagedError with the reason if they are not those of `config_hash`."""
    try:
        with pq.ParquetFile(regular(path)) as file:
            names = set(file.schema_arrow.names)
            metadata = file.schema_arrow.metadata or {}
            rows = file.metadata.num_rows
            ends = [_statistics(file, group) for group in range(file.num_row_groups)]
        about = json.loads(metadata.get(b"seamark", b"{}"))
    except FileNotFoundError as cause:
        raise DamagedError(f"{path.name} is missing") from cause
    except (pa.ArrowException, OSError, ValueError) as cause:
        raise DamagedError.by(cause, path.name) from cause
    needed = [name for name in SAMPLE.names or () if name in COLUMNS.values() and name not in ADDED]
    missing = [name for name in needed if name not in names]
    if missing:
        raise DamagedError(f"{path.name} is not a samples file: it lacks {', '.join(missing)}")
    if config_hash is not None and about.get("config_hash") not in (None, config_hash):
        raise DamagedError(f"{path.name} is of another configuration ({about['config_hash']}, not {config_hash})")
    latest_ns = max((int(end.max) for end in ends if end is not None), default=None)
    return Samples(path=path, rows=rows, latest_ns=latest_ns, about=about)


def _rows_of(file: pq.ParquetFile, group: int) -> Iterator[Batch]:
    """One row group at a time: a reader over several keeps the pages of each."""
    lacking = {name: column for name, column in COLUMNS.items() if column not in file.schema_arrow.names}
    there = {name: column for name, column in COLUMNS.items() if name not in lacking}
    for part in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(there.values()), use_threads=False):
        columns = {name: _numbers(part.column(column)) for name, column in there.items()}
        columns |= {name: np.full(part.num_rows, ADDED[column]) for name, column in lacking.items()}
        yield Batch(**columns)


def _numbers(column: pa.Array) -> Times:
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(MISSING_NS)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _statistics(file: pq.ParquetFile, group: int) -> Any:
    described = file.metadata.row_group(group)
    index = file.schema_arrow.names.index("last_ns") if "last_ns" in file.schema_arrow.names else -1
    statistics = described.column(index).statistics if index >= 0 else None
    return statistics if statistics is not None and statistics.has_min_max else None


def _touches(file: pq.ParquetFile, group: int, between_ns: tuple[int, int] | None) -> bool:
    statistics = _statistics(file, group) if between_ns else None
    if between_ns is None or statistics is None:
        return True
    return bool(statistics.min < between_ns[1] and statistics.max >= between_ns[0])
