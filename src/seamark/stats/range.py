"""A statistic of which the data give two ends, because some of what it is of was not seen. Imports nothing heavy."""

from dataclasses import dataclass
from math import inf

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
    def most(self) -> float:
        """The upper end, infinite where nothing limits it."""
        return inf if self.high is None else self.high

    @property
    def is_narrow(self) -> bool:
        """Whether it prints as a number."""
        return self.most - self.low <= NARROW_RATIO * abs(self.low)

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
        ends = (self.low, self.most)
        low, high = (end <= limit if op == "<=" else end >= limit for end in ends)
        return low if low == high else None
