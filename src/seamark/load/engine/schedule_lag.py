"""Schedule lag: how late requests were sent, and how late the event loop woke up."""

from pathlib import Path

import numpy as np

from seamark.load.workers.records import read_segment
from seamark.model.sample import MISSING_NS
from seamark.stats.histogram import Accumulator, Histogram


def lag_summary(lags_ns: Histogram) -> dict[str, int] | None:
    """Return p50, p99 and max of lags in ns, or None when nothing was counted."""
    p50, p99 = lags_ns.quantile(0.50), lags_ns.quantile(0.99)
    if p50 is None or p99 is None or lags_ns.maximum is None:
        return None
    return {"p50": round(p50), "p99": round(p99), "max": lags_ns.maximum}


def schedule_lag(segment: Path) -> dict[str, int] | None:
    """Return how late the requests of a segment were sent (`sent - due`), in ns; one sent early counts as 0."""
    lags = Accumulator()
    for records in read_segment(segment):
        sent = records[records["sent_ns"] != MISSING_NS]
        lags.add(np.maximum(sent["sent_ns"] - sent["due_ns"], 0))
    return lag_summary(lags.histogram())
