"""summary.json: the treatments of a scenario, each over its good trials, its failed trials, servers and knees."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.comparison import Comparisons
from seamark.model.results.times import Ranged, Ranges, Times
from seamark.model.results.trial_metrics import PercentileMethod, Verdict, VerdictReason
from seamark.model.results.values import OPTIONAL, Number, Setting, Word
from seamark.model.scenario import Comparing
from seamark.stats.range import Range


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One figure over the trials of a treatment. `cv` is the sample deviation over the mean, None below two
    trials."""

    median: Number = None
    min: Number = None
    max: Number = None
    mean: Number = None
    cv: Number = None


@dataclass(frozen=True, kw_only=True)
class ThroughputSpread(Spread):
    """Throughput over the trials of a treatment in its most frequent unit."""

    unit: Word = None


@dataclass(frozen=True, kw_only=True)
class PooledTimes(Times):
    """Statistics in ms of all `n` requests of a treatment's trials together; see BoundedDistribution."""

    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    p999: Number = None
    min: Number = None
    max: Number = None
    mean: Number = None
    n: int = 0
    censored: int = 0


@dataclass(frozen=True, kw_only=True)
class KindSpreads:
    """Times in ms of one kind of request over the trials. `ranges` has the least and the greatest end of what is a
    range in any trial."""

    mean: Spread = Spread()
    p50: Spread = Spread()
    p90: Spread = Spread()
    p95: Spread = Spread()
    p99: Spread = Spread()
    p999: Spread = Spread()
    censored: int = 0
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ErrorRate(Ranged):
    """Failed requests of all trials as a ratio of those sent."""

    rate: Number = None


@dataclass(frozen=True, kw_only=True)
class KindSummary:
    """One kind of request over the trials of a treatment. Counts are those of all trials together."""

    requests: int = 0
    ok: int = 0
    failed: int = 0
    units: int = 0
    requests_per_s: Spread = Spread()
    errors: ErrorRate = ErrorRate()
    latency_ms: KindSpreads | None = None
    service_time_ms: KindSpreads | None = None
    ttft_ms: KindSpreads | None = None
    tpot_ms: KindSpreads | None = None


@dataclass(frozen=True, kw_only=True)
class EnergySummary:
    """Energy and power of the scope that all trials have."""

    scope: str
    value_j: Spread | None = None
    per_request_j: Spread | None = None
    per_unit_j: Spread | None = None
    power_w: Spread | None = None
    idle_power_w: Spread | None = None


@dataclass(frozen=True, kw_only=True)
class OwnSummary:
    """A metric of the user's own over the trials."""

    unit: str = ""
    better: str = "neither"
    meaning: str = ""
    median: Number = None
    min: Number = None
    max: Number = None
    mean: Number = None
    cv: Number = None


@dataclass(frozen=True, kw_only=True)
class TelemetrySpread:
    """One telemetry series over the trials; its mean is weighted by readings."""

    unit: str = ""
    n: int = 0
    min: Number = None
    mean: Number = None
    max: Number = None
    median_of_p50: Number = None
    median_of_p95: Number = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveSummary:
    """An objective over the trials: `met` is the number that meet it, `of` the number with a known outcome,
    `range` the least and the greatest end of the values where any is a range."""

    metric: str
    op: str
    limit: float
    met: int = 0
    of: int = 0
    value: Spread | None = None
    range: tuple[Number, Number] | None = None

    @property
    def known(self) -> Range | None:
        """The least and the greatest end of the values, None where nothing is known of them."""
        if self.range is not None and self.range[0] is not None:
            return Range(low=self.range[0], high=self.range[1])
        if self.value is None or self.value.min is None:
            return None
        return Range(low=self.value.min, high=self.value.max)


@dataclass(frozen=True, kw_only=True)
class SearchSummary:
    """The searches of a treatment's trials: the loads found, and how many searches had each outcome."""

    setting: str
    found: Spread = Spread()
    bracket: tuple[Number, Number] = (None, None)
    confidence: Number = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    confirmed: int = 0
    of: int = 0


@dataclass(frozen=True, kw_only=True)
class CountedReason(VerdictReason):
    """A reason with the number of trials that have it."""

    count: int = 1


