"""metrics.json and histogram.json: the figures of a trial with their verdict, and the distributions of its times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.load_record import ErrorsSeen, SearchOutcome
from seamark.model.results.replicas import Replicas
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.stages import Stages
from seamark.model.results.times import (
    BoundedDistribution,
    BoundedKindTimes,
    Distribution,
    KindTimes,
    LagDistribution,
    PartTimes,
    Ranged,
)
from seamark.model.results.values import OPTIONAL, Count, Moment, Number, Setting, Word
from seamark.stats.range import Range

Severity = Literal["note", "suspect", "invalid"]
Verdict = Literal["VALID", "SUSPECT", "INVALID"]

RENAMED_CODES: Mapping[str, str] = {
    "users_idle": "client_underdriven",
    "machine_full": "host_cpu_saturated",
    "rate_not_asked": "offered_rate_mismatch",
    "fits_cache": "served_from_page_cache",
    "times_disordered": "timestamp_order",
}
"""Codes in results of older versions, and their present names."""


@dataclass(frozen=True, kw_only=True)
class VerdictReason:
    """Why a result is not simply valid. Codes are stable; a note is worth knowing and changes no verdict."""

    code: str = field(metadata={"renamed": RENAMED_CODES})
    severity: Severity
    text: str = ""
    remedy: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict that it gives alone."""
        return "INVALID" if self.severity == "invalid" else "SUSPECT" if self.severity == "suspect" else "VALID"


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Units a second, in the measured window and over the whole run."""

    value: Number
    whole_run_value: Number = None
    unit: str


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Sessions of several turns."""

    per_s: Number = None
    begun_per_s: Number = None
    broken: Count = None


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Bytes of good replies and of their requests, a second."""

    mb_per_s: Number = None
    mib_per_s: Number = None


@dataclass(frozen=True, kw_only=True)
class RequestCounts:
    """Requests that were due in the measured window, by their end. `warmup` were due before it; `lost` are those of
    the whole schedule that lost workers never sent, `lost_in_window` those of the window. `retried` were tried again,
    `retries` times together; None where the load tries once."""

    requests: Count = None
    sent: Count = None
    ok: Count
    failed: Count
    timeouts: Count = None
    unfinished: Count = None
    warmup: Count = None
    lost: Count
    lost_in_window: Count = None
    retried: Count = field(default=None, metadata=OPTIONAL)
    retries: Count = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Errors(Ranged):
    """Failed requests as a ratio of those sent, and by category; `own` are those of load.json's `errors`. Requests
    that were never sent, or had no answer when the load ended, may have failed as well."""

    rate: Number
    timeouts: Count = None
    by_category: Mapping[str, Count] = field(default_factory=dict)
    own: Mapping[str, ErrorsSeen] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Goodput(Ranged):
    """Requests that meet every objective, a second and as a ratio of all due. One that had waited no longer than an
    objective allows when it was last seen may have met it."""

    per_s: Number = None
    ratio: Number = None


@dataclass(frozen=True, kw_only=True)
class EnergyFigures:
    """Energy of one `scope` over `window_s`, read by `method`; and of each scope as far as it is known."""

    value_j: Number = None
    window_s: Number = None
    per_request_j: Number = None
    per_unit_j: Number = None
    power_w: Number = None
    idle_power_w: Number = None
    gpu_j: Number = None
    package_j: Number = None
    node_j: Number = None
    scope: str = ""
    method: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredWindow:
    """The part of a load that its figures are of, from the start of load, and the rule that it follows."""

    start_s: Number = None
    end_s: Number = None
    rule: Word = None

    @property
    def length_s(self) -> float | None:
        """Length of the window; None for none."""
        if self.start_s is None or self.end_s is None or self.end_s <= self.start_s:
            return None
        return self.end_s - self.start_s


@dataclass(frozen=True, kw_only=True)
class PartFigures:
    """Figures of a part of a load, beside those of the measured window."""

    start_s: float
    end_s: float
    requests: int
    ok: int
    failed: int
    error_rate: Number = None
    requests_per_s: Number = None
    throughput: Number = None
    latency_ms: PartTimes = PartTimes()


@dataclass(frozen=True, kw_only=True)
class WarmupCut:
    """The start-up that `warmup_s: auto` cut off, at most `limit_s`; `part` has its figures."""

    limit_s: float
    cut_s: float
    reason: str
    part: PartFigures | None = None


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which a service gave no good reply, or more failures than good replies; from the start of load.

    `missed` is the number of good replies at the rate of the rest, or the number of requests due.
    """

    start_s: float
    end_s: float
    missed: int
    failed: int

    @property
    def text(self) -> str:
        """The outage in a sentence."""
        when = f"from {self.start_s:.3g} s to {self.end_s:.3g} s"
        if self.failed:
            return f"{self.failed:,} requests failed {when}, more than were answered"
        return f"no good reply came {when}, where {self.missed:,} were to be expected"


