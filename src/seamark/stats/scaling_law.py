"""A law of scaling as numbers with intervals. Imports nothing heavy."""

from dataclasses import dataclass
from typing import Literal

Law = Literal["amdahl", "usl"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval, None with too few blocks."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """X(n) = rate n / (1 + contention (n - 1) + coherency n (n - 1)), the last term for `usl` alone.

    `rate` is the throughput of one worker. `misfit` is the largest distance of a level's geometric mean from the
    curve, as a share of the curve.
    """

    law: Law
    rate: Estimate
    contention: Estimate
    coherency: Estimate | None = None
    misfit: float

    def throughput(self, workers: float) -> float:
        """Return the throughput of a number of workers."""
        quadratic = 0.0 if self.coherency is None else self.coherency.value
        return self.rate.value * workers / (1 + (workers - 1) * (self.contention.value + quadratic * workers))
