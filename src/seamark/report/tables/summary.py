"""Summary table of each workload, and the table of all trials."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.analysis.trial_view import TrialView
from seamark.model.objectives import SEARCH_FOUND
from seamark.model.origin import any_virtual
from seamark.model.plurals import counted
from seamark.model.results.comparison import Comparisons
from seamark.model.results.summary import SummaryRow, ThroughputSpread
from seamark.report.asked import RESPONSE, asked_groups, figure_column, rankings
from seamark.report.numbers import ABSENT, SEARCHED, bracket, median_of, number, span, unit_words
from seamark.report.ordering import ORIGIN, SERVER, mixture, trial_marks
from seamark.report.page.content import Cell, Column, Section, Table, Text, absent, column, figures, known, named
from seamark.report.source import Results, slug
from seamark.report.tables.by_treatment import (
    OVER_REPETITIONS,
    energy_table,
    errors_cell,
    factor_columns,
    kinds_table,
    notes_of,
    objectives_table,
    streams_table,
    time_columns,
)

MOST_QUALITIES, MOST_SIMULATED = 3, 6
"""Qualities with a column of their own; a simulated trial has its results there."""
WITHHELD = "withheld: too few samples in the measured window (p99 needs 1,000, p99.9 needs 10,000)"
NOT_MEASURED = "not measured: no trial of this treatment is ok"
FOOTNOTE = (
    "– : no number is given. A percentile is withheld where too few samples support it "
    "(p99 needs 1,000 in the measured window, p99.9 needs 10,000); it is not zero."
)


def summary_section(results: Results) -> Section:
    """Return the summary tables, one for each workload, under its service."""
    services = []
    for service, workloads in results.services.items():
        tables: list[Table] = []
        for workload in workloads:
            besides = (streams_table, kinds_table, objectives_table, energy_table)
            extra = [table for table_of in besides if (table := table_of(workload.treatments))]
            own = [workload_table(workload.treatments, results.summary.comparisons), *extra]
            tables += [_named(table, workload.name) for table in own] if len(workloads) > 1 else own
        services.append(Section(id=f"results-{slug(service)}", title=service, blocks=tuple(tables)))
    blocks = () if services else (Text(text="There is no treatment in the summary.", kind="warning"),)
    if warning := mixture(results.summary):
        blocks = (Text(text=warning, kind="warning"), *blocks)
    return Section(id="results", title="Summary", blocks=blocks, sections=tuple(services))


def _named(table: Table, workload: str) -> Table:
    """Return a table with its workload in the caption."""
    caption = f"{workload}: {table.caption[0].lower()}{table.caption[1:]}" if table.caption else workload
    return replace(table, caption=caption)


def workload_table(treatments: Sequence[SummaryRow], comparisons: Comparisons | None = None) -> Table:
    """Return a row for each treatment: its factors, what the scenario compares, then throughput, response times,
    errors and quality as far as they are not among that, and the verdict.

    A program has all of its figures, and no percentiles: a trial is one run.
    """
    asked = asked_groups(comparisons, treatments)
    is_program = treatments[0].component == "program"
    qualities, alike = (
        (list(dict.fromkeys(name for t in treatments for name in t.quality)), "")
        if is_program
        else qualities_of(treatments, MOST_SIMULATED if treatments[0].virtual_clock else MOST_QUALITIES)
    )
    metrics = {name: metric for t in treatments for name, metric in t.own.items()}
    unit = next((t.throughput.unit for t in treatments if t.throughput.unit), "")
    searched = next((t.search.setting for t in treatments if t.search), None)
    most = max((t.throughput.median for t in treatments if t.throughput.median), default=None)
    spans = [span(t.throughput.min, t.throughput.max) if t.repetitions else None for t in treatments]
    groups: dict[str, list[Column]] = {name: [] for name in asked}
    if searched:
        brackets = [bracket(t.search) for t in treatments]
        labels = SEARCHED[searched], "found; median of repetitions"
        loads = [t.search.found.median if t.search else None for t in treatments]
        groups[SEARCH_FOUND] = [
            figures("largest load", loads, *labels, why="no repetition found a load that meets the objectives"),
            figures("between", brackets, "", "the bracket of the search, with its confidence"),
        ]
    units = unit_words(unit)
    rates = [_throughput(t.throughput, unit, most) for t in treatments]
    groups["throughput"] = [
        figures("throughput", rates, units, OVER_REPETITIONS),
        figures("min – max", spans, units, "over the repetitions", why=NOT_MEASURED),
    ]
    bandwidth = [median_of(t.bandwidth_mb_per_s) for t in treatments]
    if any(value is not None for value in bandwidth):
        groups["bandwidth"] = [figures("bandwidth", bandwidth, "MB/s", "10^6 bytes a second", why="not known")]
    if not is_program:
        pooled = "response time, all repetitions pooled (histograms, within 0.5 %)"
        rows = [(t.latency_ms, t.codes, WITHHELD if t.repetitions else NOT_MEASURED) for t in treatments]
        groups[RESPONSE] = time_columns(("p50", "p95", "p99"), rows, title=pooled)
    errors = [errors_cell(t.errors, NOT_MEASURED) for t in treatments]
    groups["errors"] = [figures("errors", errors, "%", "failed requests of those sent")]
    for name in (*(name for name in asked if any(name in t.quality for t in treatments)), *qualities):
        values = [t.quality.get(name) for t in treatments]
        groups[name] = [figures(name.replace("_", " "), values, "", OVER_REPETITIONS, why="not measured")]
    for name, metric in metrics.items():
        values = [t.own[name].median if name in t.own else None for t in treatments]
        groups[name] = [figures(name.replace("_", " "), values, metric.unit, metric.meaning, why="not measured")]
    for name in (name for name in asked if not groups[name]):
        head, unit_of_it, texts = figure_column(treatments, name)
        given = [None if text == ABSENT else text for text in texts]
        groups[name] = [figures(head, given, unit_of_it, OVER_REPETITIONS, why=NOT_MEASURED)]
    columns = [
        *factor_columns(treatments, treatments),
        *_places(treatments, comparisons),
        *(table_column for group in groups.values() for table_column in group),
        figures("ok", [_complete(t) for t in treatments], "of n", "repetitions with a result, of those planned"),
        column("verdict", [_verdict(t) for t in treatments], title="the worst of the repetitions"),
    ]
    missing = any(cell.title == WITHHELD for table_column in columns for cell in table_column.cells)
    notes = (*((alike,) if alike else ()), *((FOOTNOTE,) if missing else ()), *notes_of(columns))
    return Table(columns=tuple(columns), footnotes=notes)


def _places(treatments: Sequence[SummaryRow], comparisons: Comparisons | None) -> list[Column]:
    """Return a column that marks the best, the median and the worst of services at the same levels of other factors,
    by the first metric that they are compared by; none for one service."""
    ranked = rankings(comparisons, treatments)
    if not ranked:
        return []
    marks: dict[str, str] = {}
    for names in ([row.treatment for row in ranking.rows] for ranking in ranked):
        marks |= {names[len(names) // 2]: "median"} if len(names) % 2 and len(names) > 1 else {}
        marks |= {names[0]: "best", names[-1]: "worst"} if len(names) > 1 else {}
    title = f"by {ranked[0].metric}, of those at the same levels that meet the objectives; comparisons say how sure"
    return [column("place", [marks.get(row.treatment, "") for row in treatments], title=title)]


def _verdict(treatment: SummaryRow) -> Cell:
    reasons = "; ".join(f"{reason.code} ({reason.count})" for reason in treatment.reasons)
    return Cell(text=treatment.verdict, kind="verdict", title=reasons or None)


def qualities_of(treatments: Sequence[SummaryRow], most: int = MOST_QUALITIES) -> tuple[list[str], str]:
    """Return the qualities that get a column, those that vary and any recall, and a line about the others."""
    values: dict[str, list[float]] = {}
    for treatment in treatments:
        for name, value in treatment.quality.items():
            if value is not None:
                values.setdefault(name, []).append(value)
    shown = [name for name, measured in values.items() if "recall" in name or len(set(measured)) > 1][:most]
    rest = {name: measured for name, measured in values.items() if name not in shown}
    said = ", ".join(f"{name} = {span(min(measured), max(measured))}" for name, measured in rest.items())
    return shown, f"Quality, as named in metrics.json: {said}." if said else ""


def origin_columns(trials: Sequence[TrialView] | Sequence[SummaryRow]) -> list[Column]:
    """Return a column of the origin where trials, or treatments, are simulated."""
    return [column(ORIGIN, [trial.origin for trial in trials])] if any_virtual(trials) else []


def _complete(treatment: SummaryRow) -> Cell:
    done, planned = treatment.repetitions, treatment.planned
    text = f"{done} / {planned or ABSENT}"
    return known(text) if done == planned else Cell(text=text, kind="short", title="some repetitions have no result")


def _throughput(throughput: ThroughputSpread, unit: str, most: float | None) -> Cell:
    """Return the median, with a bar of its share of the `most`; with its own unit where that is not the column's."""
    middle, own_unit = throughput.median, throughput.unit
    if middle is None:
        return absent(NOT_MEASURED)
    if own_unit != unit:
        return known(f"{number(middle)} {unit_words(own_unit)}")
    return known(number(middle), share=middle / most if most else None)


