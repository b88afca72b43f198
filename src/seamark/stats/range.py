"""A statistic of which the data give two ends, because some of what it is of was not seen. Imports nothing heavy."""

from dataclasses import dataclass

NARROW_RATIO = 0.0101
"""A range of less than 1 %, or of two neighbouring bins of a histogram (1.005 % apart), prints as a number."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """A statistic in the unit of its values: the truth is from `low` to `high`, None where nothing limits it."""

    low: float
    high: float | None

    @classmethod
    def exact(cls, value: float) -> "Range":
        """Return the range of a known value."""
        return cls(low=value, high=value)

    @property
    def is_narrow(self) -> bool:
        """Whether it prints as a number."""
        return self.high is not None and self.high - self.low <= NARROW_RATIO * abs(self.low)

    @property
    def text(self) -> str:
        """The range in words, with four significant digits."""
        if self.high is None:
            return f"at least {self.low:.4g}"
        return f"{self.low:.4g}" if self.is_narrow else f"{self.low:.4g} to {self.high:.4g}"

    def times(self, factor: float) -> "Range":
        """Return the range in another unit, by a positive factor."""
        return Range(low=self.low * factor, high=None if self.high is None else self.high * factor)

    def meets(self, op: str, limit: float) -> bool | None:
        """Return whether the statistic is `<=` or `>=` a limit; None where its ends lie on both sides."""
        ends = [(end <= limit if op == "<=" else end >= limit) for end in (self.low, _infinite(self.high))]
        return ends[0] if ends[0] == ends[1] else None


def _infinite(high: float | None) -> float:
    return float("inf") if high is None else high
