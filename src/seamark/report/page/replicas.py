"""Blocks of a gateway and the replicas behind it: what it carries, what each served, what its prefix cache had."""

from collections.abc import Sequence
from statistics import median

from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.model.results.replicas import Replicas
from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import number, percent
from seamark.report.page.content import Content, Table, column, figures
from seamark.report.source import Results, ShownWorkload
from seamark.report.tables.by_treatment import factor_columns

HITS = "prefix_hit_ratio"
NOT_COUNTED = "the replica does not count it"
NOTE = (
    "Medians over the repetitions of the most used replica, the second, and so on, by their own counters, between the"
    " first and the last look at them in the measured window. Most over mean: 1 where each has as many requests."
)
GATEWAY_NOTE = (
    "Measured before the trials with replicas that answer at once, on these cores, which load and replicas used too:"
    " the highest rate with replies of one chunk, the most chunks of long replies, what one of the replicas reached"
    " without the gateway, and how much longer a request took through it (median, 95 % interval)."
)


def replica_blocks(workload: ShownWorkload) -> list[Table]:
    """Return what the gateways carry, and what the replicas of each treatment served, the most used one of each trial
    first; nothing without either."""
    gateways = _gateway_table(workload)
    rows: list[tuple[SummaryRow, str, Content, Content, Content, float | None]] = []
    for treatment in workload.treatments:
        found = replicas_of(workload.results, treatment)
        ranked = [sorted(one.by_replica.values(), key=lambda replica: -(replica.requests or 0.0)) for one in found]
        for rank in range(max(map(len, ranked), default=0)):
            own = [replicas[rank] for replicas in ranked if rank < len(replicas)]
            requests, share, hits = (
                median_of([getattr(replica, name) for replica in own]) for name in ("requests", "share", HITS)
            )
            rows.append((treatment, f"{rank + 1}", requests, share, "", hits))
        if found:
            uneven, hits = (median_of([getattr(one, name) for one in found]) for name in ("imbalance", HITS))
            rows.append((treatment, "all", "", "", uneven, hits))
    if not rows:
        return gateways
    treatments, names, requests_of, shares, most, hit = zip(*rows, strict=True)
    columns = [
        *factor_columns(treatments, workload.treatments),
        column("replica by use", names),
        figures("requests", requests_of, why=NOT_COUNTED, shown=lambda count: f"{count:,.0f}"),
        figures("share", shares, "%", why=NOT_COUNTED, shown=percent),
        figures("most over mean", most, why=NOT_COUNTED, shown=number),
    ]
    if any(ratio is not None for ratio in hit):
        title = "prompt tokens that the prefix cache had"
        columns.append(figures("prefix hits", hit, "%", title, why=NOT_COUNTED, shown=percent))
    return [*gateways, Table(columns=tuple(columns), caption=f"{workload.name}: replicas", footnotes=(NOTE,))]


def _gateway_table(workload: ShownWorkload) -> list[Table]:
    """Return a row for each gateway, named by the settings in which they differ; nothing without any."""
    found: list[GatewayCeiling] = []
    for treatment in workload.treatments:
        found += [gateway for gateway in gateways_of(workload.results, treatment) if gateway not in found]
    if not found:
        return []
    names = [name for name in found[0].asked if len({str(gateway.asked.get(name)) for gateway in found}) > 1]
    why = "; ".join(dict.fromkeys(gateway.reason for gateway in found if gateway.reason)) or "not measured"
    hops = [gateway.hop_interval_ms for gateway in found]
    columns = [
        *(column(name, [str(gateway.asked.get(name)) for gateway in found]) for name in names),
        figures("replicas", [f"{gateway.replicas}" for gateway in found]),
        *(
            figures(head, [getattr(gateway, name) for gateway in found], unit, why=why)
            for head, name, unit in (
                ("most requests", "requests_per_s", "1/s"),
                ("most chunks", "chunks_per_s", "1/s"),
                ("one replica alone", "direct_per_s", "1/s"),
                ("hop", "hop_ms", "ms"),
            )
        ),
        column("hop, interval", [hop and " to ".join(map(number, hop)) for hop in hops], why=why, unit="ms"),
    ]
    return [Table(columns=tuple(columns), caption=f"{workload.name}: gateway", footnotes=(GATEWAY_NOTE,))]


def gateways_of(results: Results, treatment: SummaryRow) -> list[GatewayCeiling]:
    """Return what was measured of the gateway of each of a treatment's good trials."""
    loads = [view.load for view in results.trials_of(treatment) if view.good]
    return [load.gateway for load in loads if load and load.gateway]


def replicas_of(results: Results, treatment: SummaryRow) -> list[Replicas]:
    """Return the replicas of a treatment's good trials."""
    return [view.good.replicas for view in results.trials_of(treatment) if view.good and view.good.replicas]


def median_of(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
