"""Gantt charts of executions: a row for each GPU, coloured by model; many bars are summed up by slices of time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline
from numpy.typing import NDArray

from seamark.analysis.schedule.execution_rows import FETCHES
from seamark.analysis.schedule.occupation import Bars, bars_of, occupation_of
from seamark.report.figures.canvas import COLOURS, MUTED, drawing, picture_of, plain_numbers
from seamark.report.page.content import Picture
from seamark.report.source import ShownWorkload
from seamark_simulate.report.schedules import ShownSchedule

MOST_BARS = 5_000
"""Of a figure: above it, its charts with the most bars are summed up."""
MOST_ROWS, MOST_PANELS, ROWS_OF_FIGURE, LARGE_GROUP = 32, 7, 48, 3
SLICES, STEPS = 240, 16
MOST_MODELS = 6
OTHERS = "other models"
OTHER_COLOUR = "#7f8794"
LOOKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("load", {"facecolor": "#dfe3e8", "hatch": "////"}),
    ("switch", {"facecolor": "#b3bac5", "hatch": "xxxx"}),
    ("transfer", {"facecolor": "#f3e3a8", "hatch": "----"}),
)
"""Of FETCHES, in their order."""
HEIGHT = 0.8
ALIKE = 3.0
"""Makespans of one figure within this factor have one time axis."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of one schedule. `bars` has kinds that all charts share: shown models, others, load, switch."""

    schedule: ShownSchedule
    bars: Bars
    is_summed: bool

    @property
    def rows(self) -> int:
        """Number of rows: one for each GPU, or fewer that share rows."""
        return min(self.schedule.rows.gpus, MOST_ROWS) if self.is_summed else self.schedule.rows.gpus


def gantt_pictures(shown: Sequence[ShownSchedule], workload: ShownWorkload) -> list[Picture]:
    """Draw the schedules of a workload, some below one another in each figure."""
    models = models_of(shown)
    groups = figures_of(shown)
    return [
        _picture(charts_of(group, models), models, workload, f"-{number}" if len(groups) > 1 else "")
        for number, group in enumerate(groups, 1)
    ]


def models_of(shown: Sequence[ShownSchedule]) -> tuple[str, ...]:
    """Return the models that have a colour, those of most executions, by name; all others are one."""
    counts: Counter[str] = Counter()
    for schedule in shown:
        executions = np.bincount(schedule.rows.model, minlength=len(schedule.rows.models)).tolist()
        counts.update(dict(zip(schedule.rows.models, executions, strict=True)))
    most = sorted(counts, key=lambda name: (-counts[name], name))
    if len(most) > MOST_MODELS:
        return (*sorted(most[:MOST_MODELS]), OTHERS)
    return tuple(sorted(most))


def figures_of(shown: Sequence[ShownSchedule]) -> list[list[ShownSchedule]]:
    """Split schedules into figures that are not too high; a group of several begins a figure."""
    sizes = Counter(schedule.group for schedule in shown)
    groups: list[list[ShownSchedule]] = []
    rows = 0
    for schedule in shown:
        height = min(schedule.rows.gpus, MOST_ROWS)
        is_full = not groups or len(groups[-1]) == MOST_PANELS or rows + height > ROWS_OF_FIGURE
        if is_full or (groups[-1][-1].group != schedule.group and max(sizes.values()) >= LARGE_GROUP):
            groups.append([])
            rows = 0
        groups[-1].append(schedule)
        rows += height
    return groups


def charts_of(shown: Sequence[ShownSchedule], models: Sequence[str]) -> list[Chart]:
    """Return the charts of one figure. Where it has more than MOST_BARS, charts with more than their share of them
    are summed up; so are those of more GPUs than there are rows."""
    bars = [shared_kinds(bars_of(schedule.rows), schedule.rows.models, models) for schedule in shown]
    most = MOST_BARS / len(bars) if sum(map(len, bars)) > MOST_BARS else MOST_BARS
    return [
        Chart(schedule=schedule, bars=chart_bars, is_summed=len(chart_bars) > most or schedule.rows.gpus > MOST_ROWS)
        for schedule, chart_bars in zip(shown, bars, strict=True)
    ]


def shared_kinds(bars: Bars, own: Sequence[str], models: Sequence[str]) -> Bars:
    """Return bars whose kinds are places in `models`, then load and switch."""
    places = [models.index(name) if name in models else len(models) - 1 for name in own]
    kinds = np.asarray([*places, *(len(models) + at for at in range(len(FETCHES)))], np.int64)
    return Bars(gpu=bars.gpu, begin_s=bars.begin_s, end_s=bars.end_s, kind=kinds[bars.kind])


