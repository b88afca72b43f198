"""Interface of drivers: the kinds Wire, Call and Task, their optional parts with defaults, and a module's hooks.
Importable in every environment: it needs no library of a service."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, cast

from seamark.model.load_profile import LoadProfile
from seamark.model.sample import EventKind, Failure
from seamark.model.service import Value

if TYPE_CHECKING:
    import ssl

    from seamark.patterns.trace_file import TraceRow


class Track(Protocol):
    """Takes the events of one thread."""

    def add(self, query: int, stage: int, what: EventKind, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        """Record that a request was in a stage. Raises OSError (no space).

        `query` is the number of the request, `stage` that of the stage in the driver's `stages`, `visit` how often
        the request was there before. Times are those of time.monotonic_ns(); of a Task, ns from the start of load.
        """


class EventTracks(Protocol):
    """Makes tracks: one for each thread that records events, such as a user's, or one of a stage."""

    def track(self) -> Track: ...


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a driver is made from: where the service is, and the settings of the trial.

    A driver reads the settings of its service from `settings`, and those of the load, such as `timeout_s`, from
    `load`. `ports` maps the recipe's port names to numbers; empty for what runs inside the client. `data` is the
    deployment's private folder, which driver and server share on one node. A process that a driver starts has the
    variables of `environment`, by which it is found and ended wherever it has gone. `events` is None unless the load
    has `keep_events`. What a driver writes into the folder `files`, which it makes, is kept with the results of the
    trial; None outside of a load.
    """

    settings: Mapping[str, Value]
    data: Path
    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    worker: int = 0
    workers: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    events: "EventTracks | None" = None
    files: Path | None = None

    @cached_property
    def load(self) -> LoadProfile:
        """The settings of the load, which are the same for every service."""
        return LoadProfile.of(self.settings)


def whole(settings: Mapping[str, Value], name: str, otherwise: int | None = None) -> int:
    """Return a setting that is a whole number; `otherwise`, if given, where it is not set."""
    value = settings.get(name)
    if value is None and otherwise is not None:
        return otherwise
    assert isinstance(value, (int, float)), f"{name} is {value!r}"
    return int(value)


@dataclass(frozen=True, kw_only=True)
class Body:
    """One request in the driver's own terms, made before the clock starts. `kind` indexes `kinds`."""

    content: Any
    kind: int = 0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Result of one call of a Call driver. `failure` is set for a reply that is not good. `first_ns` is the time of
    its first unit, in ns of CLOCK_MONOTONIC, where it has several; `kept` is the reply, for `keep_replies`. `error`
    is what the service says of a failure, as `code: words`; `retries` is counted by the engine. `began_ns` is when
    the request was due, in ns of CLOCK_MONOTONIC, where the driver itself waits for that inside of the call."""

    units: int = 1
    bytes_sent: int = 0
    bytes_received: int = 0
    status: int = 0
    failure: Failure = Failure.NONE
    first_ns: int | None = None
    kept: bytes | None = None
    error: str | None = None
    retries: int = 0
    began_ns: int | None = None


class Clock(Protocol):
    """A clock that a driver slows down at times, never below the rate `slowest`. Times are in ns, and those of
    CLOCK_MONOTONIC until it is slowed down first."""

    slowest: float

    def now_ns(self) -> int: ...

    def wait_until(self, at_ns: int, stop: Event) -> None:
        """Return at `at_ns`, or soon after `stop` is set."""


class NoMoreRequests(Exception):  # noqa: N818
    """Raised by a call of a driver that has nothing left to send: the load ends as at its limit of requests."""


class Driver(ABC):
    """Common part of all kinds of driver: extend Wire, Call or Task. No clock, no retries, no counters.

    An attribute with a value is an optional part with its default: a driver that has the part sets it on the class or
    in `__init__`.
    """

    speaks: ClassVar[Literal["wire", "call", "task"]]

    unit: str
    """One unit of a reply, singular: reply, operation, transaction, item, token, query."""

    kinds: Sequence[str]
    """Names of this driver's kinds of request, such as ('put', 'get')."""

    body_count: int | None = None
    """Number of different bodies to keep in memory. None: as many as the load needs."""

    stages: Sequence[str] = ()
    """Names of a request's stages in order, if the driver records events by `call_traced` or a Task's recorder."""

    work_count: int | None = None
    """Number of items of a finite load: `bodies(work_count, seed)[i]` is the request for item i. None: no list."""

    work_groups: Sequence[int] | None = None
    """Group of each item, such as the document of a question: items of one group are sent in a row, by one worker."""

    item_ids: "Callable[[], Sequence[str]] | None" = None
    """`item_ids()` returns what identifies the content of each item, before the clock starts. A scorer returns the
    same as `Judged.asked`, so that kept replies are never scored against items that have changed since."""

    row_body: "Callable[[int, TraceRow, int], Body] | None" = None
    """`row_body(number, row, seed)` makes the request for a row of a trace with its recorded lengths, the same in
    every worker; it raises UserError for an impossible row. None: rows give arrival times alone."""

    warm: "Callable[[Iterable[Body]], int] | None" = None
    """`warm(bodies)` sends what they share, in worker 0 before the load; returns requests, raises TaskFailure."""

    clock: Clock | None = None
    """The clock by which the requests of a Call are due, sent and timed. None: CLOCK_MONOTONIC."""

    ended: "Callable[[], object] | None" = None
    """`ended()` is called once in each worker, when the last reply of the load is there. None: nothing."""

    @abstractmethod
    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return `count` seeded bodies (request number i uses bodies[i % count]); called before the clock starts.

        With `turns` in the settings of the target they are whole sessions, turn after turn.
        """


class Decoder(Protocol):
    """Decodes the bytes of one connection, one reply after another."""

    def reset(self) -> None:
        """Prepare for the next reply on the same connection."""

    def feed(self, data: bytes) -> bool:
        """Process received bytes; return True when the reply is complete."""

    streams: bool
    """Whether a reply has parts that count: then it has `events`."""

    units: int
    """Units of the current reply so far; the server's own count once it is known."""

    counted: bool
    """Whether `units` of a good reply are counted; else they are its parts, because the server does not count."""

    status: int
    """The protocol's status of the current reply, 0 while unknown."""

    failure: Failure
    """Failure of the current reply."""

    keep_alive: bool
    """False when the connection ends with this reply."""


