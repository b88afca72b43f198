"""Blocks of schedules of workflows: Gantt charts, use and queue over time, time of GPUs and waits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from seamark.analysis.schedule.execution_rows import FETCHES, ExecutionRows, Floats
from seamark.analysis.schedule.occupation import bars_of, mean_queue, occupation_of
from seamark.model.plurals import counted
from seamark.report.figures.canvas import COLOURS, DASHES, MUTED, drawing, picture_of, plain_numbers
from seamark.report.numbers import number, percent
from seamark.report.page.content import Block, Picture, Table, Text, figures
from seamark.report.source import ShownWorkload
from seamark.report.tables.by_treatment import factor_columns
from seamark_simulate.report.page.gantt import LOOKS, gantt_pictures
from seamark_simulate.report.schedules import Schedules, ShownSchedule, schedules_of

MOST_COLUMNS, MOST_FIGURES = 4, 3
SLICES = 100
NOTES = (
    "Execution, load, switch and idle are shares of makespan × GPUs. Loads are first loads of empty GPUs,"
    " switches changes of the model on the first GPU of an execution. Queue: nodes that are ready and have no GPUs.",
    "Waits are seconds a node, on average over all executions. Predecessors: from the arrival of the request until"
    " the node is ready. From then until the node has its k GPUs, each moment counts as one of three: fewer than k"
    " GPUs are free; k are free, but no k neighbours; or held back: k neighbours are free, but the policy waits for"
    " other nodes or GPUs, or these GPUs do not suit the node.",
)
Part = tuple[str, str, float, dict[str, Any]]
"""Figure, label, factor to the axis' unit, look."""
USE: tuple[Part, ...] = (
    ("run_ratio", "execution", 100.0, {"facecolor": COLOURS[0]}),
    *((f"{name}_ratio", name, 100.0, {"edgecolor": MUTED, **look}) for name, look in LOOKS),
    ("idle_ratio", "idle", 100.0, {"facecolor": "white", "edgecolor": "#c9ced6"}),
)
FETCHED: tuple[Part, ...] = (
    ("loads", "first loads", 1.0, {"edgecolor": MUTED, **LOOKS[0][1]}),
    ("switches", "switches", 1.0, {"edgecolor": MUTED, **LOOKS[1][1]}),
)
WAITS: tuple[Part, ...] = (
    ("lacking_s", "too few GPUs free", 1.0, {"facecolor": COLOURS[1]}),
    ("apart_s", "free GPUs not neighbours", 1.0, {"facecolor": COLOURS[3], "hatch": "||||"}),
    ("held_back_s", "held back though GPUs are free", 1.0, {"facecolor": COLOURS[4], "hatch": "----"}),
)
PANELS = ((USE, "time of the GPUs (%)"), (FETCHED, "loads and switches"), (WAITS, "mean wait of a node (s)"))


def schedule_blocks(workload: ShownWorkload) -> list[Block]:
    """Return figures and table of a workload's schedules; only the reason where none can be read."""
    schedules = schedules_of(workload)
    notes = [Text(text=text, kind="note") for text in schedules.notes]
    if not schedules.shown:
        return [*notes]
    return [
        *gantt_pictures(schedules.shown, workload),
        *course_pictures(schedules, workload),
        gpu_time_picture(schedules, workload),
        gpu_time_table(schedules, workload),
        *notes,
    ]


def course_pictures(found: Schedules, workload: ShownWorkload) -> list[Picture]:
    """Draw use and queue of the schedules of a workload."""
    columns: dict[str, dict[str, ShownSchedule]] = {}
    for schedule in found.shown:
        columns.setdefault(schedule.group, {})[schedule.curve] = schedule
    names = list(columns)
    groups = [names[at : at + MOST_COLUMNS] for at in range(0, len(names), MOST_COLUMNS)]
    more = len(names) - MOST_COLUMNS * MOST_FIGURES
    note = f" Not drawn: {counted(more, 'more combination')}." if more > 0 else ""
    pictures = []
    for index, group in enumerate(groups[:MOST_FIGURES], 1):
        place = f"-{index}" if len(groups) > 1 else ""
        pictures.append(_course({key: columns[key] for key in group}, found.compares, workload, place, note))
    return pictures


def use_over_time(rows: ExecutionRows, span_s: float, slices: int) -> Floats:
    """Return the share of all GPUs that executions hold in each slice, loads and switches included, from 0 to 1."""
    bars = bars_of(rows)
    kinds = len(rows.models) + len(FETCHES)
    occupation = occupation_of(bars, gpus=rows.gpus, kinds=kinds, span_s=span_s, slices=slices, most_rows=1)
    return np.asarray(occupation.shares.sum(axis=(0, 1)))


