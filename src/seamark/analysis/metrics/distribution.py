"""Distribution of the times of one window's requests: known times, and lower bounds of unknown ones. Opens no
file."""

import numpy as np
from numpy.typing import NDArray

from seamark.stats import censored, histogram
from seamark.stats.censored import Estimate
from seamark.stats.histogram import Histogram
from seamark.stats.quantiles import samples_needed

Times = NDArray[np.int64]

EXACT_LIMIT = 1_000_000
"""Number of samples up to which percentiles are exact; above it they come from the histogram."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class TimeDistribution:
    """Times in ns: always histograms, and the times themselves while they are few.

    `histogram` has the known times, `bounds` the lower bounds of unanswered requests.
    """

    def __init__(self) -> None:
        self._known, self._bounds = _Part(), _Part()

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

    def quantile(self, probability: float) -> Estimate | None:
        """Return a quantile in ns, or None with too few samples."""
        if self.count < samples_needed(probability):
            return None
        if self._known.pieces is None or self._bounds.pieces is None:
            return censored.quantile(self.histogram, self.bounds, probability)
        return censored.exact_quantile(self._known.whole(), self._bounds.whole(), probability)

    def statistic(self, name: str) -> Estimate | None:
        """Return `p99`, `mean`, `min` and the like in ns, None if unknown. The mean covers the known times alone."""
        if name == "mean":
            mean = self.histogram.mean
            return None if mean is None else Estimate(value=mean)
        if name in ("min", "max"):
            extreme = censored.minimum if name == "min" else censored.maximum
            return extreme(self.histogram, self.bounds)
        return self.quantile(QUANTILES[name])

    def statistic_ms(self, name: str) -> float | None:
        """Return a statistic in ms, None where it is not known."""
        estimate = self.statistic(name)
        return None if estimate is None else estimate.value / 1e6

    def lower_bounds(self) -> list[str]:
        """Return the names of the statistics that are lower bounds."""
        if not self.bounds.count:
            return []
        found = {name: self.statistic(name) for name in (*QUANTILES, "min", "max")}
        return [name for name, each in found.items() if each is not None and each.lower_bound]


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