class StreamDecoder(Decoder, Protocol):
    """A decoder whose `streams` is True."""

    events: int
    """Parts of the current reply with content; the reply ends with the last one."""

    answered: bool
    """Whether any of these belongs to the answer itself, and not to the reasoning before it."""

    first_units: int
    """Units in the first of these parts; 0 if the server omits them."""


class EndedByClose(ABC):
    """A decoder of replies that may end with their connection, such as an HTTP body without a length."""

    __slots__ = ()

    @abstractmethod
    def end_of_stream(self) -> bool:
        """Return whether the current reply is complete, now that the server has closed the connection."""


class Wire(Driver):
    """Bytes out, bytes in, on the generator's own connections: for protocols where speed matters."""

    speaks: ClassVar[Literal["wire"]] = "wire"

    tls: "ssl.SSLContext | None" = None
    """Encryption of its connections. None: plain."""

    most_units: int = 0
    """Units of the largest reply that the requests encoded so far allow; 0 if requests do not state it."""

    asked_units: int = 0
    """Units that the reply to the request encoded last has to have; 0 if it may end sooner."""

    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Return host and port of the service."""

    @abstractmethod
    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the encoded request; called before the clock starts.

        Several pieces are sent one after another without being joined, so that requests can share a large one.
        """

    @abstractmethod
    def decoder(self) -> Decoder:
        """Return a decoder for one connection."""


class Session(Protocol):
    """One user's connection to the service, used by one thread at a time."""

    def call(self, body: Body) -> Reply:
        """Make one request and wait for its reply; exceptions of the client library propagate."""

    def close(self) -> None:
        """Release the resources of the session."""


class TracedSession(Session, Protocol):
    """A session of a driver with `stages`."""

    def call_traced(self, body: Body, query: int) -> Reply:
        """As `call`, for a load with `keep_events`: `query` is the number under which the request's events are
        recorded, by the tracks of the target's `events`."""


class Call(Driver):
    """A blocking client or a library: psycopg2, faiss, gRPC, vendor SDKs, system calls."""

    speaks: ClassVar[Literal["call"]] = "call"

    @abstractmethod
    def session(self) -> Session:
        """Return a new session; called once for each thread before the clock starts."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception that `call` raised."""


class TaskFailure(Exception):  # noqa: N818
    """A program that failed: a category of the results, and the reason."""

    def __init__(self, category: str, reason: str) -> None:
        super().__init__(reason)
        self.category = category


class TaskRecorder(Protocol):
    """Takes the records of a Task. Times are in ns from the start of load; of a simulated load they are virtual."""

    @property
    def folder(self) -> Path:
        """The folder for files that are kept with the results of the trial."""

    seed: int
    """Seed of the Task's own random numbers, by that of the trial."""
    arrivals_seed: int
    """Seed of arrivals: with it a pattern gives those of a measured load whose trial has the same seed."""
    ran_out: bool
    """Whether no request was left before the end of the load: the measured window then ends with the last one."""
    began_ns: int
    """When a Task that first had to get ready began to send: the load, and the times of samples, start there."""

    def now_ns(self) -> int:
        """Return the time since the start of load; of a simulated load, the latest time that was recorded."""

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
        """Record one request or step, each index once; `due_ns` is `sent_ns` unless given. Times are whole ns,
        0 <= due <= sent <= first <= last. Raises OSError (no space), and TaskFailure for what cannot be."""

    def quality(self, name: str, value: float) -> None:
        """Record a figure of the whole."""

    def track(self) -> Track | None:
        """Return a new track for events, None unless the load has `keep_events`."""


