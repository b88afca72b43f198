"""Comparison of treatments: what summary.json, `bench compare --format json` and the report say of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.results.values import OPTIONAL, Number, Setting, Word
from seamark.model.service import Origin

ComparedVerdict = Literal["better", "worse", "equivalent", "inconclusive"]
UnitOfInference = Literal["trial", "start"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An estimate with the limits of its interval, None where so few values give no limit."""

    value: float
    low: Number = None
    high: Number = None


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """One of two treatments. `units` is the number of values that the test has, `starts` that of the servers' starts
    that its trials were on. `excluded` trials are INVALID or without figures, `suspect` ones are counted among
    `trials`, `unmatched` ones were on a start that the other side has no trial on."""

    treatment: Word = None
    level: Setting = None
    trials: int = 0
    units: int = 0
    starts: int = 0
    excluded: int = 0
    suspect: int = 0
    unmatched: int = 0
    median: Number = None
    origin: Origin = field(default="measured", metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """`new` against `base` by one metric, with all other factors `fixed`; `factor` is None between two results.

    `unit_of_inference` is what the test counts: a trial where both treatments were on the same starts of a server,
    else a start, with the median of its trials. `ratio` is new / base, `shift` new - base in the metric's `unit`, both
    at the attained `confidence`. `p` is two-sided, `p_adjusted` by Holm's method over the family. Without `in_family`
    there is neither p nor verdict. `reason` says why a verdict is inconclusive, `remedy` what to do.
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
    in_family: bool = True
    verdict: ComparedVerdict | None = None
    reason: Word = None
    remedy: Word = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact that differs between two results, with all values that each has."""

    fact: str
    base: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """All comparisons of a scenario, or of two results: then `base` and `new` name them, `settings` and `environment`
    have what differs between them. `family` is the number of tests that Holm's method is applied to; `notes` say what
    was not compared."""

    schema_version: int = 1
    scenario: Word = None
    base: Word = None
    new: Word = None
    alpha: float = 0.05
    margin: float = 0.05
    family: int = 0
    comparisons: tuple[Compared, ...] = ()
    settings: tuple[Difference, ...] = ()
    environment: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> tuple[Compared, ...]:
        """The comparisons that have a simulated side."""
        return tuple(each for each in self.comparisons if "simulated" in (each.base.origin, each.new.origin))

    @property
    def judged(self) -> tuple[Compared, ...]:
        """The comparisons that have a verdict."""
        return tuple(each for each in self.comparisons if each.verdict is not None)
