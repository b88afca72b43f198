"""What passes between coordinator and worker as data: the load, a worker's assignment, its counters. JSON both ways.
And what a worker runs its assignment with."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seamark.load.driver import EventTracks, Target
from seamark.model.load_profile import LoadProfile
from seamark.model.sample import Failure
from seamark.model.service import LoadKind, Value
from seamark.storage.redaction import secrets_here, without, without_sent

if TYPE_CHECKING:
    from seamark.load.workers.events import EventFile
    from seamark.load.workers.records import ReplySegment, Segment

PROCESSES_A_CORE = 2
MOST_ERRORS, MOST_LETTERS = 20, 300
"""Codes of errors that a worker counts, and letters that it keeps of the words of each."""
ENDLESS = 1 << 62
SEGMENTS = ("samples", "chunks", "replies", "events", "asked")
FILES = "files"
"""Folder beside the segments with the files that a Task keeps."""


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """The load of one trial.

    `driver` is `module:Class` (or a function), called with a Target; a driver with `encode` is a Wire driver.
    `workers` is how the recipe wants the load spread: only `processes` uses more workers than `shards`. `settings`
    has every setting of the trial: the driver reads those of its service, all else the LoadProfile. `bodies` is the
    number of distinct requests made before the clock starts; a driver's `body_count` takes precedence.
    `latency_limit_s` is the longest reply time that the objectives allow, None without one. `cores` are the CPUs of
    workers on this machine, () for all; `niceness` is theirs, 0 to 19, `threads` the limit of numerical libraries in
    each, None for no limit, `gpu_variables` what says which GPUs they see, {} for those of this process. With
    `judged_in_time`, quality is measured only until the last time-out of a request has passed, so that the load ends
    in a known time.
    `done` are the items of a finite load that earlier sessions have done, as text (work_list.py). `environment` has
    the variables by which a deployment's processes are found: those that a driver starts have them too. `preload` are
    modules that take long to import, which the workers of all loads of a run share.

    With `keep_busy`, a load whose work runs out before that of the loads beside it begins anew: it has no request
    limit, a trace is replayed, and the items of a work list are sent again (work_list.py). Raises ValueError for a
    program with it: a program runs once. `bodies_seed` is that of the bodies alone, None for `seed`.
    """

    driver: str
    workers: Literal["wire", "threads", "processes"]
    settings: Mapping[str, Value]
    seed: int
    data: Path
    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    bodies: int = 8192
    telemetry_interval_s: float = 0.5
    ready_timeout_s: float = 120.0
    latency_limit_s: float | None = None
    cores: tuple[int, ...] = ()
    niceness: int = 0
    threads: int | None = None
    gpu_variables: Mapping[str, str] = field(default_factory=dict)
    judged_in_time: bool = False
    done: str = ""
    kind: LoadKind = "requests"
    virtual_clock: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_busy: bool = False
    bodies_seed: int | None = None
    preload: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.keep_busy and self.kind == "program":
            raise ValueError("keep_busy: a program runs once, it cannot begin anew")

    @property
    def seed_of_bodies(self) -> int:
        """The seed of what is sent; `seed` is that of when."""
        return self.seed if self.bodies_seed is None else self.bodies_seed

    @cached_property
    def load(self) -> LoadProfile:
        """The settings of the load, which are the same for every service; with `keep_busy` without a request
        limit."""
        profile = LoadProfile.of(self.settings)
        return replace(profile, requests=None) if self.keep_busy else profile

    @property
    def processes(self) -> int:
        """Number of worker processes: `shards`, limited by concurrency; at least two per core where the driver asks
        for processes because it holds the interpreter lock: while one waits for the server, another sends."""
        many = PROCESSES_A_CORE * (len(self.cores) or os.cpu_count() or 1) if self.workers == "processes" else 1
        return self.at_least(many)

    def at_least(self, many: int = 1) -> int:
        """Return the number of workers for a load that uses `many` or more: `shards`, limited by concurrency, by the
        `connections` that a recipe lets them share, and by the request limit also where `keep_busy` lifts it, so that
        the load is the same as without."""
        load, requests = self.load, LoadProfile.of(self.settings).requests
        shared = self.settings.get("connections")
        most = shared if isinstance(shared, int) else load.concurrency
        return max(1, min(max(many, load.shards), load.concurrency, most, requests or load.concurrency))

    def target(self, worker: int = 0, workers: int = 1, events: EventTracks | None = None) -> Target:
        """Return the Target for the driver of one worker."""
        return Target(
            settings=self.settings,
            data=self.data,
            host=self.host,
            ports=self.ports,
            worker=worker,
            workers=workers,
            environment=self.environment,
            events=events,
        )


@dataclass(frozen=True, kw_only=True)
class WorkerAssignment:
    """Worker `worker` of `workers` in a load, and the file it writes. `items` are those that it sends of a finite
    load, in order; only the worker itself knows them."""

    job: LoadJob
    worker: int
    workers: int
    segment: Path
    items: Sequence[int] | None = None

    @property
    def load(self) -> LoadProfile:
        """The settings of the whole load."""
        return self.job.load

    @property
    def chunks(self) -> Path:
        """The segment for the chunks of streamed replies, beside that of the samples."""
        return self.path("chunks")

    @property
    def replies(self) -> Path | None:
        """The segment for the replies themselves, beside that of the samples; None where they are not kept."""
        return self.path("replies") if self.load.keep_replies else None

    @property
    def events(self) -> Path | None:
        """The segment for events, beside that of the samples; None where none are recorded."""
        return self.path("events") if self.load.keep_events else None

    def path(self, kind: str) -> Path:
        """Return the segment of one kind of SEGMENTS. Raises ValueError for another."""
        return self.segment.with_suffix(f".{SEGMENTS[SEGMENTS.index(kind)]}")

    @property
    def files(self) -> dict[str, Path]:
        """All segments of this worker that exist, by kind."""
        return {kind: path for kind in SEGMENTS if (path := self.path(kind)).exists()}

    @property
    def cores(self) -> tuple[int, ...]:
        """CPUs of this worker: one of its own for an event loop, if there are enough; () for all."""
        cores = self.job.cores
        if self.job.workers == "wire" and self.workers <= len(cores):
            return cores[self.worker : self.worker + 1]
        return cores

    @property
    def concurrency(self) -> int:
        """This worker's share of users, connections or threads."""
        whole, rest = divmod(self.load.concurrency, self.workers)
        return whole + (self.worker < rest)

    @property
    def requests(self) -> int | None:
        """This worker's request limit, None without one."""
        total = self.load.requests
        return None if total is None else max(0, -(-(total - self.worker) // self.workers))

    @property
    def indexes(self) -> Sequence[int]:
        """Indexes of the requests that this worker sends of a closed loop, in order."""
        return range(self.worker, ENDLESS, self.workers)[: self.requests] if self.items is None else self.items

    def to_json(self) -> dict[str, Any]:
        """Return the assignment as a JSON document."""
        document = asdict(self)
        document["job"]["data"] = str(self.job.data)
        return document | {"segment": str(self.segment)}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "WorkerAssignment":
        """Return the assignment that `to_json` wrote."""
        job = LoadJob(**document["job"])
        job = replace(job, data=Path(job.data), cores=tuple(job.cores), preload=tuple(job.preload))
        return WorkerAssignment(**{**document, "job": job, "segment": Path(document["segment"])})


@dataclass(frozen=True, kw_only=True)
class WorkerRun:
    """An assignment in its worker, and what it runs with.

    `begin` reports that the worker is ready and returns the epoch, ns of CLOCK_MONOTONIC. `report_progress` is called
    at every tick of an open loop with ns since the epoch, requests due, requests completed. `replies` takes the
    replies themselves, `events` the events; None: they are not kept.
    """

    assignment: WorkerAssignment
    segment: "Segment"
    begin: Callable[[], int]
    report_progress: Callable[[int, int, int], None] | None = None
    replies: "ReplySegment | None" = None
    events: "EventFile | None" = None


@dataclass(frozen=True, kw_only=True)
class WorkerCounters:
    """Counters of one worker besides its samples; its report is made of them.

    `scheduled` - `sent` requests were due and never sent; `written_off` threads hung in a call; `ran_out`: the
    request limit, not the end of the load, ended the sessions; `ran_out_s`: see WorkerReport, None in an open loop,
    where the samples tell it; `spin_s`: CPU time spent in exact waits rather than in work; `held_open_s`: total time
    that streams stayed open after their last content; `asked_units`: see WorkerReport; `stalls_ns`: see
    schedule_share.py, `network`: see connection_limits.py. A program has a `category` of its failure, `quality`, and
    `began_ns`, see TaskRecorder. `errors`: see WorkerReport.
    """

    scheduled: int
    sent: int
    completed: int
    survivors: int
    backlog_max: int
    loop_lag_ns: Mapping[str, int] | None = None
    stalls_ns: Sequence[tuple[int, int]] = ()
    spin_s: float = 0.0
    held_open_s: float = 0.0
    asked_units: int = 0
    network: Mapping[str, Any] | None = None
    written_off: int = 0
    ran_out: bool = False
    ran_out_s: float | None = None
    fault: BaseException | None = None
    category: str | None = None
    quality: Mapping[str, float] | None = None
    began_ns: int | None = None
    errors: Mapping[str, Any] | None = None


def count_error(
    errors: dict[str, dict[str, Any]], failure: Failure, error: str | None, request: bytes | Sequence[bytes] = b""
) -> None:
    """Count what a service says of a failed request (`code: words`) by its code, in the form of an ErrorsSeen: the
    words of the first, in one line, without what the request has sent in its headers."""
    if not error:
        return
    code, _, words = error.partition(": ")
    code = " ".join(code.split())
    if seen := errors.get(code):
        seen["count"] += 1
    elif len(errors) < MOST_ERRORS:
        sent = request if isinstance(request, bytes) else b"".join(request)
        line = without_sent(without(" ".join(words.split()), secrets_here()), sent)
        line = line[:MOST_LETTERS]  # cut last, so that no secret is cut in two
        shown = "".join(letter if letter.isprintable() else "." for letter in line)
        errors[code] = {"category": failure.name.lower(), "count": 1, "words": shown}
