"""Gantt chart of single requests: what each did in which stage, from the time at which it was due."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from seamark.model.plurals import counted
from seamark.model.results.stages import TracedRequest
from seamark.model.results.summary import SummaryRow
from seamark.report.figures.canvas import COLOURS, INK, MUTED, drawing, plain_numbers, written
from seamark.report.figures.timelines import representative
from seamark.report.numbers import levels_text, unit_of, with_unit
from seamark.report.page.content import Picture
from seamark.report.source import Results
from seamark.report.tables.stages import stages_of

LOOKS: dict[str, dict[str, Any]] = {
    "wait": {"color": "#dfe3e8", "hatch": "///"},
    "prepare": {"color": COLOURS[4], "hatch": "..."},
    "run": {"color": COLOURS[0]},
    "blocked": {"color": COLOURS[1], "hatch": "xxx"},
}
MOMENT = "first_unit"
BAR = 0.62


def stages_picture(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, folder: Path
) -> Picture | None:
    """Draw a typical and a slow request of the representative treatment; None where no trial recorded events."""
    able = [
        treatment for treatment in treatments if any(of_trial.examples for of_trial in stages_of(results, treatment))
    ]
    treatment = representative(results, able)
    if treatment is None:
        return None
    stages = next(of_trial for of_trial in stages_of(results, treatment) if of_trial.examples)
    names = [
        name
        for name in stages.by_stage
        if any(bar.stage == name for example in stages.examples for bar in example.bars)
    ]
    kinds = [kind for kind in LOOKS if any(bar.what == kind for example in stages.examples for bar in example.bars)]
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
        return written(
            figure,
            folder,
            f"{stem}-stages",
            alt=f"{workload}: stages of a typical and of a slow request",
            caption=f"{workload}{': ' + factors if factors else ''}. The requests whose response times are nearest "
            "to the quantiles, stage by stage; the line is the end of the request."
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
