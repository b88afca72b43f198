"""What a worker saw, as it goes to disk: a raw segment of SAMPLE records, in constant memory. Read in segments.py.

A segment is a header, the records, and a footer that says how many they are. A segment without its footer was cut
short (its worker was killed); whole records before the cut are good.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import numpy.typing as npt

from seamark.model.sample import SAMPLE

RECORD = struct.Struct("<qqqqqiqqhbbh")
"""One record; packs exactly SAMPLE."""
HEADER = struct.pack("<8sQ", b"SEAMARK1", RECORD.size)
FOOTER = struct.Struct("<8sQ")
FOOTER_MAGIC = b"SEAMEND1"
BLOCK = 1024
"""Records that are written at once: some tens of microseconds of work, so that no request waits for it."""


class Segment:
    """The file of one worker. Recorders append whole records to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._broken = False
        self._lock = Lock()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.write(self._fd, HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, records: memoryview, count: int) -> None:
        """Write `count` records, all or none. Raises OSError (no space); the segment is then left without footer."""
        with self._lock:
            try:
                while records:
                    records = records[os.write(self._fd, records) :]
            except OSError:
                self._broken = True
                os.ftruncate(self._fd, len(HEADER) + self.count * RECORD.size)
                raise
            self.count += count

    def close(self) -> None:
        """Write the footer and close the file; a second call does nothing."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            if not self._broken:
                os.write(fd, FOOTER.pack(FOOTER_MAGIC, self.count))
        finally:
            os.close(fd)


class Recorder:
    """A block of records in memory, of one thread or event loop; written when full and by `flush`."""

    __slots__ = ("_at", "_block", "_end", "_segment", "_view", "failed")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._block = bytearray(RECORD.size * BLOCK)
        self._view = memoryview(self._block)
        self._end = len(self._block)
        self._at = 0
        self.failed = 0

    def add(
        self,
        index: int,
        due_ns: int,
        sent_ns: int,
        first_ns: int,
        last_ns: int,
        units: int,
        bytes_sent: int,
        bytes_received: int,
        status: int,
        failure: int,
        kind: int,
        worker: int,
    ) -> None:
        """Add one record, all times from the start of load. Raises OSError when the disk is full."""
        RECORD.pack_into(
            self._block,
            self._at,
            index,
            due_ns,
            sent_ns,
            first_ns,
            last_ns,
            units,
            bytes_sent,
            bytes_received,
            status,
            failure,
            kind,
            worker,
        )
        if failure:
            self.failed += 1
        self._at += RECORD.size
        if self._at == self._end:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        at, self._at = self._at, 0
        if at:
            self._segment.append(self._view[:at], at // RECORD.size)


def read_segment(path: Path, block: int = 1 << 16) -> Iterator[npt.NDArray[np.void]]:
    """Yield a segment's records in arrays of at most `block`. Raises ValueError for a file that is no segment."""
    count, _ = segment_state(path)
    with path.open("rb") as file:
        file.seek(len(HEADER))
        while count > 0:
            data = file.read(min(block, count) * RECORD.size)
            records = np.frombuffer(data, dtype=SAMPLE, count=len(data) // RECORD.size)
            if not records.size:
                return
            count -= records.size
            yield records


def segment_state(path: Path) -> tuple[int, bool]:
    """Return how many whole records a segment has, and whether its worker closed it. Raises ValueError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            raise ValueError(f"{path}: not a segment of samples, or of another version")
        content = size - len(HEADER)
        if content >= FOOTER.size and (content - FOOTER.size) % RECORD.size == 0:
            file.seek(size - FOOTER.size)
            magic, count = FOOTER.unpack(file.read(FOOTER.size))
            if magic == FOOTER_MAGIC and count == (content - FOOTER.size) // RECORD.size:
                return int(count), True
    return content // RECORD.size, False
