"""The observation of a probe: its load and the values of its requests against the objectives, or why it is void.

A probe that misses objectives while the client was at its own limit is void; one that meets them is not, since the
client's lateness is in the response times. A probe whose load was not the one planned is void either way.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seamark.analysis.metrics.distribution import QUANTILES
from seamark.analysis.metrics.objectives import value_of
from seamark.analysis.metrics.samples import Batch, DamagedError, Times, open_samples
from seamark.analysis.metrics.window_counts import Unanswered
from seamark.model.failure_categories import ALL_FAILED
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import ObjectiveResult, TrialMetrics
from seamark.model.sample import MISSING_NS
from seamark.model.scenario import Slo
from seamark.storage.paths import TrialFolder
from seamark.trials.search.largest_load import Limit, ProbeObservation, Values

CLIENT_FAULTS = ("client_bound", "client_cpu", "client_stalled", "loop_lag", "rate_not_sent", "shard_lost")
"""Codes of a client at its limit: missed objectives may then be the client's fault."""
OTHER_LOAD = ("rate_not_sent", "offered_rate_mismatch", "shard_lost", "client_underdriven", "timestamp_order")
"""Codes of a load that deviated from the plan."""
SERVER_FAULTS = ("saturated", "over_saturated", "error_rate", "no_replies", "unfinished", "wrong_answers")
"""Codes with which a load fails whatever its objectives."""
DECISIVE = ("over_saturated", "no_replies", "wrong_answers")
"""Of these, codes for which one probe suffices: the detection of over-saturation is a test of its own."""
REFUSED = (ALL_FAILED, "timeout")
"""Categories of failed loads that are the server's answer."""
UNKNOWN_CAUSE = ("server_died", "client_died", "no_samples")
"""Of these, categories after which the probe is repeated. All others end the search."""

TIMES: Mapping[str, Callable[[Batch], tuple[Times, Times]]] = {
    "latency": lambda batch: (batch.due, batch.last),
    "service_time": lambda batch: (batch.sent, batch.last),
    "ttft": lambda batch: (batch.sent, batch.first),
    "ttft_response": lambda batch: (batch.due, batch.first),
}
"""Start and end of each time of a request. Other times, such as TPOT, are not plain differences."""


def ends_search(load: LoadRecord) -> bool:
    """Whether a load failed for a reason that would also affect the next probe."""
    return not load.ok and load.category not in (*REFUSED, *UNKNOWN_CAUSE)


def observation_of(metrics: TrialMetrics, load: LoadRecord, values: Mapping[Limit, Values]) -> ProbeObservation:
    """Return the observation of a probe. Objectives with `values` are decided by these and by those of the level's
    other probes; the others by the probe's figures."""
    if not metrics.ok:
        text = f"{metrics.category}: {metrics.reason}"
        return (
            ProbeObservation(against=(text,), sure=True)
            if metrics.category in REFUSED
            else ProbeObservation(void=text)
        )
    reasons = {reason.code: reason.text for reason in metrics.reasons}
    by_values = {limit.name for limit in values}
    others = [slo for slo in metrics.slos if _named(slo) not in by_values]
    missed, unknown = _objectives(others, metrics)
    allowed = {"error_rate"} if any(slo.metric == "error_rate" for slo in metrics.slos) else set()
    codes = [code for code in SERVER_FAULTS if code in reasons.keys() - allowed]
    against = (*missed, *(reasons[code] for code in codes))
    ours = [reasons[code] for code in CLIENT_FAULTS if code in reasons]
    # where requests waited because every connection was busy, the server delayed them
    if "schedule_lag" in reasons and not any((worker.backlog_max or 0) > 0 for worker in load.workers):
        ours.append(reasons["schedule_lag"])
    late, _ = _objectives([slo for slo in metrics.slos if _named(slo) in by_values], metrics)
    late = late or [
        f"{limit.name} is missed by its requests" for limit, times in values.items() if _late(limit, times)
    ]
    if ours and (against or late):
        return ProbeObservation(
            void=f"{'; '.join(ours)}. The client may be the cause of: {'; '.join((*against, *late))}"
        )
    other = [reasons[code] for code in OTHER_LOAD if code in reasons]
    if not against and (other or unknown):
        return ProbeObservation(void="; ".join((*other, *unknown)))
    bounds = {_named(slo) for slo in metrics.slos if slo.known and slo.known.high is None}
    return ProbeObservation(
        against=against,
        sure=any(code in DECISIVE for code in codes),
        values=values,
        bounded=frozenset(limit for limit in values if limit.statistic == "mean" and limit.name in bounds),
    )


