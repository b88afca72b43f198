"""Histogram of non-negative integers with logarithmic buckets: mergeable, with a stated relative error.

The scheme is that of DDSketch (Masson, Rim, Lee 2019) without its collapsing: bucket i has the values in (g^(i-1),
g^i], g = (1 + e) / (1 - e), so that 2 g^i / (1 + g) is within a relative error e of all of them. Counts, sum, minimum
and maximum are exact integers, so merging is associative and commutative to the last bit.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seamark.stats.quantiles import rank

RELATIVE_ERROR = 0.005
LARGEST = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of values by bucket; `zeros` are separate because they have no logarithm."""

    relative_error: float = RELATIVE_ERROR
    zeros: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)
    total: int = 0
    minimum: int | None = None
    maximum: int | None = None

    @property
    def count(self) -> int:
        """Number of counted values."""
        return self.zeros + sum(self.buckets.values())

    @property
    def mean(self) -> float | None:
        """The exact mean, or None when empty."""
        count = self.count
        return self.total / count if count else None

    def quantile(self, probability: float) -> float | None:
        """Return the nearest-rank quantile within the stated relative error, or None when empty."""
        count = self.count
        return self.at(rank(probability, count)) if count else None

    def at(self, place: int) -> float:
        """Return the value at a 0-based rank below `count`, within the stated relative error."""
        assert self.minimum is not None
        assert self.maximum is not None
        wanted, seen = place + 1, self.zeros
        if wanted <= seen:
            return 0.0
        growth = _growth(self.relative_error)
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= wanted:
                middle = math.exp(index * math.log(growth)) * 2 / (1 + growth)
                return min(max(middle, float(self.minimum)), float(self.maximum))
        return float(self.maximum)

    def merged(self, other: "Histogram") -> "Histogram":
        """Return the merged histogram. Raises ValueError if their buckets differ."""
        return merge((self, other))

    def rows(self, most: int, tail: float = 0.001) -> list[tuple[float, int]]:
        """Return at most `most` pairs of (upper bound, count) for a bar chart, ascending.

        A row consists of whole buckets: the values of one bucket are never divided. Rows are equally wide in the
        logarithm, except the last, which has the largest values if these are at most a ratio `tail` and would stretch
        all others. Zeros have a row of their own.
        """
        rows = [(0.0, self.zeros)] if self.zeros else []
        indexes = sorted(self.buckets)
        if not indexes:
            return rows
        above, last = 0, indexes[-1]
        for position in range(len(indexes) - 1, 0, -1):
            if above + self.buckets[indexes[position]] > tail * self.count:
                break
            above, last = above + self.buckets[indexes[position]], indexes[position - 1]
        first, step = indexes[0], math.log(_growth(self.relative_error))
        each = -(-(last - first + 1) // max(1, most - len(rows) - bool(above)))
        for start in range(first, last + 1, each):
            end = min(start + each - 1, last)
            count = sum(self.buckets.get(index, 0) for index in range(start, end + 1))
            rows.append((min(math.exp(end * step), float(self.maximum or 0)), count))
        return [*rows, (float(self.maximum or 0), above)] if above else rows


def merge(parts: Iterable[Histogram]) -> Histogram:
    """Return the merged histogram of all `parts`; empty for none. Raises ValueError if their errors differ."""
    buckets: dict[int, int] = {}
    zeros = total = 0
    minima, maxima, errors = [], [], set()
    for part in parts:
        errors.add(part.relative_error)
        zeros += part.zeros
        total += part.total
        minima += [] if part.minimum is None else [part.minimum]
        maxima += [] if part.maximum is None else [part.maximum]
        for index, count in part.buckets.items():
            buckets[index] = buckets.get(index, 0) + count
    if len(errors) > 1:
        raise ValueError(f"histograms of different relative error cannot be merged: {sorted(errors)}")
    return Histogram(
        relative_error=errors.pop() if errors else RELATIVE_ERROR,
        zeros=zeros,
        buckets=buckets,
        total=total,
        minimum=min(minima, default=None),
        maximum=max(maxima, default=None),
    )


class Accumulator:
    """Counts arrays of non-negative integers in constant memory, for any range."""

    def __init__(self, relative_error: float = RELATIVE_ERROR) -> None:
        self._relative_error = relative_error
        self._counts = np.zeros(int(bucket_indexes(np.array([LARGEST]), relative_error)[0]) + 1, dtype=np.int64)
        self._zeros = self._total = 0
        self._minimum: int | None = None
        self._maximum: int | None = None

    def add(self, values: NDArray[np.int64]) -> None:
        """Count an array of values from 0 to LARGEST."""
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        positive = values if least else values[values > 0]
        indexes = bucket_indexes(positive, self._relative_error)
        np.add(self._counts, np.bincount(indexes, minlength=len(self._counts)), out=self._counts)
        self._zeros += len(values) - len(positive)
        self._total += _exact_sum(values)
        self._minimum = least if self._minimum is None else min(self._minimum, least)
        self._maximum = most if self._maximum is None else max(self._maximum, most)

    def histogram(self) -> Histogram:
        """Return the histogram of the values so far."""
        filled = np.flatnonzero(self._counts)
        return Histogram(
            relative_error=self._relative_error,
            zeros=self._zeros,
            buckets=dict(zip(filled.tolist(), self._counts[filled].tolist(), strict=True)),
            total=self._total,
            minimum=self._minimum,
            maximum=self._maximum,
        )


def of(values: NDArray[np.int64], relative_error: float = RELATIVE_ERROR) -> Histogram:
    """Return the histogram of an array of integers from 0 to LARGEST."""
    counter = Accumulator(relative_error)
    counter.add(values)
    return counter.histogram()


def require_buckets(indexes: Iterable[int], relative_error: float) -> None:
    """Raise ValueError for a relative error or a bucket that no histogram of values up to LARGEST has."""
    if not 0 < relative_error < 1:
        raise ValueError(f"its relative error is {relative_error:g}, which none can have")
    last = int(bucket_indexes(np.array([LARGEST]), relative_error)[0])
    if wrong := [index for index in indexes if not 0 <= index <= last]:
        raise ValueError(f"it has the bin {wrong[0]}, and the last one can be {last}")


def bucket_indexes(positive: NDArray[np.int64], relative_error: float) -> NDArray[np.int64]:
    """Return the bucket of each positive value."""
    return np.ceil(np.log(positive) / math.log(_growth(relative_error))).astype(np.int64)


def bucket_value(index: NDArray[np.int64], relative_error: float) -> NDArray[np.float64]:
    """Return the representative value of each bucket."""
    growth = _growth(relative_error)
    return np.asarray(np.exp(index * math.log(growth)) * 2 / (1 + growth), dtype=np.float64)


def _exact_sum(values: NDArray[np.int64]) -> int:
    """The sum in two halves, because the whole may exceed 64 bits."""
    return (int((values >> 31).sum()) << 31) + int((values & 0x7FFFFFFF).sum())


def _growth(relative_error: float) -> float:
    return (1 + relative_error) / (1 - relative_error)