def trials_section(results: Results, most: int = 400) -> Section:
    """Return the table of all trials in the order of the run."""

    def place(view: TrialView) -> tuple[bool, str, int, int]:
        return view.started_at is None, view.started_at or "", view.trial.block, view.trial.position

    ordered = sorted(results.trials, key=place)
    days = {view.started_at[:10] for view in ordered if view.started_at}
    clock = slice(11, 19) if len(days) == 1 else slice(0, 19)
    servers = trial_marks(results.summary)
    shown = ordered[:most]
    measured = [view.metrics for view in shown]
    columns = [column("trial", named([trial.id for trial in shown], results.names))]
    columns += origin_columns(shown)
    if servers:
        columns.append(column(SERVER, [servers.get(trial.id, ABSENT) for trial in shown]))
    started = [view.started_at.replace("T", " ")[clock] if view.started_at else ABSENT for view in shown]
    windows = [" – ".join(f"{round(end, 3):g}" for end in t.window_s) if t.window_s else None for t in shown]
    times = [
        (view.metrics.latency_ms if view.metrics else None, view.codes, WITHHELD if view.ok else "no result")
        for view in shown
    ]
    why = [", ".join(t.codes) or None if t.ok else t.category for t in shown]
    verdicts = [
        Cell(text=t.verdict if t.ok else t.status, kind="verdict", title=title)
        for t, title in zip(shown, why, strict=True)
    ]
    columns += [
        figures("block", [str(view.trial.block) for view in shown]),
        figures("position", [str(view.trial.position) for view in shown]),
        column("started", started, "time", unit=days.pop() if len(days) == 1 else ""),
        figures("throughput", [m.throughput.value if m else None for m in measured], why="no result"),
        column("unit", [unit_words(m.throughput.unit if m else "") for m in measured]),
        *time_columns(("p50", "p99"), times),
        figures("errors", [errors_cell(m.errors, "no result") if m else absent("no result") for m in measured], "%"),
        figures("window", windows, "s", "measured window, from the start of the load", why="no window"),
        column("verdict", verdicts),
    ]
    more = len(ordered) - len(shown)
    left_out = (f"In the results' summary: {counted(more, 'more trial')}.",) if more else ()
    table = Table(columns=tuple(columns), footnotes=(FOOTNOTE, *notes_of(columns), *left_out))
    return Section(id="trials", title="All trials", blocks=(table,))
