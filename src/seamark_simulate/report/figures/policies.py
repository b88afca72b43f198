"""Policies side by side: a row for each policy, a column for each combination of the other factors."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from seamark.model.results.comparison import Compared
from seamark.report.comparison import NO_VERDICT
from seamark.report.figures.canvas import INK, SHADE, drawing, written
from seamark.report.figures.comparisons import LOOKS
from seamark.report.numbers import number
from seamark.report.page.content import Picture
from seamark_simulate.report.policies import PolicyMatrix

MOST_COLUMNS = 4


def policy_picture(matrix: PolicyMatrix, workload: str, margin: float, stem: str, folder: Path) -> Picture | None:
    """Draw the ratio of each policy to the baseline with its interval; None without any ratio."""
    columns = matrix.columns[:MOST_COLUMNS]
    policies = list(matrix.cells)
    shown = [cell for row in matrix.cells.values() for column, cell in row.items() if column in columns]
    ratios = [cell.ratio for cell in shown if cell.ratio is not None]
    if not ratios:
        return None
    lines = max(column.count(",") for column in columns) + 1
    with drawing(8.4, 0.3 * len(policies) + 1.25 + 0.13 * lines) as figure:
        axes = figure.subplots(1, len(columns), squeeze=False, sharex=True, sharey=True)[0]
        for axis, column in zip(axes, columns, strict=True):
            _draw(axis, [matrix.cells[policy].get(column) for policy in policies], margin)
            axis.set_title(column.replace(", ", "\n"), fontsize=8.5)
        axes[0].set_yticks(range(len(policies)), policies)
        axes[0].set_ylim(len(policies) - 0.5, -0.5)
        figure.supxlabel(f"{matrix.metric} in ratio to {matrix.base}", fontsize=8.5)
        for verdict in dict.fromkeys(cell.verdict for cell in shown):
            marker, colour = LOOKS[verdict]
            axes[0].plot([], [], ls="-", lw=1.8, marker=marker, color=colour, label=verdict or NO_VERDICT)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
        more = len(matrix.columns) - len(columns)
        return written(
            figure,
            folder,
            f"{stem}-policies-{matrix.metric.replace('.', '-').replace('_', '-')}",
            alt=f"{workload}: {matrix.metric} of policies in ratio to {matrix.base}",
            caption=f"{workload}: {matrix.metric} of each policy in ratio to {matrix.base}, with its exact interval."
            f" The line is no difference, the band the margin of {100 * margin:g} % within which policies are"
            f" equivalent.{f' Not drawn: {more} more.' if more > 0 else ''}",
        )


def _draw(axis: Axes, own: Sequence[Compared | None], margin: float) -> None:
    axis.axvspan(1 / (1 + margin), 1 + margin, color=SHADE, zorder=0)
    axis.axvline(1.0, color=INK, lw=1.0, zorder=1)
    for row, cell in enumerate(own):
        if cell is None or cell.ratio is None:
            continue
        marker, colour = LOOKS[cell.verdict]
        low, high = (cell.ratio.value if end is None else end for end in (cell.ratio.low, cell.ratio.high))
        axis.hlines(row, low, high, color=colour, lw=1.8, zorder=2)
        axis.plot([cell.ratio.value], [row], marker=marker, color=colour, ms=6, zorder=3)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.grid(axis="y", visible=False)
