"""Judges a trial's metrics by its service-level objectives."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.analysis.metrics.table import METRICS
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.trial_metrics import ObjectiveResult, TrialMetrics
from seamark.model.scenario import Slo
from seamark.stats.range import Range

GROUPS = {
    "latency": "latency_ms",
    "service_time": "service_time_ms",
    "ttft": "ttft_ms",
    "ttft_response": "ttft_response_ms",
    "ttfo": "ttfo_ms",
    "tpot": "tpot_ms",
    "schedule_lag": "schedule_lag_ms",
}
CHUNKS = "chunks_per_s"
"""Unit of throughput if the service did not count the units of its replies."""
WHOLE = {
    "throughput": "throughput.value",
    "requests_per_s": "requests_per_s",
    "bandwidth_mb_per_s": "bandwidth.mb_per_s",
    "error_rate": "errors.rate",
    "goodput_ratio": "goodput.ratio",
}

COLUMNS = {metric.column: metric.path for metric in METRICS}


def judged_objectives(slos: Sequence[Slo], metrics: TrialMetrics) -> tuple[ObjectiveResult, ...]:
    """Return each objective with the trial's value and whether it is met; None for both if unknown.

    A value that is known between two ends alone is decided where both lie on one side of the limit.
    """
    return tuple(_judged(slo, value_of(slo.metric, metrics)) for slo in slos)


def _judged(slo: Slo, found: Range | None) -> ObjectiveResult:
    result = ObjectiveResult(metric=slo.metric, op=slo.op, limit=slo.limit)
    if found is None:
        return result
    ends = None if found.low == found.high else (found.low, found.high)
    return replace(result, value=found.low, range=ends, met=found.meets(slo.op, slo.limit))


def value_of(metric: str, metrics: TrialMetrics) -> Range | None:
    """Return both ends of a metric in the objective's unit.

    An objective on a single request (`latency_s`) is judged by the p99 of all. A mean is that of all requests, also
    of those without an answer. A throughput in chunks does not match an objective. Other names are the user's own
    metrics, qualities such as `recall_at_10`, and columns of metrics.csv, each in its own unit.
    """
    if metric in REQUEST_OBJECTIVES:
        return value_of(f"{metric.removesuffix('_s')}_p99_s", metrics)
    name, _, statistic = metric.removesuffix("_s").rpartition("_")
    if metric not in WHOLE and name in GROUPS and metric.endswith("_s"):
        limits = metrics.range_of(f"{GROUPS[name]}.{statistic}")
        return None if limits is None else limits.times(1e-3)
    if metric == "throughput" and metrics.throughput.unit == CHUNKS:
        return None
    if metric in WHOLE:
        return metrics.range_of(WHOLE[metric])
    if own_metric := metrics.own.get(metric):
        value = own_metric.value
    else:
        value = metrics.quality.get(metric)
        if value is None and metric in COLUMNS:
            return metrics.range_of(COLUMNS[metric])
    return None if value is None else Range.exact(value)
