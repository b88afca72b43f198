"""Events of a worker: where the time of its requests goes, stage by stage, recorded by a driver's own threads."""

import struct
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Self

import numpy as np
import numpy.typing as npt

from seamark.load.driver import TaskFailure
from seamark.load.workers.records import RecordBlock, Segment
from seamark.model.sample import EVENT

EVENT_RECORD = struct.Struct("<qqqihhbh")
"""One event; packs exactly EVENT."""
EVENT_BYTES, pack_event = EVENT_RECORD.size, EVENT_RECORD.pack_into
FLUSH_NS = 1_000_000_000
"""A killed worker loses at most this much of a track's events, once the track records another one."""


class EventTrack(RecordBlock):
    """Block of EVENT records of one thread. Only that thread adds to it."""

    __slots__ = ("_file", "_flush_ns", "_thread", "_worker")
    form = EVENT

    def __init__(self, file: "EventFile", segment: Segment, *, thread: int, worker: int) -> None:
        super().__init__(segment)
        self._file = file
        self._thread = thread
        self._worker = worker
        self._flush_ns = 0

    def add(self, query: int, stage: int, what: int, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        """Add one event, as `Track.add` of a driver. Raises OSError when the disk is full."""
        at = self._at
        pack_event(self._block, at, query, begin_ns, end_ns, self._thread, visit, stage, what, self._worker)
        self._at = at = at + EVENT_BYTES
        if at == self._end or end_ns > self._flush_ns:
            self.flush()
            self._flush_ns = end_ns + FLUSH_NS

    def flush(self) -> None:
        """Write the buffered events; drop them before the clock has started."""
        at, self._at = self._at, 0
        epoch_ns = self._file.epoch_ns
        if at and epoch_ns is not None:
            count = at // EVENT_BYTES
            self._file.check(self._records[:count])
            if epoch_ns:
                for name in ("begin_ns", "end_ns"):
                    self._records[name][:count] -= epoch_ns
            self._segment.append(self._view[:at], count)


class EventFile:
    """The events of one worker. `epoch_ns` is the start of load on the clock of the events; None: not known yet.
    `stages` is the number of the driver's stages, `fault` the first mistake in an event."""

    def __init__(self, path: Path, worker: int) -> None:
        self.epoch_ns: int | None = None
        self.stages = 1 << 15
        self.fault: TaskFailure | None = None
        self._segment = Segment(path, EVENT_BYTES)
        self._worker = worker
        self._tracks: list[EventTrack] = []
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._segment.close()

    def track(self) -> EventTrack:
        """Return a new track, for one thread."""
        with self._lock:
            track = EventTrack(self, self._segment, thread=len(self._tracks), worker=self._worker)
            self._tracks.append(track)
        return track

    def started(self, begin: Callable[[], int]) -> Callable[[], int]:
        """Return a function that calls `begin` and takes its epoch."""

        def started() -> int:
            self.epoch_ns = epoch_ns = begin()
            return epoch_ns

        return started

    def check(self, records: npt.NDArray[np.void]) -> None:
        """Note the first event that cannot be: of no stage of the driver, or with an end before its beginning."""
        stage, begin_ns, end_ns = records["stage"], records["begin_ns"], records["end_ns"]
        wrong = (stage < 0) | (stage >= self.stages) | (end_ns < begin_ns) | (records["query"] < 0)
        if self.fault is None and wrong.any():
            query, begin, end, *_ = records[int(np.argmax(wrong))].item()
            at = f"an event of request {query} in stage {int(stage[np.argmax(wrong)])}, from {begin} to {end} ns"
            self.fault = TaskFailure("wrong_record", f"{at}, cannot be: there are {self.stages} stages, from 0")

    def sync(self) -> None:
        """As that of a Segment."""
        self._segment.sync()

    def flush(self) -> None:
        """Write what all tracks have buffered, after the load: their threads add no more that counts."""
        for track in list(self._tracks):
            track.flush()