def _late(limit: Limit, values: Values) -> bool:
    """Whether the values of a probe themselves miss a limit, sure or not."""
    if not len(values):
        return False
    return float(values.mean() if limit.statistic == "mean" else np.mean(values > limit.limit)) > limit.most


def _named(slo: ObjectiveResult | Slo) -> str:
    return f"{slo.metric} {slo.op} {slo.limit:g}"


def _objectives(slos: Sequence[ObjectiveResult], metrics: TrialMetrics) -> tuple[Sequence[str], Sequence[str]]:
    """Return the missed objectives, and the undecidable ones.

    A percentile with too few samples is met if the slowest request meets its limit.
    """
    missed, unknown = [], []
    remedy = "Raise timeout_s" if metrics.counts.timeouts else "Raise duration_s"
    for slo in slos:
        said = _named(slo)
        if slo.met is False:
            missed.append(f"{said} is missed" + (f": {slo.known.text}" if slo.known else ""))
        elif slo.met is None and not _slowest_meets(slo, metrics) and slo.known is not None:
            unknown.append(f"{said} is not known: it is {slo.known.text}. {remedy}")
        elif slo.met is None and not _slowest_meets(slo, metrics):
            unknown.append(f"{said} is not known: {metrics.counts.ok} replies are too few. Raise duration_s")
    return missed, unknown


def _slowest_meets(slo: ObjectiveResult, metrics: TrialMetrics) -> bool:
    name = slo.metric
    time = name.removesuffix("_s") if name in REQUEST_OBJECTIVES else name.removesuffix("_s").rpartition("_")[0]
    slowest = value_of(f"{time}_max_s", metrics)
    return slo.op == "<=" and slowest is not None and slowest.meets(slo.op, slo.limit) is True


def values_of(slos: Sequence[Slo], folder: TrialFolder, metrics: TrialMetrics) -> dict[Limit, Values]:
    """Return the values of all requests due in a probe's window, in seconds, in the order of due times.

    A request without a good reply counts as infinitely late for a quantile. In a mean one without any answer has the
    time that it waited, which is less than its truth, and one that failed otherwise has none. Empty if a probe has no
    metrics or no readable samples.
    """
    limits = [limit for slo in slos if (limit := _limit(slo)) is not None]
    start_s, end_s = metrics.window.start_s, metrics.window.end_s
    if not metrics.ok or not limits or start_s is None or end_s is None:
        return {}
    start_ns, end_ns = round(start_s * 1e9), round(end_s * 1e9)
    due: list[Times] = []
    values: dict[Limit, list[Values]] = {limit: [] for limit in limits}
    try:
        for batch in open_samples(folder.samples).batches():
            inside = (batch.due >= start_ns) & (batch.due < end_ns)
            due.append(batch.due[inside])
            for limit in limits:
                values[limit].append(_values(limit, batch, end_ns)[inside])
    except DamagedError:
        return {}
    order = np.argsort(np.concatenate(due), kind="stable")
    whole = {limit: np.concatenate(parts)[order] for limit, parts in values.items()}
    return {
        limit: times[np.isfinite(times)] if limit.statistic == "mean" else times[~np.isnan(times)]
        for limit, times in whole.items()
    }


def _limit(slo: Slo) -> Limit | None:
    """Return an objective that is decided by single requests: an upper limit on a quantile or mean of a time; else
    None."""
    written = _named(slo)
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


def _values(limit: Limit, batch: Batch, end_ns: int) -> Values:
    """Return a time of every request in seconds: NaN without such a time; without a good reply infinite, or for a
    mean what it waited."""
    begin, end = TIMES[limit.of](batch)
    took_s = np.where((begin != MISSING_NS) & (end != MISSING_NS), (end - begin) / 1e9, np.nan)
    if limit.statistic != "mean":
        return np.where(batch.good, took_s, np.inf)
    unanswered = Unanswered(batch, end_ns)
    waited_s = np.where(begin != MISSING_NS, np.maximum(unanswered.until - begin, 0) / 1e9, np.nan)
    return np.where(batch.good, took_s, np.where(unanswered.rows, waited_s, np.nan))
