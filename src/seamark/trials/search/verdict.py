"""What a probe saw of the server, by its metrics.json, load.json and values of its requests; or that it saw nothing.

A probe that fails while the client was at its own limit says nothing; one that passes all the same does, since the
client's lateness is in the response times. One whose load was not what was asked for says nothing either way.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.analysis.metrics.objectives import value_of
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.load_record import LoadRecord
from seamark.trials.search.evidence import Limit, Seen, Values

OURS = ("client_bound", "client_cpu", "client_stalled", "loop_lag", "rate_not_sent", "shard_lost")
"""Reasons for which a load that fails may have failed by us."""
NOT_ASKED = ("rate_not_sent", "offered_rate_mismatch", "shard_lost", "client_underdriven", "timestamp_order")
"""Reasons for which a load was not the one that was asked for."""
THEIRS = ("saturated", "over_saturated", "error_rate", "no_replies", "unfinished", "wrong_answers")
"""Reasons for which a load fails whatever its objectives."""
SURE = ("over_saturated", "no_replies", "wrong_answers")
"""... and those of which one probe is enough. The watch for over-saturation is a test of its own."""
REFUSED = ("all_requests_failed", "timeout")
"""Failures of a load as a whole that are the server's answer to it."""
UNTOLD = ("server_died", "client_died", "no_samples")
"""... and those after which it is tried again. All others end the search."""

Document = Mapping[str, Any]


def ends_search(load: LoadRecord) -> bool:
    """Whether a load failed for a reason that the next probe would meet as well."""
    return not load.ok and load.category not in (*REFUSED, *UNTOLD)


def seen_of(metrics: Document, load: LoadRecord, values: Mapping[Limit, Values]) -> Seen:
    """Return what a probe saw. Objectives that there are `values` for are decided by these, with those of the level's
    other probes; the others by the probe's figures."""
    if metrics["status"] != "ok":
        text = f"{metrics['category']}: {metrics['reason']}"
        return Seen(against=(text,), sure=True) if metrics["category"] in REFUSED else Seen(void=text)
    reasons = {str(reason["code"]): str(reason["text"]) for reason in metrics["reasons"]}
    by_values = {limit.name for limit in values}
    others = [slo for slo in metrics["slos"] if _named(slo) not in by_values]
    missed, unknown = _objectives(others, metrics)
    allowed = {"error_rate"} if any(slo["metric"] == "error_rate" for slo in metrics["slos"]) else set()
    codes = [code for code in THEIRS if code in reasons.keys() - allowed]
    against = (*missed, *(reasons[code] for code in codes))
    ours = [reasons[code] for code in OURS if code in reasons]
    if "schedule_lag" in reasons and not _starved(load):
        ours.append(reasons["schedule_lag"])
    late, _ = _objectives([slo for slo in metrics["slos"] if _named(slo) in by_values], metrics)
    if ours and (against or late):
        return Seen(void=f"{'; '.join(ours)}. So it may be ours that {'; '.join((*against, *late))}")
    other = [reasons[code] for code in NOT_ASKED if code in reasons]
    if not against and (other or unknown):
        return Seen(void="; ".join((*other, *unknown)))
    return Seen(against=against, sure=any(code in SURE for code in codes), values=values)


def _named(slo: Document) -> str:
    return f"{slo['metric']} {slo['op']} {slo['limit']:g}"


def _objectives(slos: Sequence[Document], metrics: Document) -> tuple[Sequence[str], Sequence[str]]:
    """Return the objectives that are missed, and those of which it cannot be said.

    A percentile for which there are too few samples is met when the slowest request meets its limit.
    """
    missed, unknown = [], []
    for slo in slos:
        said = _named(slo)
        if slo["met"] is False:
            least = "at least " if slo.get("lower_bound") else ""
            missed.append(f"{said} is missed: {least}{slo['value']:.4g}")
        elif slo["met"] is None and slo["value"] is not None:
            unknown.append(
                f"{said} is not known: it is at least {slo['value']:.4g}, for requests timed out. Raise timeout_s"
            )
        elif slo["met"] is None and not _slowest_meets(slo, metrics):
            unknown.append(f"{said} is not known: {metrics['counts']['ok']} replies are too few. Raise duration_s")
    return missed, unknown


def _slowest_meets(slo: Document, metrics: Document) -> bool:
    name = str(slo["metric"])
    time = name.removesuffix("_s") if name in REQUEST_OBJECTIVES else name.removesuffix("_s").rpartition("_")[0]
    slowest = value_of(f"{time}_max_s", metrics)
    return slo["op"] == "<=" and slowest is not None and not slowest.lower_bound and slowest.value <= slo["limit"]


def _starved(load: LoadRecord) -> bool:
    """Whether requests waited since every connection was busy: then the server made them late."""
    return any((worker.backlog_max or 0) > 0 for worker in load.workers)
