"""A Task in its worker: its recorder, its time limit, and its end."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

from seamark.load.driver import Task, TaskFailure
from seamark.load.workers.assignment import FILES, WorkerAssignment, WorkerCounters
from seamark.load.workers.events import EventFile, EventTrack
from seamark.load.workers.records import Recorder, Segment
from seamark.model.sample import MISSING_NS, Failure


class WallClockRecorder:
    """Records the samples of a Task on the machine's clock."""

    def __init__(self, segment: Segment, folder: Path, worker: int, events: EventFile | None = None) -> None:
        self.folder = folder
        self.qualities: dict[str, float] = {}
        self.epoch_ns = 0
        self.count = 0
        self._worker = worker
        self._events = events
        self._records = Recorder(segment)

    def now_ns(self) -> int:
        """Return the time since the start of load."""
        return monotonic_ns() - self.epoch_ns

    def sample(
        self,
        index: int,
        *,
        sent_ns: int,
        last_ns: int,
        due_ns: int | None = None,
        first_ns: int | None = None,
        units: int = 1,
        status: int = 0,
        failure: Failure = Failure.NONE,
        kind: int = 0,
    ) -> None:
        """Record one request or step, at once on the disk: a Task may be killed. Raises OSError (no space)."""
        self.count += 1
        self._records.add(
            index,
            sent_ns if due_ns is None else due_ns,
            sent_ns,
            MISSING_NS if first_ns is None else first_ns,
            MISSING_NS,
            last_ns,
            units,
            0,
            False,
            0,
            0,
            status,
            failure,
            kind,
            self._worker,
        )
        self._records.flush()

    def quality(self, name: str, value: float) -> None:
        """Record a figure of the whole."""
        self.qualities[name] = float(value)

    def track(self) -> EventTrack | None:
        """Return a new track for events, None unless the load has `keep_events`."""
        return None if self._events is None else self._events.track()


def run_task(
    assignment: WorkerAssignment,
    driver: Task,
    segment: Segment,
    begin: Callable[[], int],
    events: EventFile | None = None,
) -> WorkerCounters:
    """Call `begin` (returns the epoch) and run the Task, until its time limit or SIGTERM at the latest."""
    stop, late = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    recorder = WallClockRecorder(segment, assignment.segment.parent / FILES, assignment.worker, events)
    recorder.epoch_ns = begin()
    if events is not None:
        events.epoch_ns = 0  # a Task gives its times from the start of load
    stop.wait(max(0.0, -recorder.now_ns() / 1e9))
    limit_s = assignment.load.length_s

    def end() -> None:
        late.set()
        stop.set()

    timer = threading.Timer(max(0.0, limit_s - recorder.now_ns() / 1e9), end)
    timer.daemon = True
    timer.start()
    fault: BaseException | None = None
    try:
        driver.run(recorder, stop)
    except Exception as error:  # a driver may raise anything
        fault = error
    timer.cancel()
    if late.is_set():
        fault = TaskFailure("timeout", f"it had not ended after limit_s ({limit_s:g} s)")
    return WorkerCounters(
        scheduled=recorder.count,
        sent=recorder.count,
        completed=recorder.count,
        survivors=0,
        backlog_max=0,
        fault=fault,
        category=fault.category if isinstance(fault, TaskFailure) else None,
        quality=recorder.qualities,
    )
