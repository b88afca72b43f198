"""The values of every request that objectives are on, read from a probe's samples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.metrics.samples import Batch, DamagedError, Times, open_samples
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.sample import MISSING_NS
from seamark.model.scenario import Slo
from seamark.storage.paths import TrialFolder
from seamark.trials.search.evidence import Limit, Values

TIMES: Mapping[str, Callable[[Batch], tuple[Times, Times]]] = {
    "latency": lambda batch: (batch.due, batch.last),
    "service_time": lambda batch: (batch.sent, batch.last),
    "ttft": lambda batch: (batch.sent, batch.first),
    "ttft_response": lambda batch: (batch.due, batch.first),
}
"""From when to when each time of a request counts. Other times, such as TPOT, are no plain difference."""


def limits_of(slos: Sequence[Slo]) -> tuple[Limit, ...]:
    """Return the objectives that are decided request by request: upper limits on quantiles and means of times."""
    return tuple(limit for slo in slos if (limit := _limit(slo)) is not None)


def values_of(slos: Sequence[Slo], folder: TrialFolder, metrics: Mapping[str, Any]) -> dict[Limit, Values]:
    """Return the values of all requests that were due in a probe's window, in seconds, in the order of due times.

    A request without a good reply counts as infinitely late for a quantile, and in no mean. Empty where a probe has
    no figures or no samples that can be read.
    """
    limits, window = limits_of(slos), metrics.get("window") or {}
    if metrics["status"] != "ok" or not limits or window.get("start_s") is None:
        return {}
    start_ns, end_ns = round(window["start_s"] * 1e9), round(window["end_s"] * 1e9)
    due: list[Times] = []
    values: dict[Limit, list[Values]] = {limit: [] for limit in limits}
    try:
        for batch in open_samples(folder.samples).batches():
            inside = (batch.due >= start_ns) & (batch.due < end_ns)
            due.append(batch.due[inside])
            for limit in limits:
                values[limit].append(_values(limit, batch)[inside])
    except DamagedError:
        return {}
    order = np.argsort(np.concatenate(due), kind="stable")
    whole = {limit: np.concatenate(parts)[order] for limit, parts in values.items()}
    return {
        limit: found[np.isfinite(found)] if limit.statistic == "mean" else found[~np.isnan(found)]
        for limit, found in whole.items()
    }


def _limit(slo: Slo) -> Limit | None:
    written = f"{slo.metric} {slo.op} {slo.limit:g}"
    if slo.op != "<=":
        return None
    if slo.metric in REQUEST_OBJECTIVES:
        name, statistic = slo.metric.removesuffix("_s"), "p99"
    else:
        name, _, statistic = slo.metric.removesuffix("_s").rpartition("_")
    if name not in TIMES:
        return None
    if statistic == "mean":
        return Limit(name=written, statistic="mean", limit=slo.limit, of=name)
    if statistic not in QUANTILES:
        return None
    return Limit(name=written, statistic="quantile", limit=slo.limit, probability=QUANTILES[statistic], of=name)


def _values(limit: Limit, batch: Batch) -> Values:
    """Return a time of every request in seconds: infinite without a good reply, NaN where it has no such time."""
    begin, end = TIMES[limit.of](batch)
    took_s = np.where((begin != MISSING_NS) & (end != MISSING_NS), (end - begin) / 1e9, np.nan)
    return np.where(batch.good, took_s, np.inf)
