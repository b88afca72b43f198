"""Predicted figures against measured ones: a panel for each figure, a mark for each place of the load."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from seamark.report.figures.canvas import COLOURS, INK, drawing, plain_numbers, written
from seamark.report.page.content import Picture
from seamark_simulate.report.predictions import Pair

MOST_PANELS, IN_A_ROW = 8, 4
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "inside": ("o", COLOURS[0], "held out, among the loads"),
    "beyond": ("^", COLOURS[1], "held out, outside of the loads"),
    "overload": ("x", COLOURS[3], "held out, more than it can serve"),
    "twin": ("s", COLOURS[2], "simulated trials"),
}
"""Place -> marker, colour, label."""


def predicted_picture(pairs: Sequence[Pair], name: str, title: str, folder: Path) -> Picture:
    """Draw pairs around the line on which prediction and measurement agree; bars are intervals of predictions."""
    figures = list(dict.fromkeys(pair.figure for pair in pairs))[:MOST_PANELS]
    columns = min(IN_A_ROW, len(figures))
    rows = -(-len(figures) // columns)
    with drawing(max(4.6, 2.3 * columns), 2.5 * rows + 0.4) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis, metric in zip(axes.flat, figures, strict=False):
            _draw(axis, [pair for pair in pairs if pair.figure == metric])
            axis.set_title(figure_words(metric))
        for axis in list(axes.flat)[len(figures) :]:
            axis.set_axis_off()
        for row in axes:
            row[0].set_ylabel("predicted")
        for axis in list(axes.flat)[max(0, len(figures) - columns) : len(figures)]:
            axis.set_xlabel("measured")
        for place in dict.fromkeys(pair.place for pair in pairs):
            marker, colour, label = LOOKS[place]
            axes[0][0].plot([], [], ls="", marker=marker, color=colour, label=label)
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        intervals = " Bars are 90 % intervals of the predictions." if any(pair.low for pair in pairs) else ""
        return written(
            figure,
            folder,
            name,
            alt=f"{title}: predicted against measured",
            caption=f"{title}: predicted against measured. On the line both agree.{intervals}",
        )


def figure_words(figure: str) -> str:
    """Return the name of a figure with its unit: `p50 (s)`, `throughput (requests/s)`."""
    if figure.endswith("_per_s"):
        return f"throughput ({figure.removesuffix('_per_s').replace('_', ' ')}/s)"
    for suffix, unit in (("_rps", "requests/s"), ("_s", "s"), ("_ratio", "ratio")):
        if figure.endswith(suffix):
            return f"{figure.removesuffix(suffix).replace('_', ' ')} ({unit})"
    return figure.replace("_", " ")


def _draw(axis: Axes, own: Sequence[Pair]) -> None:
    values = [value for pair in own for value in (pair.measured, pair.predicted, pair.low, pair.high) if value]
    low, high = min(values), max(values)
    is_wide = low > 0 and high / low > 8
    if is_wide:
        limits = (low / 1.3, high * 1.3)
        axis.set_xscale("log")
        axis.set_yscale("log")
    else:
        limits = (max(0.0, low - 0.1 * (high - low or high)), high + 0.1 * (high - low or high))
    axis.plot(limits, limits, color=INK, lw=0.9, zorder=1)
    for place in LOOKS:
        shown = [pair for pair in own if pair.place == place]
        marker, colour, _ = LOOKS[place]
        for pair in shown:
            if pair.low is not None and pair.high is not None:
                axis.vlines(pair.measured, pair.low, pair.high, color=colour, lw=1.0, alpha=0.6, zorder=2)
        axis.plot(
            [pair.measured for pair in shown],
            [pair.predicted for pair in shown],
            ls="",
            marker=marker,
            color=colour,
            ms=4.5,
            zorder=3,
        )
    axis.set_xlim(*limits)
    axis.set_ylim(*limits)
    axis.set_box_aspect(1)
    for scale in (axis.xaxis, axis.yaxis):
        if is_wide:
            subs = (1.0,) if high / low > 100 else (1.0, 3.0)
            scale.set_major_locator(LogLocator(subs=subs, numticks=8))
            scale.set_minor_locator(NullLocator())
            plain_numbers(scale)
        else:
            scale.get_major_locator().set_params(nbins=4)  # type: ignore[call-arg]
            plain_numbers(scale)
