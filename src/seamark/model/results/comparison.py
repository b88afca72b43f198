"""Comparison of treatments, quality against cost, and predictions beside measurements: what summary.json,
`bench compare --format json`, `bench capacity --score` and the report say of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.origin import MEASURED, HasOrigin, Origin, any_virtual
from seamark.model.results.trial_metrics import VerdictReason
from seamark.model.results.values import OPTIONAL, Number, Setting, Word


@dataclass(frozen=True, kw_only=True)
class FrontPoint(HasOrigin):
    """One treatment: mean `quality` over the common items, with its 95 % interval by clusters of items (None with one
    cluster), and the median `cost` of its `trials`.

    `on_front`: no other point has at least its quality at no more cost, and more of one. `probability` is the share
    of resamples in which that holds; None off the front for `reason`. `not_worse`: a loss of quality of the margin or
    more against the baseline is excluded; None for the baseline and without a margin. `ratio` is its cost to that of
    the baseline; `cheaper`: a test shows that it is lower, None where the trials allow no test: because they are few,
    or else because of what `untested` says. `own` as of a side that is compared.
    """

    treatment: str
    level: Setting = None
    own: Mapping[str, Setting] | None = field(default=None, metadata=OPTIONAL)
    quality: Number = None
    quality_low: Number = field(default=None, metadata=OPTIONAL)
    quality_high: Number = field(default=None, metadata=OPTIONAL)
    cost: Number = None
    trials: int = 0
    on_front: bool = False
    probability: Number = None
    not_worse: bool | None = None
    ratio: Number = None
    cheaper: bool | None = None
    untested: Word = field(default=None, metadata=OPTIONAL)
    origin: Origin = MEASURED
    reason: Word = None


@dataclass(frozen=True, kw_only=True)
class Front:
    """Levels of one factor with all others `fixed`, by one quality and one cost, over the `items` that all have.

    `resamples` draw whole clusters of items (and blocks of trials where there are several), the same ones for every
    point. The first point is the baseline.
    """

    workload: str
    factor: str
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    base: Setting = None
    quality: str
    better: Literal["higher", "lower"] = "higher"
    cost: str
    cost_unit: str = ""
    cost_better: Literal["higher", "lower"] = "lower"
    margin: Number = None
    items: int = 0
    clusters: int = 0
    blocks: int = 0
    resamples: int = 0
    seed: int = 0
    points: tuple[FrontPoint, ...] = ()


ComparedVerdict = Literal["better", "worse", "equivalent", "inconclusive"]
EXACT = "exact"
"""The method of values that are compared exactly: nothing is drawn, so there is nothing to test."""
EQUAL_RATIO = 0.01
"""Recalls and scores are equal within this share of the greater one, where no objective says what is enough."""
UnitOfInference = Literal["trial", "start", "result", "item", "cluster"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An estimate with the limits of its interval, None where so few values give no limit."""

    value: float
    low: Number = None
    high: Number = None


