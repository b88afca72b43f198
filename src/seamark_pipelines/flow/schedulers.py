"""Schedulers of queries by the names of the original benchmark, each as the load of a trial that it stands for.

Arrivals follow a schedule that is known before the load, by absolute times: a scheduler that sleeps gap after gap
offers less than its rate. A user's own scheduler has `arrivals(rng)`, a pure function like a load pattern; or it has
`generate(queue, event)`, as one written for the original benchmark, and runs beside the load: then what it puts into
the queue is due at that moment, and how late it is nobody knows.
"""

import json
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Queue
from random import Random
from threading import Event, Lock, Thread, Timer
from time import monotonic_ns
from typing import Any

import numpy as np

from seamark.load.driver import NoMoreRequests, TaskFailure
from seamark.model.service import Setting, Value
from seamark.patterns.patterns import BLOCK, Pattern, Seconds
from seamark.patterns.table import PatternKind, Settings
from seamark_pipelines.flow.classes import methods_of
from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.model.graph import RATE_RPS, LoadGen, PipelineModel
from seamark_pipelines.model.query import Query

OWN_PATTERN = "seamark_pipelines.flow.schedulers:OWN"
MOST_AT_ONCE = 256
"""Queries in a graph without a limit of its own, at most: each has a thread that waits for its end."""


class LoadScheduler:
    """A scheduler of one's own extends this: `extra_config` is its `config`, `dataset_splits` the batches of each
    split. It yields the times of queries by `arrivals`, in seconds from the start of load, never decreasing.

    One with `generate` may start `timer`, which sets `stop` after `timeout` seconds."""

    stop = False

    def __init__(
        self,
        max_queries: int,
        timeout: float,
        load_scheduler_config: Mapping[str, Any],
        dataset_splits: dict[str, int],
    ) -> None:
        self.max_queries = max_queries
        self.timeout = timeout
        self.extra_config = load_scheduler_config
        self.dataset_splits = dataset_splits
        self.timer = Timer(timeout, self.stop_generator)
        self.timer.daemon = True

    def prepare(self) -> None:
        """Prepare, before the clock starts."""

    def stop_generator(self) -> None:
        """Say that no more queries are to be sent."""
        self.stop = True

    def arrivals(self, rng: Random) -> Iterator[float]:
        """Yield the times of queries."""
        raise NotImplementedError


class OfflineLoadScheduler(LoadScheduler):
    """One query at a time: the next one is sent when the last has ended. It ignores a rate."""


class PoissonLoadScheduler(LoadScheduler):
    """Independent exponential gaps at `rate` queries a second."""


class SaturatingOfflineScheduler(LoadScheduler):
    """All queries at the start."""

    def arrivals(self, rng: Random) -> Iterator[float]:
        """Yield 0 for each query."""
        while True:
            yield 0.0


class MultiStreamScheduler(LoadScheduler):
    """A query every `interval` seconds."""


OURS = (OfflineLoadScheduler, PoissonLoadScheduler, SaturatingOfflineScheduler, MultiStreamScheduler)


@dataclass(frozen=True, kw_only=True)
class Scheduled(Pattern):
    """The arrivals of a scheduler's class; `config` is its configuration as JSON."""

    component: str
    config: str

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays."""
        try:
            scheduler = get_component(self.component)(0, 0.0, json.loads(self.config), {})
            times = scheduler.arrivals(Random(int(rng.integers(1 << 62))))
            while block := list(islice(times, BLOCK)):
                yield np.array(block)
        except Exception as error:
            raise _failed(self.component, error) from error

    def expected(self, at_s: float) -> float | None:
        """Return None: only the scheduler knows."""
        return None


def _scheduled(settings: Settings, over_s: float) -> Scheduled:
    return Scheduled(component=str(settings["scheduler"]), config=str(settings["scheduler_config"] or "{}"))


OWN = PatternKind(
    make=_scheduled,
    needs=("scheduler",),
    rate="changing",
    may_end=True,
    settings=(
        Setting(name="scheduler", type="str", role="workload", help="Class of the scheduler, by its dotted path."),
        Setting(
            name="scheduler_config",
            type="str",
            role="workload",
            object=True,
            help="Configuration of the scheduler, as a mapping.",
        ),
    ),
)
"""Pattern of schedulers that are classes: a user's own, and all queries at once."""


