"""Statistics of times in ms, as they stand in metrics.json and summaries."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.results.values import Count, Number
from seamark.stats.range import Range

Ranges = Mapping[str, tuple[Number, Number]]
"""Statistic -> its lower end, and its upper one or null for none: of those that are known between two ends only."""


@dataclass(frozen=True, kw_only=True)
class Ranged:
    """Figures some of which are known between two ends alone, as `ranges` has them: requests without an answer may
    have taken any time longer, or fewer than ten samples lie beyond a percentile. None: not known, or withheld."""

    ranges: Ranges = field(default_factory=dict)

    def statistic(self, name: str) -> Number:
        """Return `p99`, `mean` and the like, of a range the lower end; None for none or one that is withheld."""
        value: Number = getattr(self, name, None)
        return value

    def range_of(self, name: str) -> Range | None:
        """Return both ends of a figure, None where nothing is known of it."""
        low, high = self.ranges.get(name, (None, None))
        if low is not None:
            return Range(low=low, high=high)
        value = self.statistic(name)
        return None if value is None else Range.exact(value)

    def is_range(self, name: str) -> bool:
        """Return whether a figure is known between two ends alone that are too far apart for a number."""
        found = self.range_of(name)
        return found is not None and not found.is_narrow


@dataclass(frozen=True, kw_only=True)
class Times(Ranged):
    """Statistics of a time in ms."""

    @property
    def unanswered(self) -> int:
        """Requests without an answer: the mean leaves them out."""
        return getattr(self, "censored", None) or 0

    @property
    def is_conditional(self) -> bool:
        """Whether the mean leaves out requests."""
        return self.unanswered > 0


@dataclass(frozen=True, kw_only=True)
class Distribution(Times):
    """Statistics of a time that every counted request has."""

    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    p999: Number = None
    mean: Number = None
    min: Number = None
    max: Number = None


@dataclass(frozen=True, kw_only=True)
class BoundedDistribution(Distribution):
    """Statistics of a time of which `censored` requests have a lower bound alone; the mean leaves them out, the range
    of the mean does not."""

    censored: Count = None


@dataclass(frozen=True, kw_only=True)
class LagDistribution(Times):
    """Lateness of requests against their schedule."""

    p50: Number = None
    p99: Number = None
    max: Number = None


@dataclass(frozen=True, kw_only=True)
class PartTimes(Times):
    """Response times of a part of a load."""

    p50: Number = None
    p95: Number = None
    p99: Number = None
    mean: Number = None
    censored: int = 0


@dataclass(frozen=True, kw_only=True)
class KindTimes(Times):
    """Times of one kind of request."""

    mean: Number = None
    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    p999: Number = None


@dataclass(frozen=True, kw_only=True)
class BoundedKindTimes(KindTimes):
    """Times of one kind of request, of which `censored` have a lower bound alone."""

    censored: int = 0
