"""Figures over the trials of a treatment: spread, medians, telemetry."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from seamark.model.results.summary import Spread, TelemetrySpread
from seamark.model.results.trial_metrics import TelemetrySummary, TrialMetrics


def spread(values: Sequence[float]) -> Spread:
    """Return median, extremes, mean and coefficient of variation (sample deviation over mean; None below two)."""
    if not values:
        return Spread()
    mean = fmean(values)
    cv = stdev(values) / mean if len(values) > 1 and mean else None
    return Spread(median=median(values), min=min(values), max=max(values), mean=mean, cv=cv)


def spread_of(trials: Sequence[TrialMetrics], path: str) -> Spread:
    """Return the spread of the figure at a dotted path over the trials that have it."""
    return spread([value for metrics in trials if (value := metrics.figure(path)) is not None])


def unit_of(trials: Sequence[TrialMetrics]) -> str | None:
    """Return the unit of throughput that most of the trials have. Other units are not compared with it."""
    units = Counter(metrics.throughput.unit for metrics in trials)
    return max(units, key=lambda unit: units[unit], default=None)


def known(values: Spread) -> Spread | None:
    """Return a spread, or None for that of no value."""
    return None if values.median is None else values


def medians(groups: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Return the median of every figure of some mappings; None where none has it."""
    names = dict.fromkeys(name for group in groups for name in group)
    values = {name: [float(value) for group in groups if (value := group.get(name)) is not None] for name in names}
    return {name: median(known) if known else None for name, known in values.items()}


def telemetry(trials: Sequence[TrialMetrics]) -> dict[str, TelemetrySpread]:
    """Return each telemetry series over all trials."""
    series: dict[str, list[TelemetrySummary]] = {}
    for metrics in trials:
        for name, summary in metrics.telemetry.items():
            series.setdefault(name, []).append(summary)
    return {name: _telemetry_spread(summaries) for name, summaries in series.items()}


def _telemetry_spread(summaries: Sequence[TelemetrySummary]) -> TelemetrySpread:
    readings = sum(summary.n for summary in summaries)
    return TelemetrySpread(
        unit=summaries[0].unit,
        n=readings,
        min=min(summary.min for summary in summaries),
        mean=sum(summary.mean * summary.n for summary in summaries) / readings if readings else None,
        max=max(summary.max for summary in summaries),
        median_of_p50=median(summary.p50 for summary in summaries),
        median_of_p95=median(summary.p95 for summary in summaries),
    )
