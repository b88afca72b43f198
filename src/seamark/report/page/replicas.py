"""Blocks of the replicas behind a gateway: what each served, and what its prefix cache had."""

from collections.abc import Callable, Sequence
from statistics import median

from seamark.model.results.replicas import ReplicaFigures, Replicas
from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import number, percent
from seamark.report.page.content import Table, column, figures
from seamark.report.source import Results, ShownWorkload
from seamark.report.tables.by_treatment import factor_columns

ALL = "all"
NOT_COUNTED = "the replica does not count it"
NOTES = (
    "Medians over the repetitions, by the counters of the replicas themselves, interpolated at the edges of the"
    " measured window. Of all: the most requests of one replica over their mean, 1 where each has as many.",
)


def replica_blocks(workload: ShownWorkload) -> list[Table]:
    """Return what the replicas of each treatment served; nothing without replicas."""
    rows: list[tuple[SummaryRow, str, list[ReplicaFigures], list[Replicas]]] = []
    for treatment in workload.treatments:
        found = replicas_of(workload.results, treatment)
        for name in dict.fromkeys(each.name for replicas in found for each in replicas.each):
            own = [each for replicas in found for each in replicas.each if each.name == name]
            rows.append((treatment, name, own, []))
        if found:
            rows.append((treatment, ALL, [], found))
    if not rows:
        return []

    def values(of: Callable[[ReplicaFigures], float | None]) -> list[float | None]:
        return [_median([of(each) for each in own]) for _, _, own, _ in rows]

    hits = [_median([each.prefix_hit_ratio for each in (*own, *together)]) for _, _, own, together in rows]
    uneven = [_median([replicas.imbalance for replicas in together]) for _, _, _, together in rows]
    given = [
        value if own else "" for (_, _, own, _), value in zip(rows, values(lambda each: each.requests), strict=True)
    ]
    shares = [
        value if own else "" for (_, _, own, _), value in zip(rows, values(lambda each: each.share), strict=True)
    ]
    most = [value if together else "" for (_, _, _, together), value in zip(rows, uneven, strict=True)]
    columns = [
        *factor_columns([row for row, _, _, _ in rows], workload.treatments),
        column("replica", [name for _, name, _, _ in rows]),
        figures("requests", given, why=NOT_COUNTED, shown=lambda count: f"{count:,.0f}"),
        figures("share", shares, "%", why=NOT_COUNTED, shown=percent),
        figures("most over mean", most, why=NOT_COUNTED, shown=number),
    ]
    if any(hit is not None for hit in hits):
        title = "prompt tokens that the prefix cache had"
        columns.append(figures("prefix hits", hits, "%", title, why=NOT_COUNTED, shown=percent))
    return [Table(columns=tuple(columns), caption=f"{workload.name}: replicas", footnotes=NOTES)]


def replicas_of(results: Results, treatment: SummaryRow) -> list[Replicas]:
    """Return the replicas of a treatment's good trials."""
    return [view.good.replicas for view in results.trials_of(treatment) if view.good and view.good.replicas]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