def _course(
    columns: Mapping[str, Mapping[str, ShownSchedule]],
    curves: str | None,
    workload: ShownWorkload,
    place: str,
    note: str,
) -> Picture:
    labels = list(dict.fromkeys(curve for schedules in columns.values() for curve in schedules))
    looks = {label: (COLOURS[at % 7], (0, DASHES[at % 7] or ())) for at, label in enumerate(labels)}
    lines = max(column.count(",") for column in columns) + 1
    with drawing(8.4, 3.3 + 0.13 * lines) as figure:
        axes = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey="row")
        for use, queue, (column, schedules) in zip(*axes, columns.items(), strict=True):
            _draw_course(use, queue, schedules, looks)
            use.set_title(column.replace(", ", "\n"), fontsize=8.5)
            queue.set_xlabel("seconds from the first arrival")
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
        return picture_of(
            figure,
            f"{workload.stem}-use-and-queue{place}",
            alt=f"{workload.name}: use of GPUs and queue over time",
            caption=f"{workload.name}: share of the GPUs that executions hold, loads and switches included, and nodes"
            f" that are ready but have no GPUs; means of {SLICES} slices of time, of the same trials as above.{note}",
        )


def _draw_course(
    use: Axes, queue: Axes, own: Mapping[str, ShownSchedule], looks: Mapping[str, tuple[str, object]]
) -> None:
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


def gpu_time_picture(found: Schedules, workload: ShownWorkload) -> Picture:
    """Draw the figures of all treatments side by side."""
    labels = [schedule.label for schedule in found.shown]
    with drawing(8.4, 1.35 + 0.3 * len(labels)) as figure:
        axes = figure.subplots(1, len(PANELS), sharey=True, width_ratios=(4, 3, 4))
        for axis, (parts, title) in zip(axes, PANELS, strict=True):
            _draw_uses(axis, [part for part in parts if is_shown(part[0], found)], found.shown)
            axis.set_xlabel(title)
            axis.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), fontsize=7, ncols=1 + (parts is USE))
        axes[0].set_yticks(range(len(labels)), [_wrapped(label) for label in labels])
        axes[0].set_ylim(len(labels) - 0.4, -0.6)
        axes[0].set_xlim(0, 100)
        several = any(schedule.trials > 1 for schedule in found.shown)
        return picture_of(
            figure,
            f"{workload.stem}-gpu-time",
            alt=f"{workload.name}: use of the GPUs, loads and switches, and waits by cause",
            caption=f"{workload.name}: how the time of all GPUs was used until the makespan; first loads of empty"
            " GPUs and switches of models; and the mean time for which a ready node waited for GPUs, by cause."
            + (" Medians over the repetitions." if several else ""),
        )


def is_shown(name: str, found: Schedules) -> bool:
    """Return whether a figure is shown: transfers only where there are any."""
    return name != "transfer_ratio" or any(schedule.figures[name] for schedule in found.shown)


def _draw_uses(axis: Axes, parts: Sequence[Part], shown: Sequence[ShownSchedule]) -> None:
    left = np.zeros(len(shown))
    for name, label, factor, look in parts:
        width = factor * np.asarray([schedule.figures[name] for schedule in shown], np.float64)
        axis.barh(range(len(shown)), width, 0.66, left, label=label, lw=0.4, **{"edgecolor": "white", **look})
        left += width
    axis.set_xlim(0, float(left.max(initial=0.0)) * 1.04 or 1.0)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=parts[0][0] == "loads"))
    axis.grid(visible=False, axis="y")
    plain_numbers(axis.xaxis)


def _wrapped(label: str, most: int = 24) -> str:
    """Return a label in two lines, each of at most 30 characters."""
    lines = [label] if len(label) <= most else label.split(", ", 1)
    return ",\n".join(line if len(line) <= 30 else f"{line[:14]}…{line[-15:]}" for line in lines)


def gpu_time_table(found: Schedules, workload: ShownWorkload) -> Table:
    """Return a row for each treatment that is shown."""
    columns = (
        *factor_columns([schedule.treatment for schedule in found.shown], workload.treatments),
        *(
            figures(title, [schedule.figures[name] for schedule in found.shown], unit, shown=shown)
            for name, title, unit, shown in COLUMNS
            if is_shown(name, found)
        ),
    )
    trials = [schedule.trials for schedule in found.shown]
    several = f"{min(trials)} to {max(trials)}" if min(trials) < max(trials) else max(trials)
    repeated = [f"Medians over {several} repetitions."] if max(trials) > 1 else []
    caption = f"{workload.name}: time of the GPUs and waits"
    return Table(columns=columns, caption=caption, footnotes=(*NOTES, *repeated))


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


COLUMNS: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("run_ratio", "execution", "%", percent),
    *((f"{name}_ratio", name, "%", percent) for name in (*FETCHES, "idle")),
    ("loads", "loads", "", _count),
    ("load_s", "loads", "s", number),
    ("switches", "switches", "", _count),
    ("switch_s", "switches", "s", number),
    ("queue_mean", "queue", "mean", number),
    ("queue_most", "queue", "most", _count),
    ("lacking_s", "too few free", "s", number),
    ("apart_s", "not neighbours", "s", number),
    ("held_back_s", "held back", "s", number),
    ("predecessors_s", "predecessors", "s", number),
)
"""Figure, head, unit, text of a value."""