@dataclass(frozen=True, kw_only=True)
class SteadyVerdict:
    """Whether the load was steady over its window; None: it cannot be told. `part` has figures of the steady part."""

    steady: bool | None = None
    reason: Word = None
    rule: Word = None
    advised_warmup_s: Number = None
    part: PartFigures | None = None
    outages: tuple[Outage, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PercentileMethod:
    """How percentiles were computed, and their relative error."""

    method: str = "exact"
    relative_error: float = 0.0


@dataclass(frozen=True, kw_only=True)
class KindFigures:
    """Figures of one kind of request; those of streams are None where none streamed."""

    requests: int = 0
    ok: int = 0
    failed: int = 0
    units: int = 0
    latency_ms: BoundedKindTimes | None = None
    service_time_ms: BoundedKindTimes | None = None
    ttft_ms: BoundedKindTimes | None = None
    tpot_ms: KindTimes | None = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveResult:
    """An objective with the trial's value, and whether it is met; None: not known. `range` has the ends of a value
    that is known between two alone; `value` is then the lower one."""

    metric: str
    op: Literal["<=", ">="]
    limit: float
    value: Number = None
    range: tuple[Number, Number] | None = None
    met: bool | None = None

    @property
    def known(self) -> Range | None:
        """Both ends of the value, None where nothing is known of it."""
        if self.range is not None and self.range[0] is not None:
            return Range(low=self.range[0], high=self.range[1])
        return None if self.value is None else Range.exact(self.value)


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A metric of the user's own. `source` is its dotted path with a digest of its module; `error` says why it has no
    value."""

    value: Number = None
    unit: str = ""
    better: str = "neither"
    meaning: str = ""
    source: str = ""
    error: Word = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class TelemetrySummary:
    """One telemetry series over the measured window; of a counter, its rate."""

    unit: str
    n: int
    min: float
    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, kw_only=True)
class TrialMetrics(HasOrigin):
    """metrics.json. None: not known. Units end the names; all paths of analysis' table of metrics lie in here."""

    schema_version: int = 1
    metrics_version: int = 0
    trial_id: str
    trial: str
    scenario: str
    treatment: str = ""
    timestamp: Moment
    component: str
    service: str
    origin: Origin = MEASURED
    status: Literal["ok", "failed", "timeout"]
    category: Word
    reason: Word
    repetition: int = 1
    block: int = 1
    position: int = 1
    config: Mapping[str, Setting]
    changed: Mapping[str, Setting] = field(default_factory=dict)
    throughput: Throughput
    requests_per_s: Number = None
    sessions: Sessions | None = None
    bandwidth: Bandwidth | None = None
    latency_ms: BoundedDistribution = BoundedDistribution()
    service_time_ms: BoundedDistribution = BoundedDistribution()
    ttft_ms: BoundedDistribution | None = None
    ttft_response_ms: BoundedDistribution | None = None
    ttfo_ms: BoundedDistribution | None = None
    tpot_ms: Distribution | None = None
    inter_chunk_ms: Distribution | None = None
    normalised_latency_ms: Distribution | None = None
    schedule_lag_ms: LagDistribution | None = None
    counts: RequestCounts
    errors: Errors
    resource: Mapping[str, Number]
    offered_rps: Number = None
    achieved_rps: Number = None
    saturated: bool | None = None
    concurrency_mean: Number = None
    goodput: Goodput | None = None
    energy: EnergyFigures | None = None
    window: MeasuredWindow = MeasuredWindow()
    warmup_auto: WarmupCut | None = None
    steady_state: SteadyVerdict | None = None
    over_saturated_at_s: Number = None
    search: SearchOutcome | None = None
    percentiles: PercentileMethod = PercentileMethod()
    energy_reason: Word = None
    by_kind: Mapping[str, KindFigures] | None = None
    stages: Stages | None = field(default=None, metadata=OPTIONAL)
    replicas: Replicas | None = field(default=None, metadata=OPTIONAL)
    schedule: ScheduleMetrics | None = field(default=None, metadata=OPTIONAL)
    slos: tuple[ObjectiveResult, ...]
    quality: Mapping[str, Number]
    quality_version: Word = field(default=None, metadata=OPTIONAL)
    telemetry: Mapping[str, TelemetrySummary]
    verdict: Verdict
    reasons: tuple[VerdictReason, ...]
    notes: Word = None
    own: Mapping[str, OwnMetric] = field(default_factory=dict)
    own_checks: tuple[str, ...] = ()

    @property
    def own_marks(self) -> list[str]:
        """The marks of the user's own metrics and checks."""
        return [*(metric.source for metric in self.own.values()), *self.own_checks]

    @property
    def ok(self) -> bool:
        """Whether the trial has figures."""
        return self.status == "ok"

    def range_of(self, path: str) -> Range | None:
        """Return both ends of a figure at a dotted path, None where nothing is known of it."""
        group, _, statistic = path.rpartition(".")
        figures = self.at(group) if group else None
        if isinstance(figures, Ranged):
            return figures.range_of(statistic)
        value = self.figure(path)
        return None if value is None else Range.exact(value)

    def at(self, path: str) -> object:
        """Return the value at a dotted path such as `latency_ms.p99`, None where there is none."""
        part: object = self
        for name in path.split("."):
            part = part.get(name) if isinstance(part, dict) else getattr(part, name, None)
        return part

    def figure(self, path: str) -> float | None:
        """Return the number at a dotted path, None where there is none."""
        value = self.at(path)
        return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True, kw_only=True)
class HistogramRecord:
    """A histogram: counts of logarithmic bins."""

    relative_error: float
    count: int
    sum: float
    min: Count
    max: Count
    zeros: int
    indexes: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Histograms:
    """histogram.json: the times of a trial in ns, and under the same names lower bounds of those not known."""

    schema_version: int = 1
    trial: str = ""
    unit: str = "ns"
    histograms: Mapping[str, HistogramRecord]
    censored: Mapping[str, HistogramRecord] = field(default_factory=dict)
