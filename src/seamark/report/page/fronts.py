"""Blocks of quality against a cost: a point for each level, the front as a line through those that no other
dominates, and a table of each front.

Points are numbered, as names of twenty methods fit in no panel; one legend below all panels says which is which.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from seamark.model.results.comparison import Front, FrontPoint
from seamark.report.compared_answers import score_text
from seamark.report.figures.canvas import COLOURS, INK, MUTED, SHADE, drawing, picture_of, plain_numbers
from seamark.report.fronts import as_printed, front_note, front_place, front_sentence, front_title, share
from seamark.report.numbers import side_name, span
from seamark.report.page.content import Block, Picture, Table, Text, column, figures
from seamark.report.source import Results

MOST_FRONTS, MOST_COLUMNS, MOST_NAMED = 12, 3, 40
TITLE_WIDTH, NAME_WIDTH = 36, 34
"""Characters of a line of a title, and of a name in the legend."""
NUMBER: Any = {"ha": "center", "va": "center", "fontsize": 7, "color": INK}
RADII_PX, ANGLES = (9, 16, 24, 34, 46, 60, 76), 16


def front_blocks(results: Results) -> list[Block]:
    """Return quality against costs; nothing where no answers were scored, or only one level was."""
    fronts = results.summary.comparisons.fronts if results.summary.comparisons is not None else ()
    several = len({front.workload for front in fronts}) > 1
    titles = [(front_title(front, several), front) for front in fronts[:MOST_FRONTS]]
    more = len(fronts) - MOST_FRONTS
    return [
        *(Text(text=f"{title}: {front_sentence(front)}") for title, front in titles),
        *front_pictures(fronts),
        *(_table(as_printed(front), title) for title, front in titles),
        *([Text(text=f"{more} more are in summary.json.")] if more > 0 else []),
    ]


def front_pictures(fronts: Sequence[Front]) -> list[Picture]:
    """Draw the first fronts side by side; nothing without a point that has a cost."""
    able = [as_printed(front) for front in fronts if any(point.cost is not None for point in front.points)]
    shown = able[:MOST_FRONTS]
    if not shown:
        return []
    columns = min(MOST_COLUMNS, len(shown))
    legend = -(-len(_numbers(shown)) // (columns + 1))
    with drawing(max(5.2, 3.4 * columns), 2.9 * -(-len(shown) // columns) + 0.2 * legend + 0.3) as figure:
        draw_fronts(figure, shown, several=len({front.workload for front in fronts}) > 1)
        more = len(fronts) - len(shown)
        picture = picture_of(
            figure,
            "fronts",
            alt=f"{shown[0].quality} against {', '.join(dict.fromkeys(front.cost for front in shown))}",
            caption="Each point is a level, by its number in the legend: mean score over the common items, median"
            " cost of its trials. Filled points and the line are the front; tables have the probability that a point"
            " is on it. The band reaches from the baseline (square) to the margin, where one is stated."
            f"{f' Not drawn: {more} more.' if more > 0 else ''}",
        )
    return [picture]


def draw_fronts(figure: Figure, fronts: Sequence[Front], *, several: bool) -> None:
    """Draw a panel for each front, and the legend; with `several` workloads a title names its own."""
    columns = min(MOST_COLUMNS, len(fronts))
    numbers = _numbers(fronts)
    axes = list(figure.subplots(-(-len(fronts) // columns), columns, squeeze=False).flat)
    for axis in axes[len(fronts) :]:
        axis.set_visible(False)
    for axis, front in zip(axes, fronts, strict=False):
        _draw(axis, front)
        axis.set_title(fill(front_place(front, several), TITLE_WIDTH), fontsize=8.5)
    short = [name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…" for name in numbers]
    names = [f"{number}  {name}" for name, number in zip(short, numbers.values(), strict=True)]
    handles = [Line2D([], [], ls="", label=name) for name in names[:MOST_NAMED]]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns + 1, handlelength=0, fontsize=7.5)
    engine = figure.get_layout_engine()
    if engine is not None:  # numbers are placed in pixels, so the panels must not move any more
        engine.execute(figure)
        figure.set_layout_engine(None)
    for axis, front in zip(axes, fronts, strict=False):
        _place_numbers(axis, front, numbers)


def _numbers(fronts: Sequence[Front]) -> dict[str, int]:
    names = dict.fromkeys(side_name(point, front.factor) for front in fronts for point in _known(front))
    return {name: number for number, name in enumerate(names, 1)}


def _known(front: Front) -> list[FrontPoint]:
    return [point for point in front.points if point.cost is not None and point.quality is not None]


def _draw(axis: Axes, front: Front) -> None:
    known = _known(front)
    base = front.points[0]
    if front.margin is not None and base.quality is not None:
        worst = base.quality + (-front.margin if front.better == "higher" else front.margin)
        axis.axhspan(*sorted((worst, base.quality)), color=SHADE, zorder=0)
    on_front = sorted(_place(point) for point in known if point.on_front)
    axis.plot([x for x, _ in on_front], [y for _, y in on_front], color=MUTED, lw=1.0, zorder=1)
    for point in known:
        x, y = _place(point)
        colour = COLOURS[0] if point.on_front else MUTED
        face = colour if point.on_front else "white"
        marker = "s" if point is base else "o"
        axis.plot([x], [y], marker=marker, ms=6, ls="", color=colour, markerfacecolor=face, zorder=3)
    axis.margins(x=0.12, y=0.18)
    if all(x >= 0 for x, _ in map(_place, known)):  # no cost is below 0
        axis.set_xlim(left=max(0.0, axis.get_xlim()[0]))
    cost = f"{front.cost} ({front.cost_unit})" if front.cost_unit else front.cost
    axis.set_xlabel(fill(cost, TITLE_WIDTH))
    axis.set_ylabel(fill(front.quality, TITLE_WIDTH // 2))
    axis.xaxis.set_major_locator(MaxNLocator(3))
    axis.yaxis.set_major_locator(MaxNLocator(5))
    plain_numbers(axis.xaxis)


def _place_numbers(axis: Axes, front: Front, numbers: Mapping[str, int]) -> None:
    """Write the number of each point beside it, with a line to it where the next free place is further away."""
    known = _known(front)
    inside = axis.get_window_extent()
    points = [tuple(axis.transData.transform(_place(point))) for point in known]
    angles = [math.pi / 4 + 2 * math.pi * step / ANGLES for step in range(ANGLES)]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in points]
    for point, (x, y) in zip(known, points, strict=True):
        text = str(numbers[side_name(point, front.factor)])
        size = 6 + 6 * len(text), 11
        for radius, angle in product(RADII_PX, angles):  # the near ones first, from its upper right on
            left, low = x + radius * math.cos(angle) - size[0] / 2, y + radius * math.sin(angle) - size[1] / 2
            box = Bbox.from_bounds(left, low, *size)
            within = inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1)
            if within and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
        middle = axis.transData.inverted().transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        far = {"arrowstyle": "-", "lw": 0.5, "color": MUTED, "shrinkA": 3, "shrinkB": 2}
        line = far if radius > RADII_PX[1] else None
        axis.annotate(text, _place(point), xytext=tuple(middle), arrowprops=line, **NUMBER)


def _place(point: FrontPoint) -> tuple[float, float]:
    return float(point.cost or 0.0), float(point.quality or 0.0)


def _table(front: Front, title: str) -> Table:
    points = front.points
    chance = "probability" if front.blocks > 1 else "probability (quality alone)"
    columns = (
        column(front.factor, [side_name(point, front.factor) for point in points]),
        figures(front.quality, [point.quality for point in points], shown=score_text),
        figures("95 % interval", [span(point.quality_low, point.quality_high) for point in points]),
        figures(front.cost, [point.cost for point in points], front.cost_unit, why="no place"),
        figures("to baseline", [point.ratio for point in points], shown=lambda ratio: f"{ratio:.2f} x"),
        column("on the front", ["yes" if point.on_front else "no" for point in points]),
        figures(chance, [point.probability for point in points], shown=share),
        column("within the margin", [_within(front, index) for index in range(len(points))]),
    )
    notes = [front_note(front)]
    notes += [f"{side_name(point, front.factor)} has no place: {point.reason}." for point in points if point.reason]
    return Table(columns=columns, caption=title, footnotes=tuple(notes))


def _within(front: Front, place: int) -> str:
    if place == 0:
        return "baseline"
    not_worse = front.points[place].not_worse
    return "no margin stated" if not_worse is None else "shown" if not_worse else "not shown"
