"""Judges a trial's metrics by its service-level objectives."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.analysis.metrics.table import METRICS
from seamark.model.objectives import REQUEST_OBJECTIVES, REQUEST_TIMES
from seamark.model.results.trial_metrics import ObjectiveResult, TrialMetrics
from seamark.model.scenario import Slo
from seamark.stats.range import Range

GROUPS = {name: f"{name}_ms" for name in (*REQUEST_TIMES, "schedule_lag")}
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
    results = []
    for slo in slos:
        result, found = ObjectiveResult(metric=slo.metric, op=slo.op, limit=slo.limit), value_of(slo.metric, metrics)
        if found is not None:
            ends = None if found.low == found.high else (found.low, found.high)
            result = replace(result, value=found.low, range=ends, met=found.meets(slo.op, slo.limit))
        results.append(result)
    return tuple(results)


def path_of(objective: str) -> str:
    """Return the path in metrics.json that an objective is on, its own name for a quality or a metric of the user's
    own. One on a single request (`latency_s`) is judged by the p99 of all."""
    name, _, statistic = objective.removesuffix("_s").rpartition("_")
    if objective in REQUEST_OBJECTIVES:
        name, statistic = objective.removesuffix("_s"), "p99"
    if name in GROUPS and objective.endswith("_s"):
        return f"{GROUPS[name]}.{statistic}"
    return WHOLE.get(objective) or COLUMNS.get(objective, objective)


def value_of(metric: str, metrics: TrialMetrics) -> Range | None:
    """Return both ends of a metric in the objective's unit.

    A mean is that of all requests, also of those without an answer. A throughput in chunks does not match an
    objective. The user's own metrics, qualities such as `recall_at_10`, and columns of metrics.csv are each in their
    own unit.
    """
    path = path_of(metric)
    if path.partition(".")[0] in GROUPS.values() and metric not in COLUMNS:
        limits = metrics.range_of(path)
        return None if limits is None else limits.times(1e-3)
    if metric == "throughput" and metrics.throughput.unit == CHUNKS:
        return None
    own_metric = metrics.own.get(metric)
    value = metrics.quality.get(metric) if own_metric is None else own_metric.value
    if metric in WHOLE or (own_metric is None and value is None and metric in COLUMNS):
        return metrics.range_of(path)
    return None if value is None else Range.exact(value)
