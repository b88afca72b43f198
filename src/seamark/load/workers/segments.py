"""Raw segments converted to samples.parquet, in constant memory and atomically. Needs pyarrow (base environment)."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.load.workers.records import read_replies, read_segment, segment_state
from seamark.model.sample import CHUNK, EVENT, MISSING_NS, SAMPLE, EventKind, Failure
from seamark.storage.documents import replacing

METADATA_KEY = b"seamark"
TIMES = ("due_ns", "sent_ns", "first_ns", "answer_ns", "last_ns")
TIMES_OF_CHUNKS = ("at_ns",)
TIMES_OF_EVENTS = ("begin_ns", "end_ns")
ROWS_IN_GROUP = 1 << 17
REPLIES = pa.schema([("index", pa.int64()), ("reply", pa.binary())])
REPLIES_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Contents of samples.parquet: `rows` requests sent, with their failures, and `unsent` requests that were due.
    `cut` names segments that their worker did not close."""

    rows: int
    unsent: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    last_ns: int = 0
    """Time of the last reply since the start of load."""


@dataclass(frozen=True, kw_only=True)
class PlacedSegment:
    """A segment of one session of a finite load: `offset_ns` is added to its times, and only requests of the items in
    the mask `only` are taken; None: all."""

    path: Path
    offset_ns: int
    only: npt.NDArray[np.bool_] | None = None

    def read(self, form: np.dtype[np.void] = SAMPLE) -> Iterator[npt.NDArray[np.void]]:
        """Yield the records, as `read_segment`."""
        for records in read_segment(self.path, ROWS_IN_GROUP, form):
            number, *_ = form.names or ()
            kept = records.copy() if self.only is None else records[self._wanted(records[number], self.only)]
            for name in set(TIMES_OF_CHUNKS + TIMES + TIMES_OF_EVENTS) & set(form.names or ()):
                kept[name][kept[name] != MISSING_NS] += self.offset_ns
            yield kept

    def replies(self) -> Iterator[tuple[int, bytes]]:
        """Yield the kept replies, as `read_replies`."""
        for index, reply in read_replies(self.path):
            if self.only is None or (index < self.only.size and self.only[index]):
                yield index, reply

    def _wanted(self, items: npt.NDArray[np.int64], only: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        wanted = items < only.size
        wanted[wanted] = only[items[wanted]]
        return wanted


def _records(segment: Path | PlacedSegment, form: np.dtype[np.void] = SAMPLE) -> Iterator[npt.NDArray[np.void]]:
    return segment.read(form) if isinstance(segment, PlacedSegment) else read_segment(segment, ROWS_IN_GROUP, form)


def _schema(form: np.dtype[np.void], metadata: Mapping[str, Any] | None = None) -> pa.Schema:
    """Return the schema of records, with metadata as JSON under the key `seamark`."""
    columns = [(name, pa.from_numpy_dtype(form[name])) for name in form.names or ()]
    said = None if metadata is None else {METADATA_KEY: json.dumps(dict(metadata)).encode()}
    return pa.schema(columns, metadata=said)


def _write(target: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], rising: Sequence[str] = ()) -> int:
    """Write batches to a Parquet file, whole or not at all; return the number of rows.

    Values of the columns `rising` increase by little: delta encoding takes a third of the space and a tenth of the
    time of a dictionary, which the others have.
    """
    encoding: dict[str, Any] = {
        "use_dictionary": [name for name in schema.names if name not in rising] if rising else True,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED") or None,
    }
    rows = 0
    with (
        replacing(target) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True, **encoding) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            rows += len(batch)
    return rows