@dataclass(frozen=True, kw_only=True)
class ComparedSide(HasOrigin):
    """One of two treatments. `units` is the number of values that the test has, `starts` that of the servers' starts
    that its trials were on. `excluded` trials are INVALID or without figures, `suspect` ones are counted among
    `trials`, by the codes of their reasons too, `unmatched` ones have no partner in their block on their start,
    `apart` ones were not measured in turns with it. `own` are the levels that a service alone was given, beside that
    of the factor, its name."""

    treatment: Word = None
    level: Setting = None
    own: Mapping[str, Setting] | None = field(default=None, metadata=OPTIONAL)
    trials: int = 0
    units: int = 0
    starts: int = 0
    excluded: int = 0
    suspect: int = 0
    suspect_reasons: Mapping[str, int] = field(default_factory=dict)
    unmatched: int = 0
    apart: int = 0
    median: Number = None
    origin: Origin = field(default=MEASURED, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class ComparedAnswers:
    """Scores of the same `items`, in `units` clusters (or items), by two treatments. Means are over these items.

    `higher` and `lower` count the items that the other side has a higher or a lower score for: of right and wrong
    answers the discordant pairs. `left_out` counts items that only the baseline, or only the other side has a score
    for, `unusable` trials of each side with unanswered items, `blocks` the pairs of trials that items were averaged
    over. `not_worse`: a loss of `quality_margin` or more is excluded; None without a margin. `p_error` is the
    standard error of a p from random signs.
    """

    items: int
    units: int
    base_mean: float
    new_mean: float
    higher: int
    lower: int
    left_out: tuple[int, int] = (0, 0)
    unusable: tuple[int, int] = (0, 0)
    blocks: int = 1
    not_worse: bool | None = None
    p_error: Number = None

    @property
    def discordant(self) -> int:
        """Number of items with another score."""
        return self.higher + self.lower


@dataclass(frozen=True, kw_only=True)
class Between:
    """How results of one treatment differ: `sd` of the logarithms of `results` of the history; None: an assumption.
    `limit` is the margin widened by that, a ratio or a difference of qualities."""

    sd: float
    results: int | None = None
    limit: Number = None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`new` against `base` by one metric, with all other factors `fixed`; `factor` is None between two results.

    `unit_of_inference` is what the test counts: a trial where both treatments were on the same starts of a server,
    else a start, with the median of its trials; of scores an item, or a cluster of items, of `answers`. Between two
    results it is the result, one a side: `ratio` and `shift` have intervals within them, and there is no p. `ratio`
    is new / base, `shift` new - base in the metric's `unit`, both at the attained `confidence`. `p` is two-sided,
    `p_adjusted` by Holm's method over the family. Without `in_family` there is neither p nor verdict. `reason` says
    why a verdict is inconclusive, `remedy` what to do, `note` what stands beside a verdict. Values that are `exact`,
    one deterministic computation a side, have neither p nor interval.
    """

    workload: str
    factor: Word = None
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    metric: str
    unit: str = ""
    better: Literal["higher", "lower"]
    base: ComparedSide
    new: ComparedSide
    unit_of_inference: UnitOfInference = "trial"
    method: Word = None
    pairs: int = 0
    ratio: Effect | None = None
    shift: Effect | None = None
    confidence: Number = None
    p: Number = None
    p_adjusted: Number = None
    answers: ComparedAnswers | None = field(default=None, metadata=OPTIONAL)
    between: Between | None = field(default=None, metadata=OPTIONAL)
    in_family: bool = True
    verdict: ComparedVerdict | None = None
    reason: Word = None
    remedy: Word = None
    note: Word = field(default=None, metadata=OPTIONAL)

    @property
    def exact(self) -> bool:
        """Whether both values are exact."""
        return self.method == EXACT


@dataclass(frozen=True, kw_only=True)
class SubsetAverage:
    """Averages of a score over the levels of a factor that have no item in common, with all others `fixed`: `macro`
    counts each subset alike, `micro` each item. Both are None where a subset is `missing`."""

    workload: str
    factor: str
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    quality: str
    macro: Number = None
    micro: Number = None
    subsets: int = 0
    items: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Predecessors:
    """Results after the treatment `new` against those after `base`, by their ids and the levels in which they differ
    from others. `ratio` has its interval at `confidence`, that of Holm's step; it excludes 1 exactly where
    `p_adjusted` is at most alpha."""

    base: str
    new: str
    base_levels: Mapping[str, Setting] = field(default_factory=dict)
    new_levels: Mapping[str, Setting] = field(default_factory=dict)
    ratio: Effect
    confidence: Number = None
    p: float
    p_adjusted: float


@dataclass(frozen=True, kw_only=True)
class CarryOver:
    """Whether `metric` depends on what ran before, among `treatments` that follow one another in `blocks`. With fewer
    than `blocks_needed`, or where the order tells no two predecessors apart, there are no `pairs`: it is not told.
    `reason` is there if some pair differs."""

    workload: str
    metric: str
    treatments: tuple[str, ...]
    blocks: int
    blocks_needed: int
    pairs: tuple[Predecessors, ...] = ()
    reason: VerdictReason | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact that differs between two results, with all values that each has."""

    fact: str
    base: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """All comparisons of a scenario, or of two results: then `base` and `new` name them, `settings` and `environment`
    have what differs between them. `fronts` hold quality against costs. `family` is the number of tests that Holm's
    method is applied to; `notes` say what was not compared. Those that nobody `declared` have a verdict only where
    their number allows one. `carry_over` is there if the scenario asks for it."""

    schema_version: int = 1
    scenario: Word = None
    base: Word = None
    new: Word = None
    alpha: float = 0.05
    margin: float = 0.05
    quality_margin: Number = field(default=None, metadata=OPTIONAL)
    family: int = 0
    declared: bool = field(default=True, metadata=OPTIONAL)
    comparisons: tuple[Compared, ...] = ()
    fronts: tuple[Front, ...] = field(default=(), metadata=OPTIONAL)
    averages: tuple[SubsetAverage, ...] = field(default=(), metadata=OPTIONAL)
    carry_over: tuple[CarryOver, ...] = field(default=(), metadata=OPTIONAL)
    settings: tuple[Difference, ...] = ()
    environment: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> tuple[Compared, ...]:
        """The comparisons that have a simulated side."""
        return tuple(comparison for comparison in self.comparisons if any_virtual((comparison.base, comparison.new)))

    @property
    def judged(self) -> tuple[Compared, ...]:
        """The comparisons that have a verdict."""
        return tuple(comparison for comparison in self.comparisons if comparison.verdict is not None)


@dataclass(frozen=True, kw_only=True)
class ScoredFigure:
    """One figure at one load, in the unit of an objective: its prediction, and what each trial measured. `inside`
    counts the trials in the interval."""

    figure: str
    value: float
    low: float
    high: float
    measured: tuple[float, ...] = ()
    inside: int = 0


@dataclass(frozen=True, kw_only=True)
class ScoredLoad:
    """One load: the predicted probability that a trial meets the objectives, and how many of the judged trials did.
    `right` is whether most of them had the likelier verdict, None without any; `unmeasured` trials have no figures
    or are INVALID, and `doubtful` ones are SUSPECT, by `codes`."""

    rate_rps: float
    predicted_met: float
    met: int = 0
    judged: int = 0
    right: bool | None = None
    unmeasured: int = 0
    doubtful: int = 0
    codes: tuple[str, ...] = ()
    figures: tuple[ScoredFigure, ...] = ()
    suspect: Word = None


@dataclass(frozen=True, kw_only=True)
class PredictionScore:
    """Prediction against measurement. `inside` of `compared` figures of single trials lie in their intervals, and at
    `right` of `judged` loads the predicted verdict was that of most trials."""

    schema_version: int = 1
    scenario: str
    fit: Word = None
    interval: float
    inside: int
    compared: int
    right: int
    judged: int
    loads: tuple[ScoredLoad, ...] = ()