def _picture(charts: Sequence[Chart], models: Sequence[str], workload: ShownWorkload, place: str) -> Picture:
    colours = [OTHER_COLOUR if model == OTHERS else COLOURS[number] for number, model in enumerate(models)]
    heights = [0.52 + chart.rows * (0.24 if chart.rows <= 8 else 0.17) for chart in charts]
    spans_s = [chart.schedule.rows.makespan_s for chart in charts]
    longest_s = max(spans_s) or 1.0
    is_shared = longest_s <= ALIKE * min(spans_s)
    with drawing(8.4, sum(heights) + 0.45) as figure:
        axes = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, chart in zip(axes, charts, strict=True):
            (_draw_shares if chart.is_summed else _draw_bars)(axis, chart, colours)
            drawn = chart.schedule
            repetition = f" (repetition {drawn.view.trial.repetition})" if drawn.treatment.repetitions > 1 else ""
            axis.set_title(f"{drawn.label}{repetition}", fontsize=8.5)
            axis.set_xlim(0, longest_s if is_shared else chart.schedule.rows.makespan_s or 1.0)
            if is_shared and chart.schedule.rows.makespan_s < longest_s:
                axis.axvline(chart.schedule.rows.makespan_s, color=MUTED, ls=":", lw=1)
            axis.set_ylim(chart.rows - 0.5, -0.5)
            axis.grid(visible=False)
            plain_numbers(axis.xaxis)
            _label_rows(axis, chart)
        axes[-1].set_xlabel("seconds from the first arrival")
        handles = [Patch(facecolor=colour, label=model) for model, colour in zip(models, colours, strict=True)]
        fetches = LOOKS if any((chart.bars.kind == len(models) + 2).any() for chart in charts) else LOOKS[:2]
        handles += [Patch(label=label, edgecolor=MUTED, lw=0, **look) for label, look in fetches]
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 6))
        alt, caption = f"{workload.name}: executions on each GPU over time", _caption(charts, workload.name)
        return picture_of(figure, f"{workload.stem}-gantt{place}", alt=alt, caption=caption)


def _caption(charts: Sequence[Chart], workload: str) -> str:
    text = f"{workload}: executions by GPU, coloured by model; loads and switches of models are hatched."
    if any(chart.schedule.treatment.repetitions > 1 for chart in charts):
        text += (
            " Of each treatment one trial is drawn: that of the (lower) median makespan of the first, and of those"
            " beside it the same repetition."
        )
    summed = [chart for chart in charts if chart.is_summed]
    if not summed:
        return text
    which = "Summed up" if len(summed) == len(charts) else f"{len(summed)} of {len(charts)} charts are summed up"
    bars = sum(len(chart.bars) for chart in summed)
    shared = max(-(-chart.schedule.rows.gpus // chart.rows) for chart in summed)
    rows = "GPU" if shared == 1 else f"row of up to {shared} GPUs"
    why = f"{bars:,} bars are too many to draw" if bars > MOST_BARS else f"there are more than {MOST_ROWS} GPUs"
    return (
        f"{text} {which}, as {why}: for each {rows} and each of {SLICES} slices of time, heights are the shares of"
        " execution, load (light grey), switch (darker grey) and idle (white)."
    )


def _label_rows(axis: Axes, chart: Chart) -> None:
    gpus, rows = chart.schedule.rows.gpus, chart.rows
    first = [row * gpus // rows for row in range(rows)]
    last = [gpu - 1 for gpu in [*first[1:], gpus]]
    every = 1 if rows <= 16 else 2 if rows <= 24 else 4
    labels = [f"GPU {a}" if a == b else f"{a:,}–{b:,}" for a, b in zip(first, last, strict=True)]
    axis.set_yticks(range(0, rows, every), labels[::every])
    if rows < gpus:
        axis.set_ylabel("GPUs")


def _draw_bars(axis: Axes, chart: Chart, colours: Sequence[str]) -> None:
    """Draw all bars of a kind as one outline, which keeps the file small."""
    bars = chart.bars
    edge = 0.4 if len(bars) < 600 else 0.0
    looks: list[dict[str, Any]] = [{"facecolor": colour, "edgecolor": "white", "lw": edge} for colour in colours]
    looks += [{"edgecolor": MUTED, "lw": 0.0, **look} for _, look in LOOKS]
    for kind, look in enumerate(looks):
        own = bars.kind == kind
        if own.any():
            outline = rectangles(
                bars.gpu[own] - HEIGHT / 2, bars.gpu[own] + HEIGHT / 2, bars.begin_s[own], bars.end_s[own]
            )
            axis.add_patch(PathPatch(outline, **look))


def rectangles(low: NDArray[Any], high: NDArray[Any], begin: NDArray[Any], end: NDArray[Any]) -> Outline:
    """Return one path of rectangles."""
    corners = [(begin, low), (end, low), (end, high), (begin, high), (begin, low)]
    points = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    return Outline(points.reshape(-1, 2), np.tile(np.asarray(codes, np.uint8), len(points)))


def _draw_shares(axis: Axes, chart: Chart, colours: Sequence[str]) -> None:
    rows = chart.schedule.rows
    every = [*colours, *(look["facecolor"] for _, look in LOOKS)]
    occupation = occupation_of(
        chart.bars, gpus=rows.gpus, kinds=len(every), span_s=rows.makespan_s, slices=SLICES, most_rows=MOST_ROWS
    )
    image = strips(occupation.shares, np.asarray([to_rgb(colour) for colour in every]))
    extent = (0.0, rows.makespan_s, chart.rows - 0.5, -0.5)
    axis.imshow(image, extent=extent, aspect="auto", interpolation="none", zorder=1)


def strips(shares: NDArray[np.float64], colours: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return an image of shares, shape (rows * (STEPS + 2), slices, 3): each row a strip whose heights are the shares
    of its kinds, from its bottom upwards, to one in STEPS, between two lines of white."""
    rows, kinds, slices = shares.shape
    tops = np.rint(np.minimum(shares.cumsum(axis=1), 1.0) * STEPS).astype(np.int64)
    image = np.full((rows, STEPS + 2, slices, 3), 255, np.uint8)
    levels = np.arange(STEPS)[None, :, None]
    paint = np.rint(colours * 255).astype(np.uint8)
    for kind in range(kinds):
        bottom = tops[:, kind - 1, None] if kind else np.zeros((rows, 1, slices), np.int64)
        inside = (levels >= bottom) & (levels < tops[:, kind, None])
        image[:, 1:-1][inside[:, ::-1]] = paint[kind]
    return image.reshape(rows * (STEPS + 2), slices, 3)
