"""A Task in its worker: its recorder on the clock of the machine or of a simulation, its time limit, and its end."""

import math
import signal
import struct
import threading
from pathlib import Path
from time import monotonic_ns

from seamark.load.driver import Task, TaskFailure
from seamark.load.workers.assignment import FILES, WorkerCounters, WorkerRun
from seamark.load.workers.events import EventFile, EventTrack
from seamark.load.workers.records import Recorder, Segment
from seamark.model.digest import seed_for
from seamark.model.sample import MISSING_NS, Failure


class WallClockRecorder:
    """Records the samples of a Task on the machine's clock. `seed` is that of the trial."""

    def __init__(
        self,
        segment: Segment,
        folder: Path,
        *,
        seed: int,
        worker: int,
        kinds: int,
        events: EventFile | None = None,
    ) -> None:
        self._folder = folder
        self._kinds = kinds
        self.seed, self.arrivals_seed = seed_for(seed, "task"), seed_for(seed, "arrivals")
        self.ran_out = False
        self.began_ns = 0
        self.qualities: dict[str, float] = {}
        self.epoch_ns = 0
        self.count = 0
        self._worker = worker
        self._events = events
        self._records = Recorder(segment)

    @property
    def folder(self) -> Path:
        """The folder for files that are kept, created when it is asked for."""
        self._folder.mkdir(exist_ok=True)
        return self._folder

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
        bytes_sent: int = 0,
        bytes_received: int = 0,
    ) -> None:
        """Record one request or step. Raises OSError (no space), and TaskFailure for what cannot be."""
        due_ns = sent_ns if due_ns is None else due_ns
        if not 0 <= due_ns <= sent_ns <= (sent_ns if first_ns is None else first_ns) <= last_ns:
            times_ns = (due_ns, sent_ns, *([] if first_ns is None else [first_ns]), last_ns)
            raise _wrong(index, f"it must be 0 <= due <= sent <= first <= last, and is {times_ns} ns")
        if units < 0 or not 0 <= kind < self._kinds:
            raise _wrong(index, f"{units} units of kind {kind}, where the driver has {self._kinds} kinds")
        self.count += 1
        try:
            self._records.add(
                index,
                due_ns,
                sent_ns,
                MISSING_NS if first_ns is None else first_ns,
                MISSING_NS,
                last_ns,
                units,
                0,
                False,
                bytes_sent,
                bytes_received,
                status,
                failure,
                kind,
                self._worker,
            )
        except struct.error as error:
            raise _wrong(index, f"{error}; indexes, times in ns and units are whole numbers") from None
        self._on_sample(last_ns)

    def _on_sample(self, last_ns: int) -> None:
        """Write the sample at once: a Task may be killed."""
        self._records.flush()

    def flush(self) -> None:
        """Write what is held. Raises OSError (no space)."""
        self._records.flush()

    def quality(self, name: str, value: float) -> None:
        """Record a figure of the whole. Raises TaskFailure for one that is no finite number."""
        if not math.isfinite(float(value)):
            raise TaskFailure("wrong_record", f"the figure '{name}' is {value}: a figure is a finite number")
        self.qualities[name] = float(value)

    def track(self) -> EventTrack | None:
        """Return a new track for events, None unless the load has `keep_events`."""
        return None if self._events is None else self._events.track()


def _wrong(index: int, why: str) -> TaskFailure:
    return TaskFailure("wrong_record", f"sample {index}: {why}")


class VirtualClockRecorder(WallClockRecorder):
    """Records the samples of a simulated load, whose time is that of its latest sample. One that is killed is made
    anew, so that samples are written in blocks."""

    _latest_ns = 0

    def now_ns(self) -> int:
        """Return the time of the latest sample."""
        return self._latest_ns

    def _on_sample(self, last_ns: int) -> None:
        if last_ns > self._latest_ns:
            self._latest_ns = last_ns


def run_task(run: WorkerRun, driver: Task) -> WorkerCounters:
    """Begin, and run the Task until its time limit or SIGTERM at the latest."""
    assignment, events = run.assignment, run.events
    stop, late = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    make = VirtualClockRecorder if assignment.job.virtual_clock else WallClockRecorder
    recorder = make(
        run.segment,
        assignment.segment.parent / FILES,
        seed=assignment.job.seed,
        worker=assignment.worker,
        kinds=len(driver.kinds),
        events=events,
    )
    recorder.epoch_ns = epoch_ns = run.begin()
    if events is not None:
        events.epoch_ns = 0  # a Task gives its times from the start of load
    stop.wait(max(0.0, (epoch_ns - monotonic_ns()) / 1e9))
    limit_s = assignment.load.length_s

    def end() -> None:
        late.set()
        stop.set()

    timer = threading.Timer(max(0.0, limit_s - (monotonic_ns() - epoch_ns) / 1e9), end)
    timer.daemon = True
    timer.start()
    fault: BaseException | None = None
    try:
        driver.run(recorder, stop)
        recorder.flush()
    except Exception as error:  # a driver may raise anything
        fault = error
    ended_s = (monotonic_ns() - epoch_ns) / 1e9
    timer.cancel()
    if late.is_set():
        fault = TaskFailure("timeout", f"it had not ended after limit_s ({limit_s:g} s)")
    return WorkerCounters(
        scheduled=recorder.count,
        sent=recorder.count,
        completed=recorder.count,
        survivors=0,
        backlog_max=0,
        ran_out=recorder.ran_out,
        ran_out_s=ended_s,
        fault=fault,
        category=fault.category if isinstance(fault, TaskFailure) else None,
        quality=recorder.qualities,
        began_ns=recorder.began_ns or None,
    )
