"""Table of the stages that requests go through: a row for each treatment and stage."""

from collections.abc import Callable, Sequence
from statistics import median

from seamark.model.plurals import counted
from seamark.model.results.stages import StageFigures, Stages
from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import unit_of
from seamark.report.page.content import Cell, Column, Table, column, figures, known
from seamark.report.source import Results
from seamark.report.tables.by_treatment import factor_columns, figure_cell, ratio_cell

NOT_KNOWN = "withheld: too few visits (p99 needs 1,000), or not known"
NO_WAITS = "no wait for this stage was recorded"
OUTSIDE = "outside of stages"
NOTES = (
    "Medians over the repetitions, of requests that were due in the measured window and have a good reply. Busy: "
    "time in which the threads that run the stage ran it. Of the response: waiting and running, which may exceed "
    "100 % in sum where stages run at the same time. Critical path: the stages that the end of a request waited for, "
    "walked back from its end.",
)

Figure = Callable[[StageFigures], float | None]


def stages_table(results: Results, treatments: Sequence[SummaryRow], caption: str) -> Table | None:
    """Return visits, use, times and shares of each stage; None where no trial recorded events."""
    rows: list[tuple[SummaryRow, str, list[StageFigures]]] = []
    outside: list[Cell] = []
    for treatment in treatments:
        traced = stages_of(results, treatment)
        for name in dict.fromkeys(name for stages in traced for name in stages.by_stage):
            rows.append((treatment, name, [stages.by_stage[name] for stages in traced if name in stages.by_stage]))
            outside.append(Cell(text=""))
        if traced:
            rows.append((treatment, OUTSIDE, []))
            outside.append(ratio_cell(_median([stages.outside_ratio for stages in traced]), NOT_KNOWN))
    if not rows:
        return None

    def ratios(name: str, of: Figure, title: str) -> Column:
        return figures(
            name,
            [ratio_cell(_of(of_stage, of), NOT_KNOWN) if of_stage else "" for _, _, of_stage in rows],
            "%",
            title,
        )

    def times(name: str, of: Figure, why: str = NOT_KNOWN) -> Column:
        values = [_of(of_stage, of) for _, _, of_stage in rows]
        unit, factor = unit_of(values)
        cells = [
            figure_cell(None if value is None else factor * value, why) if of_stage else ""
            for value, (_, _, of_stage) in zip(values, rows, strict=True)
        ]
        return figures(name, cells, unit)

    critical = ratios("critical path", lambda stage: stage.critical_ratio, "of the response time")
    cells = [
        last if not of_stage else cell
        for (_, _, of_stage), cell, last in zip(rows, critical.cells, outside, strict=True)
    ]
    visits = [
        known(f"{_of(of_stage, lambda stage: stage.visits):,.0f}") if of_stage else "" for _, _, of_stage in rows
    ]
    events = sum(len(stages_of(results, treatment)) for treatment in treatments)
    return Table(
        columns=(
            *factor_columns([row for row, _, _ in rows], treatments),
            column("stage", [name for _, name, _ in rows]),
            figures("visits", visits),
            ratios("busy", lambda stage: stage.busy_ratio, "time in which its threads ran it"),
            times("run p50", lambda stage: stage.run_ms.p50),
            times("run p99", lambda stage: stage.run_ms.p99),
            times("wait p50", lambda stage: None if stage.wait_ms is None else stage.wait_ms.p50, NO_WAITS),
            times("wait p99", lambda stage: None if stage.wait_ms is None else stage.wait_ms.p99, NO_WAITS),
            ratios("of the response", lambda stage: stage.latency_ratio, "waiting and running"),
            figures("critical path", cells, "%", "of the response time"),
        ),
        caption=caption,
        footnotes=(*NOTES, f"Of {counted(events, 'trial')} with events."),
    )


def stages_of(results: Results, treatment: SummaryRow) -> list[Stages]:
    """Return the stages of a treatment's good trials that recorded events of counted requests."""
    traced = [view.good.stages for view in results.trials_of(treatment) if view.good and view.good.stages]
    return [stages for stages in traced if stages.requests]


def _of(own: Sequence[StageFigures], figure: Figure) -> float | None:
    return _median([figure(stage) for stage in own])


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
