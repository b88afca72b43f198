"""Distribution of the times of one window's requests: known times, and lower bounds of unknown ones. Opens no
file."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from seamark.stats import censored, histogram
from seamark.stats.histogram import Histogram
from seamark.stats.quantiles import ranks_of, samples_needed
from seamark.stats.range import Range

Times = NDArray[np.int64]

EXACT_LIMIT = 1_000_000
"""Number of samples up to which percentiles are exact; above it they come from the histogram."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
EXTREMES: Mapping[str, Callable[[Histogram, Histogram], Range | None]] = {
    "mean": censored.mean,
    "min": censored.minimum,
    "max": censored.maximum,
}
STATISTICS = (*QUANTILES, *EXTREMES)


class TimeDistribution:
    """Times in ns: always histograms, and the times themselves while they are few.

    `histogram` has the known times, `bounds` the lower bounds of unanswered requests.
    """

    def __init__(self) -> None:
        self._known, self._bounds = _Part(), _Part()

    @classmethod
    def of_histograms(cls, known: Histogram, bounds: Histogram) -> "TimeDistribution":
        """Return the distribution of merged histograms; its percentiles have their error."""
        merged = cls()
        merged._known.histogram, merged._bounds.histogram = known, bounds
        merged._known.pieces = merged._bounds.pieces = None
        return merged

    def add(self, times: Times, bounds: Times | None = None) -> None:
        """Add times in ns, and lower bounds; a negative one (sent slightly early) counts as zero."""
        self._known.add(times)
        if bounds is not None:
            self._bounds.add(bounds)
        if self.count > EXACT_LIMIT:
            self._known.pieces = self._bounds.pieces = None

    @property
    def histogram(self) -> Histogram:
        return self._known.histogram

    @property
    def bounds(self) -> Histogram:
        return self._bounds.histogram

    @property
    def count(self) -> int:
        """Number of times, known or bounded."""
        return self.histogram.count + self.bounds.count

    @property
    def exact(self) -> bool:
        return self._known.pieces is not None

    def quantile(self, probability: float) -> Range | None:
        """Return both ends of a quantile in ns, None with too few samples even for its order-statistic interval."""
        ranks = ranks_of(probability, self.count)
        if ranks is None:
            return None
        if self._known.pieces is None or self._bounds.pieces is None:
            return censored.quantile(self.histogram, self.bounds, ranks)
        return censored.exact_quantile(self._known.whole(), self._bounds.whole(), ranks)

    def statistic(self, name: str) -> Range | None:
        """Return both ends of `p99`, `mean`, `min` and the like in ns, None if unknown."""
        extreme = EXTREMES.get(name)
        return self.quantile(QUANTILES[name]) if extreme is None else extreme(self.histogram, self.bounds)

    def statistic_ms(self, name: str) -> float | None:
        """Return a statistic in ms, None where it is not known or withheld: a percentile with few samples beyond it
        is no number. The lower end of a range; the mean covers the known times alone."""
        if name == "mean":
            return None if self.histogram.mean is None else self.histogram.mean / 1e6
        if name in QUANTILES and self.count < samples_needed(QUANTILES[name]):
            return None
        value = self.statistic(name)
        return None if value is None else value.low / 1e6

    def ranges_ms(self, names: Iterable[str] = STATISTICS) -> dict[str, tuple[float, float | None]]:
        """Return the ends in ms of the statistics that are no number, or one of unequal ends."""
        ranges = {name: value.times(1e-6) for name in names if (value := self.statistic(name))}
        return {
            name: (ends.low, ends.high)
            for name, ends in ranges.items()
            if ends.low != ends.high or self.statistic_ms(name) is None
        }


class _Part:
    """Times as a histogram, and in pieces as they arrived until there are too many."""

    def __init__(self) -> None:
        self.histogram = Histogram()
        self.pieces: list[Times] | None = []

    def add(self, times: Times) -> None:
        if not len(times):
            return
        times = np.maximum(times, 0)
        self.histogram = self.histogram.merged(histogram.of(times))
        if self.pieces is not None:
            self.pieces.append(times)

    def whole(self) -> Times:
        """Return all times in one array."""
        assert self.pieces is not None
        if len(self.pieces) != 1:
            self.pieces = [np.concatenate([np.zeros(0, dtype=np.int64), *self.pieces])]
        return self.pieces[0]
