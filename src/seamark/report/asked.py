"""What a scenario asks for: the metrics that it compares, which stand first in its tables, and their figures."""

from collections.abc import Sequence

from seamark.analysis.comparison.metric_names import RUN_TIME
from seamark.model.objectives import MAKESPAN, SEARCH_FOUND
from seamark.model.results.comparison import Comparisons
from seamark.model.results.summary import Spread, SummaryRow
from seamark.model.results.times import Times
from seamark.report.numbers import ABSENT, number, saturation_mark, statistic, unit_words

MOST = 3
"""Compared metrics that stand before all others."""
SCORE = "score"
"""Quality of services whose answers are judged."""
RESPONSE = "latency_ms"
"""Group of the response times, whose percentiles stay together."""


def asked_metrics(comparisons: Comparisons | None, rows: Sequence[SummaryRow]) -> tuple[str, ...]:
    """Return what searches among the rows looked for, and the metrics by which treatments of the rows' workloads are
    compared; without a comparison the one that their load leaves open: the score of answers, the run time of a
    program, the makespan of a schedule, the response times at a given rate, else the throughput."""
    workloads = {row.workload for row in rows}
    compared = comparisons.comparisons if comparisons is not None else ()
    found = [SEARCH_FOUND for row in rows if row.search is not None]
    found += [one.metric for one in compared if one.in_family and one.workload in workloads]
    found += [] if found else [_left_open(row) for row in rows]
    return tuple(dict.fromkeys(found))[:MOST]


def asked_groups(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics as groups of columns: those of response times are one."""
    return tuple(dict.fromkeys(RESPONSE if name.startswith(f"{RESPONSE}.") else name for name in metrics))


def _left_open(row: SummaryRow) -> str:
    for name in (SCORE, RUN_TIME, MAKESPAN):
        if name in row.quality:
            return name
    return "throughput" if row.config.get("pattern") in (None, "closed") else f"{RESPONSE}.p50"


def figure_head(rows: Sequence[SummaryRow], metric: str) -> tuple[str, str]:
    """Return the name of a metric in the head of a column, and its unit, '' where none is known."""
    own = next((row.own[metric] for row in rows if metric in row.own), None)
    name, unit = metric.replace("_per_s", "").replace(".", " "), "" if own is None else unit_words(own.unit)
    for ending, words in {"_ms": "ms", "_s": "s", "_j": "J", "_w": "W"}.items():
        group, _, rest = metric.partition(".")
        if group.endswith(ending) and not unit and not metric.endswith("_per_s"):
            name, unit = f"{group.removesuffix(ending)} {rest}", words
    if metric.endswith("_per_s"):
        unit = f"{metric.removesuffix('_per_s').rpartition('.')[2]}/s"
    return name.replace("_", " ").strip(), unit


def figure_text(row: SummaryRow, metric: str) -> str:
    """Return a treatment's figure: the median over its trials, of times the percentile of all their requests, with
    the marks of a lower bound and of a saturated load; an en dash where it is not known."""
    group, _, statistic_name = metric.partition(".")
    found = getattr(row, group, None)
    if isinstance(found, Times) and statistic_name:
        return f"{statistic(found, statistic_name)}{saturation_mark(row.codes)}"
    if metric == SEARCH_FOUND and row.search is not None:
        found = row.search.found
    elif group == "energy" and statistic_name:
        found = getattr(row.energy, statistic_name, None)
    elif metric in row.own:
        return number(row.own[metric].median)
    elif metric in row.quality:
        return number(row.quality[metric])
    return number(found.median) if isinstance(found, Spread) else ABSENT
