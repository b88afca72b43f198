"""Quantiles of how late we were, in constant memory: a histogram of logarithmic buckets, 1 % wide."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from seamark.load.workers.records import read_segment
from seamark.model.sample import MISSING_NS

WIDTH = 0.01
BUCKETS = 4400
"""exp(44) ns is longer than any load."""


class LagHistogram:
    """Counts lags in ns; a quantile is at most 1 % above the true one."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, dtype=np.int64)
        self._max_ns = 0

    def add(self, lags_ns: npt.NDArray[np.int64]) -> None:
        """Count an array of lags; one below 0 (early) counts as 0."""
        if not lags_ns.size:
            return
        lags_ns = np.maximum(lags_ns, 0)
        buckets = np.ceil(np.log1p(lags_ns) / WIDTH).astype(np.int64)
        self._counts += np.bincount(buckets, minlength=BUCKETS)[:BUCKETS]
        self._max_ns = max(self._max_ns, int(lags_ns.max()))

    def quantile_ns(self, share: float) -> int:
        """Return the lag that `share` of all do not exceed."""
        total = int(self._counts.sum())
        rank = max(1, int(np.ceil(share * total)))
        bucket = int(np.searchsorted(np.cumsum(self._counts), rank))
        return min(self._max_ns, int(np.floor(np.expm1(bucket * WIDTH))))

    def summary(self) -> dict[str, int] | None:
        """Return p50, p99 and max in ns, or None when nothing was counted."""
        if not self._counts.any():
            return None
        return {"p50": self.quantile_ns(0.50), "p99": self.quantile_ns(0.99), "max": self._max_ns}


def schedule_lag(segment: Path) -> dict[str, int] | None:
    """Return how late the requests of a segment were sent (`sent - due`), in ns, of those that were."""
    histogram = LagHistogram()
    for records in read_segment(segment):
        sent = records[records["sent_ns"] != MISSING_NS]
        histogram.add(sent["sent_ns"] - sent["due_ns"])
    return histogram.summary()