def gather_samples(segments: Sequence[Path | PlacedSegment], target: Path, metadata: Mapping[str, Any]) -> Gathered:
    """Write the records of all segments, worker by worker, to `target`; whole or not at all.

    A missing time becomes null. Of a cut segment, its whole records are taken. Raises OSError (no space) and
    ValueError (a file that is not a segment).
    """
    schema = _schema(SAMPLE, metadata)
    failures = np.zeros(len(Failure), dtype=np.int64)
    unsent = last_ns = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal failures, unsent, last_ns
        for segment in segments:
            for records in filter(len, _records(segment)):
                yield _batch(records, schema)
                sent = records["sent_ns"] != MISSING_NS
                unsent += int((~sent).sum())
                failures += np.bincount(records["failure"][sent], minlength=len(Failure))
                last_ns = max(last_ns, int(records["last_ns"].max()))

    rows = _write(target, schema, batches(), ("index", *TIMES)) - unsent
    counts = {failure.name.lower(): int(failures[failure]) for failure in Failure if failures[failure]}
    counts.pop("none", None)
    whole = [segment for segment in segments if isinstance(segment, Path)]
    cut = tuple(path.name for path in whole if not segment_state(path)[1])
    return Gathered(rows=rows, unsent=unsent, failures=counts, cut=cut, last_ns=last_ns)


def gather_chunks(segments: Sequence[Path | PlacedSegment], target: Path) -> int:
    """Write the chunks of all segments to `target`, whole or not at all; return their number. Raises as
    `gather_samples`."""
    schema = _schema(CHUNK)
    found = (records for segment in segments for records in filter(len, _records(segment, CHUNK)))
    return _write(target, schema, (_batch(records, schema) for records in found), ("index", *TIMES_OF_CHUNKS))


def gather_events(segments: Sequence[Path | PlacedSegment], target: Path, stages: Sequence[str]) -> int:
    """Write the events of all segments to `target`, whole or not at all; return their number. The names of stages and
    kinds are in its metadata. Raises as `gather_samples`."""
    schema = _schema(EVENT, {"stages": list(stages), "what": [kind.name.lower() for kind in EventKind]})
    found = (records for segment in segments for records in filter(len, _records(segment, EVENT)))
    return _write(target, schema, (_batch(records, schema) for records in found), ("query", *TIMES_OF_EVENTS))


def gather_replies(segments: Sequence[Path | PlacedSegment], target: Path) -> int:
    """Write the kept replies of all segments to `target`, whole or not at all: columns `index` and `reply` (bytes).
    Return their number. Raises as `gather_samples`."""

    def batches() -> Iterator[pa.RecordBatch]:
        for segment in segments:
            yield from _batches(segment.replies() if isinstance(segment, PlacedSegment) else read_replies(segment))

    return _write(target, REPLIES, batches())


def gather_asked(segments: Sequence[Path | PlacedSegment]) -> Mapping[str, str]:
    """Return what identifies the content of each item, by its number, from the files of all workers.

    Of a session only the items that it has done count; a file that was cut short says nothing.
    """
    asked: dict[str, str] = {}
    for segment in segments:
        path = segment.path if isinstance(segment, PlacedSegment) else segment
        done = segment.only if isinstance(segment, PlacedSegment) else None
        try:
            items: Mapping[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        for item, content in items.items():
            if done is None or (int(item) < len(done) and done[int(item)]):
                asked.setdefault(item, content)
    return asked


def _batches(replies: Iterator[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Collect replies in batches of about REPLIES_BYTES."""
    indexes: list[int] = []
    bodies: list[bytes] = []
    size = 0
    for index, reply in replies:
        indexes.append(index)
        bodies.append(reply)
        size += len(reply)
        if size >= REPLIES_BYTES:
            yield pa.RecordBatch.from_arrays([pa.array(indexes), pa.array(bodies, pa.binary())], schema=REPLIES)
            indexes, bodies, size = [], [], 0
    if indexes:
        yield pa.RecordBatch.from_arrays([pa.array(indexes), pa.array(bodies, pa.binary())], schema=REPLIES)


def read_samples(samples: Path, rows: int = ROWS_IN_GROUP) -> Iterator[pa.RecordBatch]:
    """Yield the samples in batches, in constant memory."""
    with pq.ParquetFile(samples) as file:
        yield from file.iter_batches(batch_size=rows)


def _batch(records: npt.NDArray[np.void], schema: pa.Schema) -> pa.RecordBatch:
    """Arrow columns on the records' own bytes. Avoids `pa.array`, which imports pandas needlessly."""
    columns = []
    for column in schema:
        values = np.ascontiguousarray(records[column.name])
        present = values != MISSING_NS if column.name in TIMES else None
        valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        columns.append(pa.Array.from_buffers(column.type, len(values), [valid, pa.py_buffer(values)]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
