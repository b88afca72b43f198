"""Compares a trial's metrics with its service-level objectives."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.analysis.metrics.table import METRICS
from seamark.model.objectives import REQUEST_OBJECTIVES
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


def judged_objectives(slos: Sequence[Slo], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each objective with the trial's value and whether it is met; None for both if unknown.

    A lower bound misses an upper limit below it. It never meets one, because the true value is unknown.
    """
    judged = []
    for slo in slos:
        found = value_of(slo.metric, document)
        judged.append(
            {
                "metric": slo.metric,
                "op": slo.op,
                "limit": slo.limit,
                "value": None if found is None else found.value,
                "lower_bound": found is not None and found.lower_bound,
                "met": None if found is None else _met(slo, found),
            }
        )
    return judged


def _met(slo: Slo, found: Estimate) -> bool | None:
    above = found.value >= slo.limit if slo.op == ">=" else found.value > slo.limit
    if found.lower_bound and not above:
        return None
    return above if slo.op == ">=" else not above


def value_of(metric: str, document: Mapping[str, Any]) -> Estimate | None:
    """Return a metric in the objective's unit.

    An objective on a single request (`latency_s`) is judged by the p99 of all, by the slowest with too few samples
    for a p99. A mean counts unanswered requests with a time of zero, as its lower limit. A throughput in chunks does
    not match an objective. Other names are the user's own metrics, qualities such as `recall_at_10`, and columns of
    metrics.csv, each in its own unit.
    """
    if metric in REQUEST_OBJECTIVES:
        name = metric.removesuffix("_s")
        p99 = value_of(f"{name}_p99_s", document)
        return value_of(f"{name}_max_s", document) if p99 is None else p99
    name, _, statistic = metric.removesuffix("_s").rpartition("_")
    if metric not in WHOLE and name in GROUPS and metric.endswith("_s"):
        return _time_s(document.get(GROUPS[name]) or {}, statistic, look_up(document, "counts.ok") or 0)
    if metric == "throughput" and (document.get("throughput") or {}).get("unit") == CHUNKS:
        return None
    path = WHOLE.get(metric)
    if path is None and (own := (document.get("own") or {}).get(metric)):
        value = own["value"]
    elif path is None:
        value = look_up(document.get("quality") or {}, metric)
        value = look_up(document, COLUMNS[metric]) if value is None and metric in COLUMNS else value
    else:
        value = look_up(document, path)
    return None if value is None else Estimate(value=value)


def _time_s(times: Mapping[str, Any], statistic: str, answered: float) -> Estimate | None:
    value_ms = times.get(statistic)
    if value_ms is None:
        return None
    censored = times.get("censored") or 0
    if statistic == "mean" and censored:
        return Estimate(value=value_ms / 1e3 * answered / (answered + censored), lower_bound=True)
    return Estimate(value=value_ms / 1e3, lower_bound=statistic in (times.get("lower_bounds") or ()))


def look_up(document: Mapping[str, Any], path: str) -> float | None:
    """Return the number at a dotted path, or None where there is none."""
    found: Any = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
