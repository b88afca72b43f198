"""Reads what a trial's series and telemetry say over time, thinned for drawing. Draws nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

MOST_POINTS = 1200
SOURCES = ("host", "server", "client")
NAMES = ("cpu_ratio", "rss_bytes")

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Times in seconds from the start of the load, and a value at each."""

    at_s: Numbers
    values: Numbers


def read_series(path: Path) -> dict[str, Series] | None:
    """Return throughput and response times second by second; None when the file cannot be read.

    Where there are more seconds than can be drawn, a point is the mean of its seconds, for p99 the worst of them.
    """
    try:
        table = pyarrow.csv.read_csv(path)
        second = _numbers(table, "second")
        return {
            "throughput": _thinned(second, _numbers(table, "throughput"), np.mean),
            "p50_ms": _thinned(second + 0.5, 1e3 * _numbers(table, "latency_p50_s"), np.mean),
            "p99_ms": _thinned(second + 0.5, 1e3 * _numbers(table, "latency_p99_s"), np.max),
        }
    except (OSError, ValueError, KeyError):
        return None


def read_telemetry(path: Path) -> Mapping[tuple[str, str], Series]:
    """Return what is drawn of a trial's telemetry by source and name; empty when there is none to be read."""
    wanted = [("source", "in", list(SOURCES)), ("name", "in", list(NAMES))]
    try:
        table = pq.read_table(path, columns=["at_s", "source", "name", "value"], filters=wanted)
    except (OSError, ValueError, pa.ArrowException):
        return {}
    found = {}
    for source in SOURCES:
        for name in NAMES:
            own = table.filter((pc.field("source") == source) & (pc.field("name") == name))
            if own.num_rows:
                found[source, name] = _thinned(_numbers(own, "at_s"), _numbers(own, "value"), np.mean)
    return found


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column as floats, NaN where it is empty."""
    return np.asarray(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def _thinned(at_s: Numbers, values: Numbers, reduce: Callable[[Numbers], object]) -> Series:
    known = np.isfinite(values)
    at_s, values = at_s[known], values[known]
    each = -(-len(values) // MOST_POINTS)
    if each > 1:
        starts = range(0, len(values), each)
        at_s = at_s[::each]
        values = np.array([reduce(values[start : start + each]) for start in starts], dtype=np.float64)
    return Series(at_s=at_s, values=values)
