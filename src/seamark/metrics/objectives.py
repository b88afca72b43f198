"""Holds a trial's figures against its service-level objectives."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.scenario import Slo

GROUPS = {
    "latency": "latency_ms",
    "service_time": "service_time_ms",
    "ttft": "ttft_response_ms",
    "tpot": "tpot_ms",
    "schedule_lag": "schedule_lag_ms",
}
WHOLE = {
    "throughput": "throughput.value",
    "requests_per_s": "requests_per_s",
    "bandwidth_mb_per_s": "bandwidth.mb_per_s",
    "error_rate": "errors.rate",
    "goodput_ratio": "goodput.ratio",
}


def judged_objectives(slos: Sequence[Slo], document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each objective with the trial's value and whether it is met; None for both when it is not known."""
    judged = []
    for slo in slos:
        value = value_of(slo.metric, document)
        met = None if value is None else (value <= slo.limit if slo.op == "<=" else value >= slo.limit)
        judged.append({"metric": slo.metric, "op": slo.op, "limit": slo.limit, "value": value, "met": met})
    return judged


def value_of(metric: str, document: Mapping[str, Any]) -> float | None:
    """Return a metric in the objective's unit.

    An objective on a single request (`latency_s`) is judged by the p99 of all, by the slowest when there are too
    few samples for a p99. Other names are qualities such as `recall_at_10`.
    """
    if metric in REQUEST_OBJECTIVES:
        name = metric.removesuffix("_s")
        p99 = value_of(f"{name}_p99_s", document)
        return value_of(f"{name}_max_s", document) if p99 is None else p99
    if metric in WHOLE:
        return look_up(document, WHOLE[metric])
    name, _, statistic = metric.removesuffix("_s").rpartition("_")
    if name in GROUPS and metric.endswith("_s"):
        value_ms = look_up(document, f"{GROUPS[name]}.{statistic}")
        return None if value_ms is None else value_ms / 1e3
    quality = (document.get("quality") or {}).get(metric)
    return None if quality is None else float(quality)


def look_up(document: Mapping[str, Any], path: str) -> float | None:
    """Return the number at a dotted path, or None where there is none."""
    found: Any = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return None if found is None else float(found)