@dataclass(frozen=True, kw_only=True)
class SummaryRow(HasOrigin):
    """One treatment over its trials. `trials`, `trial_verdicts` and `trial_servers` are in the same order; `by_twins`
    has the reasons that a trial has by the other repetitions, or by a damaged histogram."""

    treatment: str
    workload: str
    service: str
    component: str = ""
    origin: Origin = field(default=MEASURED, metadata=OPTIONAL)
    deployment: str = ""
    config: Mapping[str, Setting] = field(default_factory=dict)
    changed: Mapping[str, Setting] = field(default_factory=dict)
    factors: Mapping[str, Setting] = field(default_factory=dict)
    repetitions: int = 0
    planned: int = 0
    throughput: ThroughputSpread = ThroughputSpread()
    requests_per_s: Spread = Spread()
    bandwidth_mb_per_s: Spread | None = None
    latency_ms: PooledTimes | None = None
    service_time_ms: PooledTimes | None = None
    ttft_ms: PooledTimes | None = None
    ttft_response_ms: PooledTimes | None = None
    ttfo_ms: PooledTimes | None = None
    tpot_ms: PooledTimes | None = None
    inter_chunk_ms: PooledTimes | None = None
    by_kind: Mapping[str, KindSummary] | None = None
    concurrency_mean: Spread = Spread()
    errors: ErrorRate = ErrorRate()
    goodput: Spread | None = None
    goodput_per_s: Spread | None = None
    offered_rps: Spread | None = None
    achieved_rps: Spread | None = None
    energy: EnergySummary | None = None
    quality: Mapping[str, Number] = field(default_factory=dict)
    own: Mapping[str, OwnSummary] = field(default_factory=dict)
    resource: Mapping[str, Number] = field(default_factory=dict)
    telemetry: Mapping[str, TelemetrySpread] = field(default_factory=dict)
    slos: tuple[ObjectiveSummary, ...] = ()
    search: SearchSummary | None = None
    verdict: Verdict = "INVALID"
    trial_verdicts: tuple[Verdict, ...] = ()
    by_twins: Mapping[str, tuple[VerdictReason, ...]] = field(default_factory=dict)
    reasons: tuple[CountedReason, ...] = ()
    trials: tuple[str, ...] = ()
    trial_servers: tuple[Word, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its reasons."""
        return tuple(reason.code for reason in self.reasons)


@dataclass(frozen=True, kw_only=True)
class FailedTrial:
    """A trial without figures."""

    trial: str
    status: str
    category: Word = None
    reason: Word = None


@dataclass(frozen=True, kw_only=True)
class ServerSummary:
    """A server that trials were measured on. `digest` and `place` are None where it was not recorded."""

    name: str
    service: str
    digest: Word = None
    place: Word = None
    runtime: Word = None
    site: Word = None
    machine: Word = None
    partition: Word = None
    address: Word = None
    image_digests: Mapping[str, Word] | None = None
    trials: int = 0


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The knee of a sweep of load: the level of the greatest `power`, None where that is the first or last one.

    `between` are the levels beside it; in `agree` of the repetitions that have every level it is at the same one.
    `mean_conditional`: the mean leaves out requests without an answer. `saturated` are levels without more
    throughput.
    """

    workload: str
    factor: str
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    levels: tuple[Setting, ...]
    power: tuple[float, ...]
    place: str
    knee: Setting = None
    between: tuple[Setting, Setting] | None = None
    agree: int = 0
    of: int = 0
    requests_per_s: float
    latency_mean_ms: float
    mean_conditional: bool = False
    saturated: tuple[Setting, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Summary:
    """summary.json. `servers` is None in results of versions that did not record them, `compare` is what the scenario
    declared, and `comparisons` is None without two treatments to compare."""

    schema_version: int = 1
    metrics_version: int = 0
    scenario: str = ""
    trials: int = 0
    ok: int = 0
    failed: tuple[FailedTrial, ...] = ()
    verdicts: Mapping[str, int] = field(default_factory=dict)
    generated_from: str = "metrics.json and histogram.json of every trial"
    percentiles: PercentileMethod = PercentileMethod()
    factors_without_p: tuple[str, ...] = ()
    why_no_p: Word = None
    servers: tuple[ServerSummary, ...] | None = None
    treatments: tuple[SummaryRow, ...]
    knees: tuple[Knee, ...] = ()
    compare: Comparing | None = field(default=None, metadata=OPTIONAL)
    comparisons: Comparisons | None = field(default=None, metadata=OPTIONAL)
