"""Names of metrics that service-level objectives may use. Their values are computed in metrics, from raw samples."""

import re
from collections.abc import Iterable
from typing import Literal

from seamark.model.scenario import Slo

REQUEST_TIMES = ("latency", "service_time", "ttft", "ttft_response", "ttfo", "tpot")
"""Times of one request. Latency and the response of TTFT count from the intended send, the others from the actual
one."""

REQUEST_OBJECTIVES = tuple(f"{name}_s" for name in REQUEST_TIMES)
"""Met or missed by each request, so they also define goodput."""

OBJECTIVES = (
    *REQUEST_OBJECTIVES,
    *(
        f"{name}_{statistic}_s"
        for name in (*REQUEST_TIMES, "schedule_lag")
        for statistic in ("p50", "p90", "p95", "p99", "p999", "mean", "max")
    ),
    "throughput",
    "requests_per_s",
    "bandwidth_mb_per_s",
    "error_rate",
    "goodput_ratio",
)
"""Metrics of a whole trial. `recall_at_N` is allowed as well."""

SEARCH_FOUND = "search.found"
"""The largest load that a search found."""
MAKESPAN = "makespan_s"
"""The figure by which simulated schedules are compared."""
PROGRAM_QUALITIES = ("run_time_s", "cpu_time_s", "peak_rss_mb")
"""What every program has that is run as a command; less is better."""
RUN_TIME = PROGRAM_QUALITIES[0]
RESPONSE_TIME = "latency_ms.p50"
"""The median response time, by its path in metrics.json."""

_RECALL = re.compile(r"recall_at_[0-9]+")


def is_objective(metric: str) -> bool:
    """Whether an objective may use that metric."""
    return metric in OBJECTIVES or _RECALL.fullmatch(metric) is not None


def quality_direction(name: str, ops: Iterable[str]) -> Literal["higher", "lower", "neither"]:
    """Return which values of a quality are better that no recipe declares: by its name, else by the one operator
    `<=` or `>=` that objectives on it have."""
    if name in PROGRAM_QUALITIES:
        return "lower"
    if "recall" in name:
        return "higher"
    given = set(ops)
    if given == {">="}:
        return "higher"
    return "lower" if given == {"<="} else "neither"


def latency_limit_s(slos: Iterable[Slo]) -> float | None:
    """Return the shortest limit of objectives on whole replies; None without such an objective."""
    limits = (slo.limit for slo in slos if slo.op == "<=" and slo.metric.startswith(("latency_", "service_time_")))
    return min(limits, default=None)


def primary_metric(component: str, *, searched: bool, closed: bool) -> str:
    """Return the metric that answers a scenario's question unless it names others: the largest load of a search, the
    run time of a program, the median response time at a given rate, else the throughput."""
    if searched:
        return SEARCH_FOUND
    if component == "program":
        return RUN_TIME
    return "throughput" if closed else RESPONSE_TIME