def _failed(component: str, error: Exception) -> TaskFailure:
    return TaskFailure("scheduler_failed", f"the scheduler '{component}': {type(error).__name__}: {error}")


class Entry(Queue[Any]):
    """The queue of a scheduler that runs beside the load: it keeps when each query came, also one that had to wait
    for room."""

    def put(self, item: Query | None, block: bool = True, timeout: float | None = None) -> None:
        """Put a query in, after waiting for room: `block` and `timeout` have no effect."""
        super().put((item, monotonic_ns()))


class Generated:
    """The queries of a scheduler with `generate`, which runs in a thread of its own from the first call on."""

    def __init__(self, scheduler: Any, depth: int) -> None:
        self._scheduler = scheduler
        self._fault: TaskFailure | None = None
        self._queries = Entry(maxsize=depth)
        self._ended = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._epochs: Counter[str] = Counter()
        if callable(prepare := getattr(scheduler, "prepare", None)):
            prepare()

    def next(self) -> tuple[Query, int]:
        """Wait for the next query; return it with the time of its put, in ns of CLOCK_MONOTONIC. Raises
        NoMoreRequests after the last, TaskFailure if the scheduler raised."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._generate, daemon=True)
                self._thread.start()
            item, at_ns = self._queries.get()
            if item is None:
                self._queries.put(None)
                raise self._fault or NoMoreRequests
            if item.batch == 0:
                self._epochs[item.split] += 1
            item.epoch = self._epochs[item.split]
        return item, at_ns

    def ended(self) -> None:
        """Say that a query has ended, to a scheduler that waits for it."""
        self._ended.set()

    def _generate(self) -> None:
        try:
            self._scheduler.generate(self._queries, self._ended)
        except Exception as error:
            traceback.print_exc()
            self._fault = _failed(type(self._scheduler).__name__, error)
        finally:
            self._queries.put(None)


def generates(component: str, study: Path) -> bool:
    """Return whether a scheduler of the study has `generate` and no `arrivals`, by its source: plans import none."""
    try:
        methods = methods_of(component, study)
    except ValueError:
        return False  # noted where the file is read
    return "generate" in methods and "arrivals" not in methods


def load_of(model: PipelineModel, study: Path = Path()) -> dict[str, Value]:
    """Return the settings of the load that a pipeline's generator stands for. Raises ValueError for a configuration
    that it cannot have, naming the key."""
    loadgen = model.loadgen
    limit = model.limit
    most = min(loadgen.max_queries, MOST_AT_ONCE if limit is None else limit + loadgen.queue_depth)
    settings: dict[str, Value] = {
        "pattern": "closed",
        "requests": loadgen.max_queries,
        "duration_s": float(loadgen.timeout),
        "concurrency": most,
    }
    name = loadgen.component.rpartition(".")[2]
    if name == OfflineLoadScheduler.__name__:
        return settings | {"concurrency": 1}
    if name == PoissonLoadScheduler.__name__:
        return settings | {"pattern": "poisson", "rate_rps": _positive(loadgen, "rate", RATE_RPS)}
    if name == MultiStreamScheduler.__name__:
        return settings | {"pattern": "constant", "rate_rps": 1 / _positive(loadgen, "interval", 1 / RATE_RPS)}
    return settings | {
        "pattern": "closed" if generates(loadgen.component, study) else OWN_PATTERN,
        "scheduler": loadgen.component,
        "scheduler_config": json.dumps(dict(loadgen.config), sort_keys=True, separators=(",", ":")),
    }


def _positive(loadgen: LoadGen, key: str, default: float) -> float:
    value = loadgen.config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"loadgen.config.{key}: {value!r} is no number above 0")
    return float(value)