class Task(Driver):
    """A program that runs once, in a worker, and records itself: for work that is no request. `units` of a sample are
    counted in `unit`, and `kinds` are the kinds of its samples."""

    speaks: ClassVar[Literal["task"]] = "task"

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return nothing: a program has no requests."""
        return ()

    @abstractmethod
    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        """Do the work. Return soon after `stop` is set: at the time limit, or at the end of the run.

        Raises TaskFailure for a failed program, which makes the trial a failed one of that category.
        """


AnyDriver = Wire | Call | Task


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a recipe's `judge` returns for some replies: a value for each reply, in their order.

    `scores` are by name; None for a reply that has no score. `ids` names the item of each reply, `clusters` the group
    of items that it belongs to, such as the document of several questions: items of one cluster are not independent.
    `finish` is why the reply ended, and `errors` the code that the server gave its error. `answers` are what was
    said, without times, request ids and the like: by them repetitions are compared, without them by the scores.
    `facts` are values of the items by name, by which answers are grouped, such as the length of a document. `asked`
    identifies the content of each request: replies are never scored against a request of another content, as after a
    change of the data. None: not known.
    """

    scores: Mapping[str, Sequence[float | None]]
    ids: Sequence[str] | None = None
    clusters: Sequence[str | None] | None = None
    finish: Sequence[str | None] | None = None
    errors: Sequence[str | None] | None = None
    answers: Sequence[str | None] | None = None
    facts: Mapping[str, Sequence[str | int | float | bool | None]] | None = None
    asked: Sequence[str] | None = None


Judge = Callable[[Target, Sequence[int], Sequence[bytes]], Judged]
"""Scores replies: gets the target with the trial's settings, the number of each reply's item, and the replies."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The work of a driver's module outside of the load, declared as its `HOOKS`; each is called in the service's
    environment. None: nothing.

    `stage` runs before the server starts (a model repository, an index, files); `populate` once it is healthy
    (tables, buckets). Both get the deployment's full settings, must be deterministic in `seed`, and return facts for
    the record: sizes in bytes, counts, seconds. `quality` runs after the load's clock has stopped and returns the
    quality of the replies, such as {"recall_at_10": 0.987}.

    `lacking` runs before a run, in Seamark's own environment. It yields what the settings of a trial name and this
    machine does not have, as pairs of a setting and a text, so that no model is loaded in vain.
    """

    stage: Callable[[Target, int], Mapping[str, Value]] | None = None
    populate: Callable[[Target, int], Mapping[str, Value]] | None = None
    quality: Callable[[Target, int], Mapping[str, float]] | None = None
    lacking: Callable[[Mapping[str, Value]], Iterable[tuple[str, str]]] | None = None


def hooks_of(driver: str) -> Hooks:
    """Return the hooks of a driver (`module` or `module:Class`), importing its module.

    A module without `HOOKS` has its functions of these names. Raises the exceptions of the import.
    """
    names = vars(import_module(driver.partition(":")[0]))
    declared = names.get("HOOKS")
    if isinstance(declared, Hooks):
        return declared
    return Hooks(**{hook.name: names.get(hook.name) for hook in fields(Hooks)})


def make_of(driver: str) -> Callable[[Target], AnyDriver]:
    """Return the constructor of a driver (`module:Class` or `module:function`).

    Raises the exceptions of the import, AttributeError for a missing name.
    """
    module, _, name = driver.partition(":")
    make = getattr(import_module(module), name)
    return lambda target: declared(make(target))


def declared(made: Any) -> AnyDriver:
    """Return a driver with all optional parts: itself if it extends a kind, else completed with the defaults of one.
    The only place that decides a driver's kind by a method: `encode`."""
    if isinstance(made, (Wire, Call, Task)):
        return made
    return cast("Wire | Call", _Completed(made, Wire if hasattr(made, "encode") else Call))


class _Completed:
    """A driver that extends neither kind: its own attributes, else the defaults of its kind."""

    def __init__(self, made: Any, kind: type[Driver]) -> None:
        self._made = made
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._made, name)
        except AttributeError:
            default = getattr(self._kind, name, object)  # as callable as an abstract method
            if callable(default):
                raise
            return default
