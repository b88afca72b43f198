"""Figures of the stages that requests go through, as they stand in metrics.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.results.times import Times
from seamark.model.results.values import Number


@dataclass(frozen=True, kw_only=True)
class StageTimes(Times):
    """Times of the visits to a stage."""

    p50: Number = None
    p95: Number = None
    p99: Number = None
    mean: Number = None


@dataclass(frozen=True, kw_only=True)
class StageFigures:
    """Figures of one stage that requests go through.

    `busy_ratio`: time in which its `threads` ran it, as a ratio of their time in the window. `latency_ratio`: time of
    requests in the stage, waiting and running, as a ratio of their response times; parallel stages may exceed 1 in
    sum. `critical_ratio`: the part of that on the critical path. `blocked_ms`: time in which the stage could not hand
    on what it had done. `first_ms`: from the time at which a request was due to the first unit of its result here.
    """

    visits: int
    threads: int
    busy_ratio: Number = None
    run_ms: StageTimes = StageTimes()
    wait_ms: StageTimes | None = None
    blocked_ms: StageTimes | None = None
    first_ms: StageTimes | None = None
    latency_ratio: Number = None
    critical_ratio: Number = None


@dataclass(frozen=True, kw_only=True)
class StageBar:
    """What a request did in a stage, from the time at which it was due."""

    stage: str
    what: str
    begin_ms: float
    end_ms: float


@dataclass(frozen=True, kw_only=True)
class TracedRequest:
    """The request whose response time is nearest to a quantile, with the first of its `events` as bars."""

    quantile: str
    query: int
    response_ms: float
    events: int
    bars: tuple[StageBar, ...]


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Figures of a trial's stages, of the `requests` with a good reply that have events. `outside_ratio`: the part of
    their response times in which no stage was on the critical path. `hidden_ratio`: the part in which a stage that is
    UNTIMED was; None where all are timed. `without_events`: stages that record none, so no path has them."""

    events: int
    requests: int
    outside_ratio: Number = None
    hidden_ratio: Number = None
    by_stage: Mapping[str, StageFigures] = field(default_factory=dict)
    without_events: tuple[str, ...] = ()
    examples: tuple[TracedRequest, ...] = ()
