"""What a scenario asks for: the metrics that it compares, which stand first in its tables, and their figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.model.objectives import MAKESPAN, RUN_TIME, SEARCH_FOUND, primary_metric
from seamark.model.results.comparison import EQUAL_RATIO, Comparisons
from seamark.model.results.summary import Spread, SummaryRow
from seamark.model.results.times import Times
from seamark.model.service import Value
from seamark.model.trial import SERVICE
from seamark.report.numbers import (
    ABSENT,
    median_of,
    number,
    saturation_mark,
    statistic,
    time_unit,
    unit_of,
    unit_words,
)
from seamark.report.ordering import ORIGIN, SERVER

MOST = 3
"""Compared metrics that stand before all others."""
SCORE = "score"
"""Quality of services whose answers are judged."""
RESPONSE = "latency_ms"
"""Group of the response times, whose percentiles stay together."""


def asked_groups(comparisons: Comparisons | None, rows: Sequence[SummaryRow]) -> tuple[str, ...]:
    """Return what searches among the rows looked for, and the metrics by which treatments of the rows' workloads are
    compared; without a comparison the one that their load leaves open: the score of answers, the run time of a
    program, the makespan of a schedule, the response times at a given rate, else the throughput. Those of response
    times are one group of columns."""
    workloads = {row.workload for row in rows}
    compared = comparisons.comparisons if comparisons is not None else ()
    metrics = [SEARCH_FOUND for row in rows if row.search is not None]
    metrics += [
        comparison.metric for comparison in compared if comparison.in_family and comparison.workload in workloads
    ]
    metrics += [] if metrics else [known_by(row) for row in rows]
    first = list(dict.fromkeys(metrics))[:MOST]
    return tuple(dict.fromkeys(RESPONSE if name.startswith(f"{RESPONSE}.") else name for name in first))


def known_by(row: SummaryRow) -> str:
    """Return the metric that a treatment is known by where nothing is compared: what its load leaves open."""
    closed = row.config.get("pattern") in (None, "closed")
    of_load = primary_metric(row.component, searched=False, closed=closed)
    return next((name for name in (SCORE, RUN_TIME, MAKESPAN) if name in row.quality), of_load)


def figure_head(rows: Sequence[SummaryRow], metric: str) -> tuple[str, str]:
    """Return the name of a metric in the head of a column, and its unit, '' where none is known."""
    figures = [row.throughput for row in rows] if metric == "throughput" else [row.own.get(metric) for row in rows]
    name, unit = (
        metric.replace("_per_s", "").replace(".", " "),
        unit_words(next((figure.unit for figure in figures if figure), "")),
    )
    for ending, words in {"_ms": "ms", "_s": "s", "_j": "J", "_w": "W"}.items():
        group, _, rest = metric.partition(".")
        if group.endswith(ending) and not unit and not metric.endswith("_per_s"):
            name, unit = f"{group.removesuffix(ending)} {rest}", words
    if metric.endswith("_per_s"):
        unit = f"{metric.removesuffix('_per_s').rpartition('.')[2]}/s"
    return name.replace("_", " ").strip(), unit


def figure_column(rows: Sequence[SummaryRow], metric: str) -> tuple[str, str, list[str]]:
    """Return the head of a column, its unit, and the treatments' figures, with the marks of ranges and of saturated
    loads; an en dash where one is not known."""
    name, unit = figure_head(rows, metric)
    group, _, statistic_name = metric.partition(".")
    times = [found if isinstance(found := getattr(row, group, None), Times) else None for row in rows]
    if not any(times):
        values = [figure_of(row, metric) for row in rows]
        unit, factor = unit_of(values, unit)
        return name, unit, [number(None if value is None else factor * value) for value in values]
    unit, factor = time_unit(times, (statistic_name,))
    texts = [statistic(row_times, statistic_name, factor) for row_times in times]
    marks = [saturation_mark(row.codes) if text != ABSENT else "" for row, text in zip(rows, texts, strict=True)]
    return name, unit, [f"{text}{mark}" for text, mark in zip(texts, marks, strict=True)]


def figure_of(row: SummaryRow, metric: str) -> float | None:
    """Return a treatment's figure: the median over its trials, of times the percentile of all their requests."""
    group, _, statistic_name = metric.partition(".")
    figure = getattr(row, group, None)
    if isinstance(figure, Times):
        return figure.statistic(statistic_name)
    if metric == SEARCH_FOUND and row.search is not None:
        figure = row.search.found
    elif group == "energy" and statistic_name:
        figure = getattr(row.energy, statistic_name, None)
    elif metric in row.quality:
        return row.quality[metric]
    elif metric in row.own:
        return row.own[metric].median
    return median_of(figure) if isinstance(figure, Spread) else None


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Treatments of services under one load, the best first by the median of `metric`, at the levels that all
    `share`."""

    metric: str
    better: str
    shared: Mapping[str, Value]
    rows: Sequence[SummaryRow]


def rankings(comparisons: Comparisons | None, rows: Sequence[SummaryRow]) -> list[Ranking]:
    """Return the ranking of each combination of levels that the services compared in a workload share, by the first
    metric of their comparisons. Nothing where qualities differ and no objective says what is enough; without INVALID
    rows, and those that miss an objective."""
    workloads = {row.workload for row in rows}
    pairs = [
        comparison
        for comparison in (comparisons.comparisons if comparisons is not None else ())
        if comparison.factor == SERVICE and comparison.workload in workloads
    ]
    if not pairs:
        return []
    metric, better = pairs[0].metric, pairs[0].better
    own = {name for pair in pairs for side in (pair.base, pair.new) for name in side.own or ()}
    groups: dict[str, tuple[dict[str, Value], list[SummaryRow]]] = {}
    for row in rows:
        shared = {name: at for name, at in row.factors.items() if name not in {SERVICE, SERVER, ORIGIN, *own}}
        unit = row.throughput.unit if metric.startswith("throughput") else None
        if figure_of(row, metric) is not None and row.verdict != "INVALID" and meets(row):
            groups.setdefault(repr((shared, unit)), (shared, []))[1].append(row)
    sign = 1 if better == "lower" else -1
    return [
        Ranking(
            metric=metric,
            better=better,
            shared=shared,
            rows=sorted(found, key=lambda row: (sign * (figure_of(row, metric) or 0.0), row.treatment)),
        )
        for shared, found in groups.values()
        if _equal_in_quality(found)
    ]


def meets(row: SummaryRow) -> bool:
    """Return whether most trials of a treatment meet all objectives."""
    return all(2 * slo.met > slo.of > 0 for slo in row.slos)


def _equal_in_quality(rows: Sequence[SummaryRow]) -> bool:
    """Return whether recalls and scores differ by no more than speeds of equal quality may; those with an objective,
    which all rows meet, are equal enough."""
    limited = {slo.metric for row in rows for slo in row.slos}
    names = {name for row in rows for name in row.quality if name.startswith("recall") or name == SCORE} - limited
    known = [[value for row in rows if (value := row.quality.get(name)) is not None] for name in names]
    return all(max(values) - min(values) <= EQUAL_RATIO * max(values) for values in known if values)
