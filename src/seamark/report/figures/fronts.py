"""Quality against a cost: a point for each level, the front as a line through those that no other dominates."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from seamark.model.results.front import Front, FrontPoint
from seamark.report.figures.canvas import COLOURS, INK, MUTED, SHADE, drawing, plain_numbers, written
from seamark.report.fronts import front_title, share
from seamark.report.numbers import level, unit_words
from seamark.report.page.content import Picture

MOST_FRONTS, MOST_COLUMNS, MOST_NAMED = 9, 3, 12


def front_picture(fronts: Sequence[Front], folder: Path) -> Picture | None:
    """Draw the first fronts side by side; None without a point that has a cost."""
    shown = [each for each in fronts if any(point.cost is not None for point in each.points)][:MOST_FRONTS]
    if not shown:
        return None
    columns = min(MOST_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    several = len({each.workload for each in fronts}) > 1
    with drawing(max(4.6, 3.4 * columns), 3.1 * rows) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis in axes[len(shown) :]:
            axis.set_visible(False)
        for axis, front in zip(axes, shown, strict=False):
            _draw(axis, front)
            axis.set_title(front_title(front, several), fontsize=8.5)
        more = len(fronts) - len(shown)
        return written(
            figure,
            folder,
            "fronts",
            alt=f"{shown[0].quality} against {', '.join(dict.fromkeys(each.cost for each in shown))}",
            caption="Each point is a level: mean score over the common items, median cost of its trials. Filled"
            " points and the line are the front; beside a point stands the probability that it is on it. The band"
            " reaches from the baseline (square) to the margin, where one is stated."
            f"{f' Not drawn: {more} more.' if more > 0 else ''}",
        )


def _draw(axis: Axes, front: Front) -> None:
    known = [each for each in front.points if each.cost is not None and each.quality is not None]
    base = front.points[0]
    if front.margin is not None and base.quality is not None:
        worst = base.quality + (-front.margin if front.better == "higher" else front.margin)
        axis.axhspan(*sorted((worst, base.quality)), color=SHADE, zorder=0)
    on_front = sorted(_place(each) for each in known if each.on_front)
    axis.plot([x for x, _ in on_front], [y for _, y in on_front], color=MUTED, lw=1.0, zorder=1)
    for each in known:
        x, y = _place(each)
        colour = COLOURS[0] if each.on_front else MUTED
        face = colour if each.on_front else "white"
        marker = "s" if each is base else "o"
        axis.plot([x], [y], marker=marker, ms=6, ls="", color=colour, markerfacecolor=face, zorder=3)
    for each in known[:MOST_NAMED]:
        text = f"{level(each.level, front.factor)} ({share(each.probability)})"
        axis.annotate(text, _place(each), xytext=(5, 4), textcoords="offset points", fontsize=7.5, color=INK)
    axis.margins(x=0.4, y=0.18)
    axis.set_xlabel(f"{front.cost} ({unit_words(front.cost_unit)})" if front.cost_unit else front.cost)
    axis.set_ylabel(front.quality)
    plain_numbers(axis.xaxis)


def _place(point: FrontPoint) -> tuple[float, float]:
    return float(point.cost or 0.0), float(point.quality or 0.0)
