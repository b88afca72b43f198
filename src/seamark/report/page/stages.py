"""Blocks of the stages that requests go through: a Gantt chart of single requests, and figures of each stage."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from seamark.model.plurals import counted
from seamark.model.results.stages import StageFigures, Stages, TracedRequest
from seamark.model.results.summary import SummaryRow
from seamark.report.figures.canvas import COLOURS, INK, MUTED, drawing, picture_of, plain_numbers
from seamark.report.figures.timelines import representative
from seamark.report.numbers import levels_text, number, percent, unit_of, with_unit
from seamark.report.page.content import Block, Column, Content, Picture, Table, Text, column, figures
from seamark.report.page.replicas import median_of
from seamark.report.source import Results, ShownWorkload
from seamark.report.tables.by_treatment import factor_columns

NOT_KNOWN = "withheld: too few visits (p99 needs 1,000), or not known, as of a stage without events"
NO_WAITS = "no wait for this stage was recorded"
NO_BLOCKS = "it could hand on at once"
NO_FIRST = "no first unit was recorded here"
NOTES = (
    "Medians over the repetitions, of requests that were due in the measured window and have a good reply. Busy: "
    "time in which the threads that run the stage ran it. Of the response: waiting and running, which may exceed "
    "100 % in sum where stages run at the same time. Critical path: the stages that the end of a request waited for, "
    "walked back from its end. First unit: from the time at which the request was due.",
)

Figure = Callable[[StageFigures], float | None]

LOOKS: dict[str, dict[str, Any]] = {
    "wait": {"facecolor": "#dfe3e8", "hatch": "///"},
    "prepare": {"facecolor": COLOURS[4], "hatch": "..."},
    "run": {"facecolor": COLOURS[0]},
    "blocked": {"facecolor": COLOURS[1], "hatch": "xxx"},
}
MOMENT = "first_unit"
BAR = 0.62
ALWAYS_BUSY, SELDOM_BUSY = 0.9, 0.7
MOST_NAMED = 6


def stages_blocks(workload: ShownWorkload) -> list[Block]:
    """Return a typical and a slow request of the representative treatment, and the stages of all of them."""
    drawn = {
        row.treatment: [stages for stages in stages_of(workload.results, row) if stages.examples]
        for row in workload.treatments
    }
    treatment = representative(workload.results, [row for row in workload.treatments if drawn[row.treatment]])
    pictures = [] if treatment is None else [_picture(workload, treatment, drawn[treatment.treatment][0])]
    return [_bottlenecks(workload), *_hidden(workload), *pictures, _table(workload)]


def _hidden(workload: ShownWorkload) -> list[Text]:
    """Return how much of the response time of each treatment is that of stages outside of the timed region."""
    lines = []
    for row in workload.treatments:
        shares = [
            100 * stages.hidden_ratio
            for stages in stages_of(workload.results, row)
            if stages.hidden_ratio is not None
        ]
        if shares:
            name = f"{levels_text(row.factors)}: " if len(workload.treatments) > 1 else ""
            span = (
                f" ({min(shares):.3g} to {max(shares):.3g} in {len(shares)} repetitions)" if len(shares) > 1 else ""
            )
            lines.append(f"{name}{median(shares):.3g} %{span}")
    if not lines:
        return []
    text = "Outside of the timed region, on the critical path, as a share of the response time"
    return [Text(text=f"{text}: {'; '.join(lines[:MOST_NAMED])}.")]


def first_bottlenecks(results: Results) -> str:
    """Return which stage the treatments of each workload wait for, as a sentence; nothing without stages."""
    texts = []
    for workload in (each for workloads in results.services.values() for each in workloads):
        if lines := _bottleneck_lines(workload):
            names = "; ".join(lines[:MOST_NAMED]) + ("; ..." if len(lines) > MOST_NAMED else "")
            texts.append(f"{workload.name}: {names}")
    return f"Bottlenecks: {'; '.join(texts)}." if texts else ""


def _bottlenecks(workload: ShownWorkload) -> Text:
    """Return which stage each treatment waits for."""
    lines = _bottleneck_lines(workload)
    more = f"; and {len(lines) - MOST_NAMED} more treatments" if len(lines) > MOST_NAMED else ""
    return Text(text=f"Bottleneck: {'; '.join(lines[:MOST_NAMED])}{more}.")


def _bottleneck_lines(workload: ShownWorkload) -> list[str]:
    lines = []
    for row in workload.treatments:
        traced = stages_of(workload.results, row)
        if traced:
            is_open = not workload.results.trials_of(row)[0].trial.load.closed
            name = levels_text(row.factors) if len(workload.treatments) > 1 else ""
            lines.append(f"{f'{name}: ' if name else ''}{bottleneck_text(traced, is_open=is_open)}")
    return lines


def bottleneck_text(traced: Sequence[Stages], *, is_open: bool) -> str:
    """Return the stage whose threads are busiest, from ALWAYS_BUSY on; else the one with the largest share of the
    critical path. No stage where arrivals decide the rate (`is_open`) and none is busy SELDOM_BUSY of the time."""
    silent = ", ".join(dict.fromkeys(name for stages in traced for name in stages.without_events))
    return f"{_bottleneck(traced, is_open=is_open)}{f'; without the events of {silent}' if silent else ''}"


def _bottleneck(traced: Sequence[Stages], *, is_open: bool) -> str:
    names = dict.fromkeys(name for stages in traced for name in stages.by_stage)
    own = {name: [stages.by_stage[name] for stages in traced if name in stages.by_stage] for name in names}
    busy = {name: median_of([stage.busy_ratio for stage in found]) or 0.0 for name, found in own.items()}
    critical = {name: median_of([stage.critical_ratio for stage in found]) or 0.0 for name, found in own.items()}
    busiest, longest = max(busy, key=lambda name: busy[name]), max(critical, key=lambda name: critical[name])
    if busy[busiest] >= ALWAYS_BUSY:
        return f"{busiest} ({percent(busy[busiest])} % busy)"
    if is_open and busy[busiest] < SELDOM_BUSY:
        return f"none, as no stage is busy {percent(SELDOM_BUSY)} % of the time"
    return f"{longest} ({percent(critical[longest])} % of the response time on the critical path)"


def _picture(workload: ShownWorkload, treatment: SummaryRow, stages: Stages) -> Picture:
    bars = [bar for example in stages.examples for bar in example.bars]
    names = [name for name in stages.by_stage if any(bar.stage == name for bar in bars)]
    kinds = [kind for kind in LOOKS if any(bar.what == kind for bar in bars)]
    unit, factor = unit_of([example.response_ms for example in stages.examples])
    with drawing(8.4, len(stages.examples) * (0.75 + 0.3 * len(names)) + 0.4) as figure:
        axes = figure.subplots(len(stages.examples), 1, squeeze=False)[:, 0]
        for axis, request in zip(axes, stages.examples, strict=True):
            _draw(axis, request, names, factor)
        axes[-1].set_xlabel(f"{unit} from the time at which the request was due")
        handles = [Patch(label=kind, edgecolor="white", **LOOKS[kind]) for kind in kinds]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        factors = levels_text(treatment.factors)
        cut = [example for example in stages.examples if example.events > len(example.bars)]
        return picture_of(
            figure,
            f"{workload.stem}-stages",
            alt=f"{workload.name}: stages of a typical and of a slow request",
            caption=f"{workload.name}{': ' + factors if factors else ''}. The requests whose response times are "
            "nearest to the quantiles, stage by stage; the line is the end of the request."
            + (f" Only the first {counted(len(cut[0].bars), 'event')} of a request are drawn." if cut else ""),
        )


def _draw(axis: Axes, request: TracedRequest, names: Sequence[str], factor: float) -> None:
    for index, name in enumerate(names):
        for bar in (bar for bar in request.bars if bar.stage == name):
            if bar.what == MOMENT:
                axis.plot([factor * bar.end_ms], [index], marker="|", color=INK, ms=9)
            elif bar.what in LOOKS:
                begin, length = factor * bar.begin_ms, factor * (bar.end_ms - bar.begin_ms)
                axis.barh(index, length, BAR, begin, edgecolor="white", lw=0.4, **LOOKS[bar.what])
    axis.axvline(factor * request.response_ms, color=MUTED, ls=":", lw=1)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(min([0.0, *(factor * bar.begin_ms for bar in request.bars)]), 1.02 * factor * request.response_ms)
    axis.set_title(f"{request.quantile}: request {request.query}, {with_unit(request.response_ms, 'ms')}")
    axis.grid(visible=False, axis="y")
    plain_numbers(axis.xaxis)


def _table(workload: ShownWorkload) -> Table:
    """Return visits, use, times and shares of each stage: a row for each treatment and stage."""
    # a stage without events has no list of figures, what is outside of stages an empty one
    rows: list[tuple[SummaryRow, str, list[StageFigures] | None, float | None]] = []
    events = 0
    for treatment in workload.treatments:
        traced = stages_of(workload.results, treatment)
        events += len(traced)
        for name in dict.fromkeys(name for stages in traced for name in stages.by_stage):
            own = [stages.by_stage[name] for stages in traced if name in stages.by_stage]
            rows.append((treatment, name, own, median_of([stage.critical_ratio for stage in own])))
        for name in dict.fromkeys(name for stages in traced for name in stages.without_events):
            rows.append((treatment, name, None, None))
        if traced:
            rows.append((treatment, "outside of stages", [], median_of([stages.outside_ratio for stages in traced])))

    def values(of: Figure) -> list[float | None]:
        return [median_of([of(stage) for stage in own or ()]) for _, _, own, _ in rows]

    def given(medians: Sequence[float | None]) -> list[Content]:
        return ["" if own == [] else middle for (_, _, own, _), middle in zip(rows, medians, strict=True)]

    def ratios(name: str, of: Figure, title: str) -> Column:
        return figures(name, given(values(of)), "%", title, why=NOT_KNOWN, shown=percent)

    def times(name: str, of: Figure, why: str = NOT_KNOWN) -> Column:
        medians = values(of)
        unit, factor = unit_of(medians)
        return figures(name, given(medians), unit, why=why, shown=lambda value: number(factor * value))

    critical = [ratio for _, _, _, ratio in rows]
    known = [stage for _, _, own, _ in rows for stage in own or ()]
    firsts = any(stage.first_ms for stage in known)
    blocks = any(stage.blocked_ms for stage in known)
    return Table(
        columns=(
            *factor_columns([row for row, _, _, _ in rows], workload.treatments),
            column("stage", [name for _, name, _, _ in rows]),
            figures("visits", given(values(lambda stage: stage.visits)), shown=lambda count: f"{count:,.0f}"),
            ratios("busy", lambda stage: stage.busy_ratio, "time in which its threads ran it"),
            times("run p50", lambda stage: stage.run_ms.p50),
            times("run p99", lambda stage: stage.run_ms.p99),
            times("wait p50", lambda stage: stage.wait_ms.p50 if stage.wait_ms else None, NO_WAITS),
            times("wait p99", lambda stage: stage.wait_ms.p99 if stage.wait_ms else None, NO_WAITS),
            *(
                [times("blocked p50", lambda stage: stage.blocked_ms.p50 if stage.blocked_ms else None, NO_BLOCKS)]
                if blocks
                else []
            ),
            *(
                [times("first unit p50", lambda stage: stage.first_ms.p50 if stage.first_ms else None, NO_FIRST)]
                if firsts
                else []
            ),
            ratios("of the response", lambda stage: stage.latency_ratio, "waiting and running"),
            figures("critical path", critical, "%", "of the response time", why=NOT_KNOWN, shown=percent),
        ),
        caption=f"{workload.name}: stages",
        footnotes=(*NOTES, f"Of {counted(events, 'trial')} with events."),
    )


def stages_of(results: Results, treatment: SummaryRow) -> list[Stages]:
    """Return the stages of a treatment's good trials that recorded events of counted requests."""
    traced = [view.good.stages for view in results.trials_of(treatment) if view.good and view.good.stages]
    return [stages for stages in traced if stages.requests]
