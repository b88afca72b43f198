"""Time of GPUs by use, loads and switches, and waits by cause: a bar for each treatment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from seamark.report.figures.canvas import COLOURS, MUTED, drawing, plain_numbers, written
from seamark.report.page.content import Picture
from seamark_simulate.report.figures.gantt import LOOKS
from seamark_simulate.report.schedules import ScheduleFigures, Schedules

Part = tuple[str, str, float, dict[str, Any]]
"""Field of ScheduleFigures, label, factor to the axis' unit, look."""
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


def gpu_time_picture(found: Schedules, workload: str, stem: str, folder: Path) -> Picture:
    """Draw the figures of all treatments side by side."""
    labels = [schedule.label for schedule in found.shown]
    with drawing(8.4, 1.35 + 0.3 * len(labels)) as figure:
        axes = figure.subplots(1, len(PANELS), sharey=True, width_ratios=(4, 3, 4))
        for axis, (parts, title) in zip(axes, PANELS, strict=True):
            _draw(axis, [part for part in parts if is_shown(part[0], found.figures)], found.figures)
            axis.set_xlabel(title)
            axis.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), fontsize=7, ncols=1 + (parts is USE))
        axes[0].set_yticks(range(len(labels)), [_wrapped(label) for label in labels])
        axes[0].set_ylim(len(labels) - 0.4, -0.6)
        axes[0].set_xlim(0, 100)
        several = max(found.trials, default=1) > 1
        return written(
            figure,
            folder,
            f"{stem}-gpu-time",
            alt=f"{workload}: use of the GPUs, loads and switches, and waits by cause",
            caption=f"{workload}: how the time of all GPUs was used until the makespan; first loads of empty GPUs and"
            " switches of models; and the mean time for which a ready node waited for GPUs, by cause."
            + (" Medians over the repetitions." if several else ""),
        )


def is_shown(field: str, figures: Sequence[ScheduleFigures]) -> bool:
    """Return whether a part is shown: transfers only where there are any."""
    return field != "transfer_ratio" or any(schedule.transfer_ratio for schedule in figures)


def _draw(axis: Axes, parts: Sequence[Part], figures: Sequence[ScheduleFigures]) -> None:
    left = np.zeros(len(figures))
    for field, label, factor, look in parts:
        width = factor * np.asarray([getattr(schedule, field) for schedule in figures], np.float64)
        axis.barh(range(len(figures)), width, 0.66, left, label=label, lw=0.4, **{"edgecolor": "white", **look})
        left += width
    axis.set_xlim(0, float(left.max(initial=0.0)) * 1.04 or 1.0)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=parts[0][0] == "loads"))
    axis.grid(visible=False, axis="y")
    plain_numbers(axis.xaxis)


def _wrapped(label: str, most: int = 24) -> str:
    """Return a label in two lines, each of at most 30 characters."""
    lines = [label] if len(label) <= most else label.split(", ", 1)
    return ",\n".join(line if len(line) <= 30 else f"{line[:14]}…{line[-15:]}" for line in lines)
