"""metrics.json and histogram.json: the figures of a trial, and its times."""

from collections.abc import Mapping
from typing import Any, Literal, Required, TypedDict

from seamark.model.results.values import Count, Moment, Number, Setting, Word


class Throughput(TypedDict, total=False):
    """Units a second."""

    value: Required[Number]
    unit: Required[Word]
    whole_run_value: Number


class Distribution(TypedDict, total=False):
    """Statistics of a time."""

    p50: Number
    p90: Number
    p95: Number
    p99: Number
    p999: Number
    mean: Number
    min: Number
    max: Number
    n: Count
    censored: Count
    lower_bounds: list[str] | None


class Errors(TypedDict, total=False):
    """Requests that failed."""

    rate: Required[Number]
    timeouts: Number
    by_category: Mapping[str, Count] | None


class Counts(TypedDict, total=False):
    """Counts of requests in the window by outcome."""

    requests: Count
    ok: Required[Count]
    failed: Required[Count]
    timeouts: Count
    unfinished: Count
    warmup: Count
    lost: Required[Count]


class Reason(TypedDict, total=False):
    """A reason for a verdict."""

    code: Required[str]
    severity: Required[Literal["invalid", "suspect", "note"]]
    text: str
    remedy: str


class Objective(TypedDict, total=False):
    """An objective and whether it was met."""

    metric: Required[str]
    op: Required[Literal["<=", ">="]]
    limit: Required[float]
    value: Number
    lower_bound: bool | None
    met: bool | None


class OfKind(TypedDict, total=False):
    """Figures of one kind of request."""

    requests: Count
    ok: Count
    failed: Count
    units: Count
    latency_ms: Distribution | None
    service_time_ms: Distribution | None
    ttft_ms: Distribution | None
    tpot_ms: Distribution | None


class Telemetry(TypedDict, total=False):
    """Summary of one telemetry series."""

    unit: Required[str]
    n: Required[int]
    min: Required[float]
    mean: Required[float]
    p50: Required[float]
    p95: Required[float]
    max: Required[float]


class Window(TypedDict, total=False):
    """The part of a load that metrics cover."""

    start_s: Number
    end_s: Number
    rule: Word


class Metrics(TypedDict, total=False):
    """metrics.json: the metrics of a trial."""

    schema_version: int
    metrics_version: int
    trial_id: Required[str]
    trial: Required[str]
    scenario: Required[str]
    treatment: str
    timestamp: Required[Moment]
    component: Required[str]
    service: Required[str]
    status: Required[Literal["ok", "failed", "timeout"]]
    category: Required[Word]
    reason: Required[Word]
    repetition: int
    block: int
    position: int
    config: Required[Mapping[str, Setting]]
    changed: Mapping[str, Setting]
    throughput: Required[Throughput]
    requests_per_s: Number
    sessions: Mapping[str, Any] | None
    bandwidth: Mapping[str, Number] | None
    latency_ms: Required[Distribution | None]
    service_time_ms: Distribution | None
    ttft_ms: Distribution | None
    ttft_response_ms: Distribution | None
    tpot_ms: Distribution | None
    inter_chunk_ms: Distribution | None
    normalised_latency_ms: Distribution | None
    schedule_lag_ms: Distribution | None
    counts: Required[Counts]
    errors: Required[Errors]
    resource: Required[Mapping[str, Number]]
    offered_rps: Number
    achieved_rps: Number
    saturated: bool | None
    concurrency_mean: Number
    goodput: Any
    energy: Mapping[str, Any] | None
    window: Window
    over_saturated_at_s: Number
    energy_reason: Word
    by_kind: Mapping[str, OfKind] | None
    slos: Required[list[Objective]]
    quality: Required[Mapping[str, Number]]
    telemetry: Required[Mapping[str, Telemetry]]
    verdict: Required[Literal["VALID", "SUSPECT", "INVALID"]]
    reasons: Required[list[Reason]]


class Bins(TypedDict, total=False):
    """A histogram: counts of logarithmic bins."""

    relative_error: Required[float]
    count: Required[int]
    sum: Required[float]
    min: Required[Number]
    max: Required[Number]
    zeros: Required[int]
    indexes: Required[list[int]]
    counts: Required[list[int]]


class Histograms(TypedDict, total=False):
    """histogram.json: the times of a trial."""

    histograms: Required[Mapping[str, Bins]]
    censored: Mapping[str, Bins] | None
