"""Style of all figures (colours, markers, dashes), axes, and their SVG and PNG files. No data here."""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from seamark.model.service import Value
from seamark.report.numbers import level, number
from seamark.report.ordering import numeric
from seamark.report.page.content import Picture

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's palette, without its yellow, which does not show on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.4)), "-", (0, (8, 2)))
CSS_PX_PER_IN = 96
_ELEMENT = re.compile(rb"<[A-Za-z][^<>]*>")
_GEOMETRY = re.compile(rb'\s(?:d|points|x|y|x1|x2|y1|y2|cx|cy|r|width|height|transform)="[^"]*"')
_LONG = re.compile(rb"-?\d+\.\d{3,}(?![\de])")
INK, MUTED, GRID, SHADE = "#1c2330", "#5b6472", "#e3e6ea", "#dfeaf3"

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa3af",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    "svg.hashsalt": "seamark",
    "path.simplify": True,
    "axes.formatter.useoffset": False,
}


@dataclass(frozen=True, kw_only=True)
class Look:
    """Colour, marker and dashes of one curve; each alone distinguishes it."""

    colour: str
    marker: str
    dashes: object


def look(index: int) -> Look:
    """Return the look of the curve at `index`; it repeats after seven."""
    return Look(
        colour=COLOURS[index % len(COLOURS)],
        marker=MARKERS[index % len(MARKERS)],
        dashes=DASHES[index % len(DASHES)],
    )


@contextmanager
def drawing(width_in: float, height_in: float) -> Iterator[Figure]:
    """Yield an empty figure in the house style, without changes of global state."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def written(figure: Figure, folder: Path, name: str, *, alt: str, caption: str) -> Picture:
    """Write `figure` as `name`.svg and `name`.png below `folder`; the same data give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = figure.get_layout_engine()
    if engine is not None:  # once, and not again for each format
        engine.execute(figure)
        figure.set_layout_engine(None)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = shortened(buffer.getvalue())
    (folder / f"{name}.svg").write_bytes(svg)
    figure.savefig(folder / f"{name}.png", dpi=130, metadata={"Software": None})
    width_px, height_px = (round(CSS_PX_PER_IN * inches) for inches in figure.get_size_inches())
    return Picture(name=name, alt=alt, caption=caption, svg=svg, width_px=width_px, height_px=height_px)


def shortened(svg: bytes) -> bytes:
    """Return an SVG with coordinates rounded to hundredths of a point: half of the size of a dense figure.

    Only geometry attributes of elements are touched, never text. Factors of a scale or matrix keep their digits, as
    they are multiplied by a length.
    """
    return _ELEMENT.sub(lambda element: _GEOMETRY.sub(_rounded, element[0]), svg)


def _rounded(attribute: re.Match[bytes]) -> bytes:
    if b"scale" in attribute[0] or b"matrix" in attribute[0]:
        return attribute[0]
    return _LONG.sub(lambda number: f"{float(number[0]):.2f}".encode(), attribute[0])


def panels(figure: FigureBase, count: int, *, columns: int = 3, sharey: bool = True) -> list[Axes]:
    """Return `count` axes in rows of at most `columns`."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    return axes[:count]


def plain_numbers(axis: Axes, *, x: bool = False, y: bool = False) -> None:
    """Write an axis' ticks as 0.5, 20, 3,000 and not as powers of ten."""
    for wanted, which in ((x, axis.xaxis), (y, axis.yaxis)):
        if wanted:
            which.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis at 1, 2, 5 of each decade, or at decades only where it spans many."""
    decades = math.log10(high / low)
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 3.2 else (1.0,)
    if decades < 0.9:
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_locator(NullLocator())


def _tick(value: float) -> str:
    if value and abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    if value and abs(value) >= 1e5:
        return f"{value / 1e3:g} k"
    return f"{value:,g}" if abs(value) < 1e5 else number(value)


def scale_y(axes: Sequence[Axes], values: Sequence[float], *, log_beyond: float, room: float = 1.08) -> None:
    """Give all axes one y scale: from zero with `room` above, or logarithmic where positive values span more than a
    factor of `log_beyond`."""
    positive = [value for value in values if value > 0]
    if not positive:
        return
    for axis in axes:
        if max(positive) / min(positive) > log_beyond:
            axis.set_yscale("log")
            axis.set_ylim(min(positive) / 1.4, max(positive) * 1.4)
            log_ticks(axis.yaxis, min(positive), max(positive))
        else:
            axis.set_ylim(0, room * max(positive))
            plain_numbers(axis, y=True)


def level_axis(axis: Axes, levels: Sequence[Value], name: str) -> dict[Value, float]:
    """Set the x axis up for a factor's levels and return where each stands.

    Numbers that grow by factors stand on a logarithmic axis, other numbers on a linear one, words side by side.
    """
    places: dict[Value, float]
    if numeric(levels):
        places = {value: float(value) for value in levels if value is not None and not isinstance(value, str)}
        values = sorted(places.values())
        if geometric(values):
            axis.set_xscale("log")
            axis.xaxis.set_minor_locator(NullLocator())
            if len(values) > 1:
                gap = (values[-1] / values[0]) ** (0.5 / max(1, len(values) - 1)) if len(values) < 4 else 1.25
                axis.set_xlim(values[0] / gap, values[-1] * gap)
        elif len(values) > 1:
            gap = 0.5 * (values[-1] - values[0]) / max(1, len(values) - 1) if len(values) < 4 else 0.0
            if gap:
                axis.set_xlim(values[0] - gap, values[-1] + gap)
    else:
        places = {value: float(index) for index, value in enumerate(levels)}
        axis.set_xlim(-0.5, len(places) - 0.5)
    labels = [level(value, name) for value in places]
    if numeric(levels) and len(labels) > 7:
        labels = [label if place % 2 == 0 else "" for place, label in enumerate(labels)]
    axis.set_xticks(list(places.values()), labels)
    if sum(map(len, labels)) > 34:
        steep = len(labels) > 6 and max(map(len, labels)) > 6
        for text in axis.get_xticklabels():
            text.set(rotation=90 if steep else 25, ha="center" if steep else "right", rotation_mode="anchor")
            if steep:
                text.set(rotation_mode="default")
    axis.set_xlabel(name)
    return places


def geometric(values: Sequence[float]) -> bool:
    """Return whether levels belong on a logarithmic axis: positive, growing by similar ratios of 1.5 or more.

    Two levels do when one is at least twice the other.
    """
    if len(values) < 2 or min(values) <= 0:
        return False
    ordered = sorted(values)
    ratios = [later / earlier for earlier, later in pairwise(ordered)]
    return min(ratios) >= 1.5 and max(ratios) / min(ratios) <= 4
