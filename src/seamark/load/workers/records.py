"""Raw segments of SAMPLE and CHUNK records, written by workers in constant memory. segments.py converts them.

A segment is a header, records, and a footer with their number. Without a footer it was cut short (a killed worker);
whole records before the cut are valid.
"""

import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event, Lock, Thread
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from seamark.model.sample import CHUNK, MISSING_NS, SAMPLE

RECORD = struct.Struct("<qqqqqqiibqqhbbh2x")
"""One record; packs exactly SAMPLE, without retries."""
CHUNK_RECORD = struct.Struct("<qqi")
"""One read of a streamed reply; packs exactly CHUNK."""
RECORD_BYTES, CHUNK_BYTES = RECORD.size, CHUNK_RECORD.size
pack_record, pack_chunk = RECORD.pack_into, CHUNK_RECORD.pack_into
HEADER = struct.Struct("<8sQ")
HEADER_MAGIC = b"SEAMARK1"
FOOTER = struct.Struct("<8sQ")
FOOTER_MAGIC = b"SEAMEND1"
REPLY_HEAD = struct.Struct("<qI")
"""Index and length of a kept reply."""
REPLY_HEAD_BYTES, pack_reply = REPLY_HEAD.size, REPLY_HEAD.pack_into
REPLY_MAGIC = b"SEAMARKR"
REPLY_BLOCK = 1 << 18
SYNC_S = 1.0
BLOCK = 1024
"""Records written at once: some tens of microseconds of work, so that no request waits."""


