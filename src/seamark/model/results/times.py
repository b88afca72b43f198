"""Statistics of times in ms, as they stand in metrics.json and summaries."""

from dataclasses import dataclass

from seamark.model.results.values import Count, Number


@dataclass(frozen=True, kw_only=True)
class Times:
    """Statistics of a time in ms. None: not known, or withheld for too few samples."""

    def statistic(self, name: str) -> Number:
        """Return `p99`, `mean` and the like; None for a statistic that these times do not have."""
        value: Number = getattr(self, name, None)
        return value

    @property
    def bounds(self) -> tuple[str, ...]:
        """Statistics that are lower bounds: they reach into requests without an answer, which took at least so long."""
        found: tuple[str, ...] = getattr(self, "lower_bounds", ())
        return found

    def is_lower_bound(self, name: str) -> bool:
        """Return whether a statistic is a lower bound."""
        return name in self.bounds

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
    """Statistics of a time of which `censored` requests have a lower bound alone. These make the statistics in
    `lower_bounds` lower bounds; the mean leaves them out."""

    censored: Count = None
    lower_bounds: tuple[str, ...] = ()


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
    lower_bounds: tuple[str, ...] = ()


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
    """Times of one kind of request, some of them lower bounds."""

    censored: int = 0
    lower_bounds: tuple[str, ...] = ()
