"""Judges a trial's metrics by its service-level objectives."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.analysis.metrics.table import METRICS
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.times import Times
from seamark.model.results.trial_metrics import ObjectiveResult, TrialMetrics
from seamark.model.scenario import Slo
from seamark.stats.censored import Estimate

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

    A lower bound misses an upper limit below it. It never meets one, because the true value is unknown.
    """
    return tuple(_judged(slo, value_of(slo.metric, metrics)) for slo in slos)


def _judged(slo: Slo, value: Estimate | None) -> ObjectiveResult:
    result = ObjectiveResult(metric=slo.metric, op=slo.op, limit=slo.limit)
    if value is None:
        return result
    return replace(result, value=value.value, lower_bound=value.lower_bound, met=_met(slo, value))


def _met(slo: Slo, found: Estimate) -> bool | None:
    above = found.value >= slo.limit if slo.op == ">=" else found.value > slo.limit
    if found.lower_bound and not above:
        return None
    return above if slo.op == ">=" else not above


def value_of(metric: str, metrics: TrialMetrics) -> Estimate | None:
    """Return a metric in the objective's unit.

    An objective on a single request (`latency_s`) is judged by the p99 of all, by the slowest with too few samples
    for a p99. A mean counts unanswered requests with a time of zero, as its lower limit. A throughput in chunks does
    not match an objective. Other names are the user's own metrics, qualities such as `recall_at_10`, and columns of
    metrics.csv, each in its own unit.
    """
    if metric in REQUEST_OBJECTIVES:
        name = metric.removesuffix("_s")
        p99 = value_of(f"{name}_p99_s", metrics)
        return value_of(f"{name}_max_s", metrics) if p99 is None else p99
    name, _, statistic = metric.removesuffix("_s").rpartition("_")
    if metric not in WHOLE and name in GROUPS and metric.endswith("_s"):
        return _time_s(getattr(metrics, GROUPS[name]), statistic, metrics.counts.ok or 0)
    if metric == "throughput" and metrics.throughput.unit == CHUNKS:
        return None
    if metric in WHOLE:
        value = metrics.figure(WHOLE[metric])
    elif own := metrics.own.get(metric):
        value = own.value
    else:
        value = metrics.quality.get(metric)
        value = metrics.figure(COLUMNS[metric]) if value is None and metric in COLUMNS else value
    return None if value is None else Estimate(value=value)


def _time_s(times: Times | None, statistic: str, answered: float) -> Estimate | None:
    if times is None or (value_ms := times.statistic(statistic)) is None:
        return None
    if statistic == "mean" and times.is_conditional:
        return Estimate(value=value_ms / 1e3 * answered / (answered + times.unanswered), lower_bound=True)
    return Estimate(value=value_ms / 1e3, lower_bound=times.is_lower_bound(statistic))