class Segment:
    """The file of one worker. Recorders append whole records to it."""

    def __init__(self, path: Path, record_bytes: int = RECORD.size) -> None:
        self.path = path
        self.count = 0
        self._record_bytes = record_bytes
        self._broken = False
        self._lock = Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.write(self._fd, HEADER.pack(HEADER_MAGIC, record_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, records: memoryview, count: int) -> None:
        """Write `count` records, all or none. Raises OSError (no space); the segment then gets no footer."""
        with self._lock:
            try:
                while records:
                    records = records[os.write(self._fd, records) :]
            except OSError:
                self._broken = True
                os.ftruncate(self._fd, HEADER.size + self.count * self._record_bytes)
                raise
            self.count += count

    def sync(self) -> None:
        """Have the kernel write to the disk what was appended. An error is left to the next append."""
        with self._lock:
            fd = os.dup(self._fd) if self._fd >= 0 else -1
        _sync(fd)

    def close(self) -> None:
        """Write the footer and close the file; a second call does nothing."""
        if self._fd < 0:
            return
        with self._lock:
            fd, self._fd = self._fd, -1
        try:
            if not self._broken:
                os.write(fd, FOOTER.pack(FOOTER_MAGIC, self.count))
        finally:
            os.close(fd)


def _sync(fd: int) -> None:
    """Write to the disk what was written to a duplicated descriptor, and close it; nothing for -1."""
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.fdatasync(fd)
        os.close(fd)


@contextlib.contextmanager
def synced_each_second(*syncs: Callable[[], object]) -> Iterator[None]:
    """Write segments to the disk every second by their `sync`, in a thread, so that a crash of the machine loses
    little."""
    ended = Event()

    def sync() -> None:
        while not ended.wait(SYNC_S):
            for sync_segment in syncs:
                sync_segment()

    thread = Thread(target=sync, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class ReplySegment:
    """The file of one worker's kept replies: for each an index, a length, and bytes as they came. Without a footer:
    whole replies before a cut are valid."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._block = bytearray(REPLY_BLOCK)
        self._view = memoryview(self._block)
        self._at = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.write(self._fd, REPLY_MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
        os.close(fd)

    def add(self, index: int, pieces: Sequence[bytes]) -> None:
        """Add one reply in pieces, to be written by `flush` or when there are many. Raises OSError (no space)."""
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        at = self._at
        end = at + REPLY_HEAD_BYTES + size
        if end > REPLY_BLOCK:
            self.flush()
            at, end = 0, REPLY_HEAD_BYTES + size
            if end > REPLY_BLOCK:
                self._write(memoryview(b"".join((REPLY_HEAD.pack(index, size), *pieces))))
                return
        pack_reply(self._block, at, index, size)
        at += REPLY_HEAD_BYTES
        for piece in pieces:
            self._block[at : at + len(piece)] = piece
            at += len(piece)
        self._at = end

    def add_all(self, replies: Iterable[tuple[int, bytes]]) -> None:
        """Write some replies, in any thread. Raises OSError (no space)."""
        with self._lock:
            for index, reply in replies:
                self.add(index, (reply,))
            self.flush()

    def flush(self) -> None:
        """Write what was added."""
        at, self._at = self._at, 0
        self._write(self._view[:at])

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    def sync(self) -> None:
        """As that of a Segment."""
        with self._lock:
            fd = os.dup(self._fd) if self._fd >= 0 else -1
        _sync(fd)


def read_replies(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield index and bytes of the whole replies of a segment. Raises ValueError for another file."""
    with path.open("rb") as file:
        if file.read(len(REPLY_MAGIC)) not in (REPLY_MAGIC, b""):
            raise ValueError(f"{path}: not a segment of replies")
        while len(head := file.read(REPLY_HEAD.size)) == REPLY_HEAD.size:
            index, size = REPLY_HEAD.unpack(head)
            if len(reply := file.read(size)) < size:
                return
            yield index, reply


class RecordBlock:
    """A block of records of one thread or event loop, written when full and by `flush`.

    Times are clock times and are written relative to `epoch_ns`, the start of load: one subtraction per block.
    """

    __slots__ = ("_at", "_block", "_end", "_records", "_segment", "_view", "epoch_ns")
    form: ClassVar[np.dtype[np.void]]

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._block = bytearray(self.form.itemsize * BLOCK)
        self._view = memoryview(self._block)
        self._records = np.frombuffer(self._block, dtype=self.form)
        self._end = len(self._block)
        self._at = 0
        self.epoch_ns = 0


class Recorder(RecordBlock):
    """Block of SAMPLE records. What belongs to them (chunks, kept replies) is written first, by the functions
    `first`, so that no sample lacks it."""

    __slots__ = ("_first",)
    form = SAMPLE

    def __init__(self, segment: Segment, first: Sequence[Callable[[], object]] = ()) -> None:
        super().__init__(segment)
        self._first = first

    def add(
        self,
        index: int,
        due_ns: int,
        sent_ns: int,
        first_ns: int,
        answer_ns: int,
        last_ns: int,
        units: int,
        first_units: int,
        uncounted: bool,
        bytes_sent: int,
        bytes_received: int,
        status: int,
        failure: int,
        kind: int,
        worker: int,
    ) -> None:
        """Add one record; times are of the clock of `epoch_ns`. Raises OSError when the disk is full."""
        at = self._at
        pack_record(
            self._block,
            at,
            index,
            due_ns,
            sent_ns,
            first_ns,
            answer_ns,
            last_ns,
            units,
            first_units,
            uncounted,
            bytes_sent,
            bytes_received,
            status,
            failure,
            kind,
            worker,
        )
        self._at = at = at + RECORD_BYTES
        if at == self._end:
            self.flush()

    def flush(self) -> None:
        """Write the buffered records."""
        for flush in self._first:
            flush()
        at, self._at = self._at, 0
        if at:
            count = at // RECORD_BYTES
            if self.epoch_ns:
                records = self._records[:count]
                for name in ("due_ns", "sent_ns", "last_ns"):
                    records[name] -= self.epoch_ns
                for name in ("first_ns", "answer_ns"):
                    times_ns = records[name]
                    np.subtract(times_ns, self.epoch_ns, out=times_ns, where=times_ns != MISSING_NS)
            self._segment.append(self._view[:at], count)


class ChunkRecorder(RecordBlock):
    """Block of CHUNK records."""

    __slots__ = ()
    form = CHUNK

    def add(self, index: int, at_ns: int, events: int) -> None:
        """Add one read, its time of a clock on which the load starts at `epoch_ns`. Raises OSError when the disk is
        full."""
        at = self._at
        pack_chunk(self._block, at, index, at_ns, events)
        self._at = at = at + CHUNK_BYTES
        if at == self._end:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        at, self._at = self._at, 0
        if at:
            count = at // CHUNK_BYTES
            self._records["at_ns"][:count] -= self.epoch_ns
            self._segment.append(self._view[:at], count)


def read_segment(
    path: Path, block: int = 1 << 16, form: np.dtype[np.void] = SAMPLE
) -> Iterator[npt.NDArray[np.void]]:
    """Yield a segment's records in arrays of at most `block`. Raises ValueError for a file that is no segment of
    that form."""
    count, _ = segment_state(path, form)
    with path.open("rb") as file:
        file.seek(HEADER.size)
        while count > 0:
            data = file.read(min(block, count) * form.itemsize)
            records = np.frombuffer(data, dtype=form, count=len(data) // form.itemsize)
            if not records.size:
                return
            count -= records.size
            yield records


def read_segments(paths: Iterable[Path], form: np.dtype[np.void] = SAMPLE) -> npt.NDArray[np.void]:
    """Return all records of some segments in one array. For loads that are known to be small."""
    return np.concatenate(
        [np.zeros(0, dtype=form), *(block for path in paths for block in read_segment(path, form=form))]
    )


def segment_state(path: Path, form: np.dtype[np.void] = SAMPLE) -> tuple[int, bool]:
    """Return how many whole records a segment has, and whether its worker closed it. Raises ValueError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(HEADER.size) != HEADER.pack(HEADER_MAGIC, form.itemsize):
            raise ValueError(f"{path}: not a segment of samples, or of another version")
        content = size - HEADER.size
        if content >= FOOTER.size and (content - FOOTER.size) % form.itemsize == 0:
            file.seek(size - FOOTER.size)
            magic, count = FOOTER.unpack(file.read(FOOTER.size))
            if magic == FOOTER_MAGIC and count == (content - FOOTER.size) // form.itemsize:
                return int(count), True
    return content // form.itemsize, False
