"""Blocks of the replicas behind a gateway: what each served, and what its prefix cache had."""

from collections.abc import Sequence
from statistics import median

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


def replica_blocks(workload: ShownWorkload) -> list[Table]:
    """Return what the replicas of each treatment served, the most used one of each trial first; nothing without
    replicas."""
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
        return []
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
    return [Table(columns=tuple(columns), caption=f"{workload.name}: replicas", footnotes=(NOTE,))]


def replicas_of(results: Results, treatment: SummaryRow) -> list[Replicas]:
    """Return the replicas of a treatment's good trials."""
    return [view.good.replicas for view in results.trials_of(treatment) if view.good and view.good.replicas]


def median_of(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
