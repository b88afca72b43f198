"""Summaries of telemetry series over the measured window: gauges as they are, counters as rates.

A series is a counter if its unit ends in the word `total` (which the Prometheus monitor adds by `# TYPE`), if it is
one of Seamark's COUNTERS, or if the service's name for it has one of COUNTER_ENDINGS.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from seamark.model.results.trial_metrics import TelemetrySummary
from seamark.stats.quantiles import rank

COUNTERS = frozenset(
    {"read_bytes", "write_bytes", "net_received_bytes", "net_sent_bytes", "energy_j", "cpu_s", "cgroup_cpu_s"}
)
SINCE_LAST = frozenset(
    {
        "cpu_ratio",
        "cpu_iowait_ratio",
        "cpu_steal_ratio",
        "cpu_irq_ratio",
        "cpu_pressure_ratio",
        "io_pressure_ratio",
        "memory_pressure_ratio",
        "overhead_ratio",
    }
)
"""Series whose readings are means over the time since the reading before; those of other gauges are of one moment."""
USES = frozenset({"cpu_ratio", "cpu_steal_ratio", "cpu_irq_ratio"})
COUNTER_UNIT = "total"
POWER_UNIT = "W"
COUNTER_ENDINGS = ("_total", "_count", "_sum")
LEFT_OUT_ENDINGS = ("_bucket", "_created")

Values = NDArray[np.float64]
Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class SeriesSummary(TelemetrySummary):
    """One telemetry series over a window. `increase` is that of a counter over `span_s` seconds; of a power in watts,
    its integral in joules. `readings` are the times in s and the values inside the window, of use of processors
    only."""

    increase: float | None = None
    span_s: float | None = None
    readings: tuple[tuple[float, float], ...] = ()

    @property
    def record(self) -> TelemetrySummary:
        """The part that metrics.json has."""
        return TelemetrySummary(**{part.name: getattr(self, part.name) for part in fields(TelemetrySummary)})


def summarise_telemetry(path: Path, start_s: float, end_s: float) -> Mapping[Key, SeriesSummary]:
    """Return every series of a telemetry file by (source, name); empty without a readable file.

    Counters are interpolated at the window's edges, so a short window is not rounded to whole samples. Means are
    weighted by time, as a busy machine is read less often.
    """
    try:
        with pq.ParquetFile(path) as file:  # `read_table` would import Arrow's data sets
            table = file.read(["at_s", "source", "name", "value", "unit"], use_threads=False)
    except (pa.ArrowException, OSError):
        return {}
    summaries: dict[Key, SeriesSummary] = {}
    for key, unit, at_s, values in _series(table):
        physical = unit.removesuffix(COUNTER_UNIT).rstrip()
        gauge = partial(_gauge, spans=_spans_before if key[1] in SINCE_LAST else _spans_around)
        of_service = key[0] == "service" and _bare(key[1]).endswith(COUNTER_ENDINGS)
        counts = unit.endswith(COUNTER_UNIT) or key[1] in COUNTERS or of_service
        sum_up = _rates if counts else gauge
        if (summary := sum_up(at_s, values, physical, start_s, end_s)) is not None:
            summaries[key] = summary
            if key[1] in USES:
                within = (at_s >= start_s) & (at_s <= end_s)
                readings = zip(at_s[within].tolist(), values[within].tolist(), strict=True)
                summaries[key] = replace(summary, readings=tuple(readings))
    return summaries


def _bare(name: str) -> str:
    return name.split("{", 1)[0]


def _series(table: pa.Table) -> Iterator[tuple[Key, str, Values, Values]]:
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    words = (columns[name].cast(pa.string()) for name in ("source", "name", "unit"))
    sources, names, units = (column.to_numpy(zero_copy_only=False) for column in words)
    at_s, values = (columns[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("at_s", "value"))
    places: dict[Key, list[int]] = {}
    for row, key in enumerate(zip(sources, names, strict=True)):
        places.setdefault(key, []).append(row)
    for key, rows in places.items():
        if _bare(str(key[1])).endswith(LEFT_OUT_ENDINGS):
            continue
        chosen = np.array(rows)
        chosen = chosen[np.isfinite(values[chosen]) & np.isfinite(at_s[chosen])]
        chosen = chosen[np.argsort(at_s[chosen], kind="stable")]
        if len(chosen):
            yield key, str(units[chosen[0]] or ""), at_s[chosen], values[chosen]


Spans = Callable[[Values], tuple[Values, Values]]
"""From the times of readings to the beginnings and the ends of the times that they stand for."""


def _spans_before(at_s: Values) -> tuple[Values, Values]:
    """Each reading stands for the time since the one before; the first for as long as the second."""
    if len(at_s) == 1:
        return at_s - 1.0, at_s
    return np.concatenate([[2 * at_s[0] - at_s[1]], at_s[:-1]]), at_s


def _spans_around(at_s: Values) -> tuple[Values, Values]:
    """Each reading stands for the time that is closer to it than to another."""
    edges = (at_s[1:] + at_s[:-1]) / 2
    first, last = (1.0, 1.0) if len(at_s) == 1 else (edges[0] - at_s[0], at_s[-1] - edges[-1])
    return np.concatenate([[at_s[0] - first], edges]), np.concatenate([edges, [at_s[-1] + last]])


def _mean(values: Values, spans: tuple[Values, Values], start_s: float, end_s: float) -> float | None:
    """Return the mean of readings, each weighted by the part of the window that it stands for; None for no part."""
    weights = np.maximum(np.minimum(spans[1], end_s) - np.maximum(spans[0], start_s), 0.0)
    return float(np.average(values, weights=weights)) if weights.sum() > 0 else None


def _gauge(
    at_s: Values, values: Values, unit: str, start_s: float, end_s: float, *, spans: Spans
) -> SeriesSummary | None:
    within = (at_s >= start_s) & (at_s <= end_s)
    inside = values[within]
    if not len(inside):
        return None
    mean = _mean(values, spans(at_s), start_s, end_s)
    summary = _summary(inside, unit, float(inside.mean()) if mean is None else mean)
    if unit != POWER_UNIT:
        return summary
    increase, span_s = _integral(at_s, values, within, start_s, end_s)
    return replace(summary, increase=increase, span_s=span_s)


def _integral(
    at_s: Values, values: Values, within: NDArray[np.bool_], start_s: float, end_s: float
) -> tuple[float, float]:
    """Return the area below a power by trapezoids, interpolated at the edges, and the seconds between these."""
    start_s, end_s = max(start_s, float(at_s[0])), min(end_s, float(at_s[-1]))
    times = np.concatenate([[start_s], at_s[within], [end_s]])
    power = np.concatenate([[np.interp(start_s, at_s, values)], values[within], [np.interp(end_s, at_s, values)]])
    return float(np.trapezoid(power, times)), end_s - start_s


def _rates(at_s: Values, values: Values, unit: str, start_s: float, end_s: float) -> SeriesSummary | None:
    start_s, end_s = max(start_s, float(at_s[0])), min(end_s, float(at_s[-1]))
    if end_s <= start_s:
        return None
    inside = (at_s > start_s) & (at_s < end_s)
    edges = np.interp([start_s, end_s], at_s, values)
    times = np.concatenate([[start_s], at_s[inside], [end_s]])
    steps = np.diff(np.concatenate([[edges[0]], values[inside], [edges[1]]]))
    spans = np.diff(times)
    if (steps < 0).any():
        return None
    rates = (steps / spans)[spans > 1e-9]
    increase = float(steps.sum())
    if not len(rates):
        return None
    summary = _summary(rates, f"{unit}/s", increase / (end_s - start_s))
    return replace(summary, increase=increase, span_s=end_s - start_s)


def _summary(values: Values, unit: str, mean: float) -> SeriesSummary:
    ordered = np.sort(values)
    return SeriesSummary(
        unit=unit,
        n=len(values),
        mean=mean,
        min=float(ordered[0]),
        p50=float(ordered[rank(0.5, len(ordered))]),
        p95=float(ordered[rank(0.95, len(ordered))]),
        max=float(ordered[-1]),
    )
