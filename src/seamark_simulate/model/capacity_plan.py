"""The document of `bench capacity`: simulated layouts of a service under a planned load, the cheapest that meets its
objectives, and layouts without a fitted model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.origin import SIMULATED, Simulated
from seamark.model.results.values import OPTIONAL, Count, Moment, Number, Word

Status = Literal["meets", "misses", "does_not_fit", "not_fitted", "outside_range"]
"""Of a layout: it meets the objectives with the wanted probability, no number of replicas does, the memory of its
GPUs is too small, no model was fitted to it, or its load lies outside of the fit."""


@dataclass(frozen=True, kw_only=True)
class CapacityQuestion:
    """What was asked. `cost_unit` is that of prices, None without any."""

    rate_rps: float
    slos: tuple[str, ...]
    confidence: float
    duration_s: float
    warmup_s: float
    prompt_tokens: Count = None
    reply_tokens: Count = None
    router: Word = None
    most_gpus: int
    trials: int
    seed: int
    gpus: tuple[str, ...] = ()
    model: Word = None
    extrapolate: bool = False
    cost_unit: Word = None


@dataclass(frozen=True, kw_only=True)
class JudgedReplicas:
    """A number of replicas: how many of some simulated trials met all objectives, and the 95 % interval of that
    share. `suspect` has the code `extrapolated` where the load lies outside of the fit, and `outside` says by
    what."""

    replicas: int
    met: int
    trials: int
    probability: float
    probability_low: float
    probability_high: float
    suspect: Word = None
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LargestLoad:
    """The largest rate that meets the objectives with the estimated parameters, as `search` finds it. `low` and
    `high` are the rates decided to pass and to fail; without `extrapolate` none lies outside of the fit."""

    outcome: str
    found_rps: Number = None
    low_rps: Number = None
    high_rps: Number = None
    confidence: float = 0.0
    suspect: Word = None


@dataclass(frozen=True, kw_only=True)
class BreaksFirst:
    """The part of a service that breaks first at a rate on some `replicas`: an objective is missed by `value_s`,
    which would be `without_s` without the limit of that part. Plans of an earlier version do not name the
    replicas."""

    part: str
    replicas: Count = field(default=None, metadata=OPTIONAL)
    rate_rps: float
    objective: str
    value_s: float
    without_s: float


@dataclass(frozen=True, kw_only=True)
class PlannedLayout:
    """One layout: a fitted model, or a kind of GPU, with the GPUs of a replica, 0 without any, and how many requests
    a server of a station serves at once.

    `replicas` are the fewest that meet the objectives, else those that were judged best; `judged` has all numbers
    that were tried. `figures` are the median and the 90 % interval of each objective's value in seconds.
    `sources_suspect` are the codes for which trials of its fit are SUSPECT.
    """

    name: str
    service: Word = None
    gpu: Word = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpus_per_replica: int = 0
    workers_per_replica: int = 1
    status: Status
    why: Word = None
    replicas: Count = None
    gpus: Count = None
    rate_per_replica_rps: Number = None
    chosen: JudgedReplicas | None = None
    judged: tuple[JudgedReplicas, ...] = ()
    cost_per_hour: Number = None
    kv_blocks: Count = None
    kv_blocks_from: Word = None
    figures: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    suspect: Word = None
    sources_suspect: tuple[str, ...] = ()
    fewer_unknown: Word = None

    @property
    def probability(self) -> float:
        """That of its `chosen` replicas to meet the objectives; 0 without any."""
        return 0.0 if self.chosen is None else self.chosen.probability


@dataclass(frozen=True, kw_only=True)
class CapacityPlan:
    """The answer of `bench capacity`. `answer` is the number of the cheapest layout that meets the objectives with
    the wanted probability, None if none is known; `largest_load` and `breaks_first` are those of the answer, else of
    the best one. `next_trial` would tell most where none is known."""

    schema_version: int = 1
    origin: Simulated = SIMULATED
    planned_at: Moment = None
    sentence: str
    answer: Count = None
    question: CapacityQuestion
    fit: Word = None
    machines: tuple[str, ...] = ()
    layouts: tuple[PlannedLayout, ...] = ()
    largest_load: LargestLoad | None = None
    breaks_first: BreaksFirst | None = None
    next_trial: Word = None
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> PlannedLayout | None:
        """The layout of the answer."""
        return None if self.answer is None else self.layouts[self.answer]
