"""Schedulers of queries by the names of the original benchmark, each as the load of a trial that it stands for.

Arrivals follow a schedule that is known before the load, by absolute times: a scheduler that sleeps gap after gap
offers less than its rate. A user's own scheduler has `arrivals(rng)`, a pure function like a load pattern.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from seamark.model.service import Setting, Value
from seamark.patterns.patterns import BLOCK, Pattern, Seconds
from seamark.patterns.table import PatternKind, Settings
from seamark_pipelines.flow.source_names import get_component
from seamark_pipelines.model.graph import RATE_RPS, LoadGen, PipelineModel

OWN_PATTERN = "seamark_pipelines.flow.schedulers:OWN"
MOST_AT_ONCE = 256
"""Queries in a graph without a limit of its own, at most: each has a thread that waits for its end."""


class LoadScheduler:
    """A scheduler of one's own extends this: `extra_config` is its `config`, `dataset_splits` the batches of each
    split. It yields the times of queries by `arrivals`, in seconds from the start of load, never decreasing."""

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


@dataclass(frozen=True, kw_only=True)
class Scheduled(Pattern):
    """The arrivals of a scheduler's class; `config` is its configuration as JSON."""

    component: str
    config: str

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays."""
        scheduler = get_component(self.component)(0, 0.0, json.loads(self.config), {})
        times = scheduler.arrivals(Random(int(rng.integers(1 << 62))))
        while block := list(islice(times, BLOCK)):
            yield np.array(block)

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


def load_of(model: PipelineModel) -> dict[str, Value]:
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
        "pattern": OWN_PATTERN,
        "scheduler": loadgen.component,
        "scheduler_config": json.dumps(dict(loadgen.config), sort_keys=True, separators=(",", ":")),
    }


def _positive(loadgen: LoadGen, key: str, default: float) -> float:
    value = loadgen.config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"loadgen.config.{key}: {value!r} is no number above 0")
    return float(value)
