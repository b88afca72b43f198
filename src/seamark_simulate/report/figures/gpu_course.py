"""Use of GPUs and length of the queue over time: a column for each combination of factors, a curve for each level."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from seamark.analysis.schedule.execution_rows import FETCHES, ExecutionRows, Floats
from seamark.analysis.schedule.occupation import bars_of, mean_queue, occupation_of
from seamark.model.plurals import counted
from seamark.report.figures.canvas import COLOURS, DASHES, drawing, plain_numbers, written
from seamark.report.page.content import Picture
from seamark_simulate.report.schedules import Schedules, ShownSchedule

MOST_COLUMNS, MOST_FIGURES = 4, 3
SLICES = 100


def course_pictures(found: Schedules, workload: str, stem: str, folder: Path) -> list[Picture]:
    """Draw use and queue of the schedules of a workload."""
    columns: dict[str, dict[str, ShownSchedule]] = {}
    for schedule in found.shown:
        columns.setdefault(schedule.group, {})[schedule.curve] = schedule
    names = list(columns)
    groups = [names[at : at + MOST_COLUMNS] for at in range(0, len(names), MOST_COLUMNS)]
    more = len(names) - MOST_COLUMNS * MOST_FIGURES
    note = f" Not drawn: {counted(more, 'more combination')}." if more > 0 else ""
    pictures = []
    for number, group in enumerate(groups[:MOST_FIGURES], 1):
        name = f"{stem}-use-and-queue" + (f"-{number}" if len(groups) > 1 else "")
        pictures.append(_picture({key: columns[key] for key in group}, found.compares, workload, name, folder, note))
    return pictures


def use_over_time(rows: ExecutionRows, span_s: float, slices: int) -> Floats:
    """Return the share of all GPUs that executions hold in each slice, loads and switches included, from 0 to 1."""
    bars = bars_of(rows)
    kinds = len(rows.models) + len(FETCHES)
    occupation = occupation_of(bars, gpus=rows.gpus, kinds=kinds, span_s=span_s, slices=slices, most_rows=1)
    return np.asarray(occupation.shares.sum(axis=(0, 1)))


def _picture(
    columns: Mapping[str, Mapping[str, ShownSchedule]],
    curves: str | None,
    workload: str,
    name: str,
    folder: Path,
    note: str,
) -> Picture:
    labels = list(dict.fromkeys(curve for schedules in columns.values() for curve in schedules))
    looks = {label: (COLOURS[at % 7], (0, DASHES[at % 7] or ())) for at, label in enumerate(labels)}
    lines = max(column.count(",") for column in columns) + 1
    with drawing(8.4, 3.3 + 0.13 * lines) as figure:
        axes = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey="row")
        for number, (column, schedules) in enumerate(columns.items()):
            _draw(axes[0][number], axes[1][number], schedules, looks)
            axes[0][number].set_title(column.replace(", ", "\n"), fontsize=8.5)
            axes[1][number].set_xlabel("seconds from the first arrival")
        axes[0][0].set_ylabel("use of GPUs (%)")
        axes[1][0].set_ylabel("nodes that wait")
        axes[0][0].set_ylim(0, 104)
        axes[1][0].set_ylim(0, max(1.0, axes[1][0].get_ylim()[1]))
        if curves:
            handles = [
                Line2D([], [], color=colour, ls=dashes, lw=1.4, label=f"{curves} {label}")
                for label, (colour, dashes) in looks.items()
            ]
            figure.legend(handles=handles, loc="outside upper left", ncols=4)
        return written(
            figure,
            folder,
            name,
            alt=f"{workload}: use of GPUs and queue over time",
            caption=f"{workload}: share of the GPUs that executions hold, loads and switches included, and nodes that"
            f" are ready but have no GPUs; means of {SLICES} slices of time, of the same trials as above.{note}",
        )


def _draw(use: Axes, queue: Axes, own: Mapping[str, ShownSchedule], looks: Mapping[str, tuple[str, object]]) -> None:
    longest_s = max(schedule.rows.makespan_s for schedule in own.values())
    for label, schedule in own.items():
        colour, dashes = looks[label]
        span_s = schedule.rows.makespan_s
        edges = np.linspace(0.0, span_s, SLICES + 1)
        for axis, values in (
            (use, 100 * use_over_time(schedule.rows, span_s, SLICES)),
            (queue, mean_queue(schedule.rows, span_s, SLICES)),
        ):
            axis.stairs(values, edges, baseline=None, color=colour, ls=dashes, lw=1.3)
    for axis in (use, queue):
        axis.set_xlim(0, longest_s or 1.0)
        plain_numbers(axis.xaxis)
        plain_numbers(axis.yaxis)
