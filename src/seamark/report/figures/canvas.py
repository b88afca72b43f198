"""Theme of all figures on seaborn (palette, markers, dashes), axes, and their SVG and PNG forms. No data here."""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from seamark.model.service import Value
from seamark.report.numbers import level, number
from seamark.report.ordering import numeric
from seamark.report.page.content import Picture
from seamark.storage.redaction import visible

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's palette, without its yellow, which does not show on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("", (5, 2), (1.2, 1.4), (6, 2, 1.2, 2), (3, 1.4), "", (8, 2))
"""As seaborn has them: colour, marker and dashes each distinguish a curve alone; they repeat after seven."""
CSS_PX_PER_IN = 96
_ELEMENT = re.compile(rb"<[A-Za-z][^<>]*>")
_GEOMETRY = re.compile(rb'\s(?:d|points|x|y|x1|x2|y1|y2|cx|cy|r|width|height|transform)="[^"]*"')
_RECTANGLE = re.compile(rb"M (\S+) (\S+) \nL (\S+) \2 \nL \3 (\S+) \nL \1 \4 \n(?:L \1 \2 \n)?z")
_LONG = re.compile(rb"-?\d+\.\d{3,}(?![\de])")
INK, MUTED, SHADE = "#1c2330", "#5b6472", "#dfeaf3"

STYLE: Any = {
    "text.parse_math": False,  # a `$` in a name is no formula
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3af",
    "grid.color": "#e3e6ea",
    **dict.fromkeys(("axes.labelcolor", "text.color"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("xtick.bottom", "ytick.left"), True),
    **dict.fromkeys(("font.size", "axes.labelsize"), 8.5),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3),
    **dict.fromkeys(("xtick.major.width", "ytick.major.width", "axes.linewidth", "grid.linewidth"), 0.8),
    "axes.titlesize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "seamark",
    "axes.formatter.useoffset": False,
}


@contextmanager
def theme() -> Iterator[None]:
    """Draw in the house theme, without a display; figures of pyplot are closed at the end, settings restored."""
    plt.switch_backend("agg")
    laid_out = sns.axisgrid.Grid.tight_layout
    # seaborn lays a grid out three times, a quarter of the time of a report; `picture_of` does so again at the end
    sns.axisgrid.Grid.tight_layout = lambda grid, *_, **__: grid
    try:
        with mpl.rc_context({**sns.axes_style("whitegrid"), **sns.plotting_context("paper"), **STYLE}):
            yield
            plt.close("all")
    finally:
        sns.axisgrid.Grid.tight_layout = laid_out


@contextmanager
def drawing(width_in: float, height_in: float) -> Iterator[Figure]:
    """Yield an empty figure in the house theme."""
    with theme():
        yield plt.figure(figsize=(width_in, height_in), layout="constrained")


def looks(curves: Sequence[str]) -> dict[str, Any]:
    """Return seaborn's arguments that give each curve its colour and dashes; more than seven begin again."""
    count = range(len(curves))
    return {
        "hue_order": curves,
        "style_order": curves,
        "palette": [COLOURS[index % len(COLOURS)] for index in count],
        "dashes": [DASHES[index % len(DASHES)] for index in count],
        "markers": [MARKERS[index % len(MARKERS)] for index in count],
    }


def picture_of(figure: Figure, name: str, *, alt: str, caption: str) -> Picture:
    """Return `figure` as SVG and PNG; the same data give the same bytes."""
    engine = figure.get_layout_engine()
    if engine is not None:  # once, and not again for each format
        engine.execute(figure)
        figure.set_layout_engine(None)
    drawn, png = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png", dpi=130, metadata={"Software": None})
    svg = visible(shortened(drawn.getvalue()).decode()).encode()
    width_px, height_px = (round(CSS_PX_PER_IN * inches) for inches in figure.get_size_inches())
    size = {"width_px": width_px, "height_px": height_px}
    return Picture(name=name, alt=alt, caption=caption, svg=svg, png=png.getvalue(), **size)


def shortened(svg: bytes) -> bytes:
    """Return an SVG with coordinates rounded to hundredths of a point: half of the size of a dense figure.

    Only geometry attributes of elements are touched, never text. Factors of a scale or matrix keep their digits, as
    they are multiplied by a length. Rectangles are written by their sides: a third of their length.
    """
    return _RECTANGLE.sub(
        rb"M\1 \2H\3V\4H\1z", _ELEMENT.sub(lambda element: _GEOMETRY.sub(_rounded, element[0]), svg)
    )


def _rounded(attribute: re.Match[bytes]) -> bytes:
    if b"scale" in attribute[0] or b"matrix" in attribute[0]:
        return attribute[0]
    return _LONG.sub(lambda number: f"{float(number[0]):.2f}".encode(), attribute[0])


def plain_numbers(axis: Axis) -> None:
    """Write an axis' ticks as 0.5, 20, 3,000 and not as powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def log_ticks(axis: Axis, low: float, high: float) -> None:
    """Label a logarithmic axis at 1, 2, 5 of each decade, or at decades only where it spans many."""
    decades = math.log10(high / low)
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if decades < 3.2 else (1.0,)
    if decades < 0.9:
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=20))
    plain_numbers(axis)
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
            plain_numbers(axis.yaxis)


def places_of(levels: Sequence[Value]) -> dict[Value, float]:
    """Return where each level of a factor stands on the x axis: a number at itself, words side by side."""
    if numeric(levels):
        return {value: float(value) for value in levels}  # type: ignore[arg-type]
    return {value: float(index) for index, value in enumerate(levels)}


def level_axis(axis: Axes, levels: Sequence[Value], name: str) -> None:
    """Set the x axis up for a factor's levels; numbers that grow by factors stand on a logarithmic axis."""
    places = places_of(levels)
    labels = [level(value, name) for value in places]
    if numeric(levels):
        values = sorted(places.values())
        gap = (values[-1] - values[0]) / 2 / max(1, len(values) - 1) if len(values) < 4 else 0.0
        if geometric(values):
            axis.set_xscale("log")
            axis.xaxis.set_minor_locator(NullLocator())
            ratio = (values[-1] / values[0]) ** (0.5 / (len(values) - 1)) if len(values) < 4 else 1.25
            axis.set_xlim(values[0] / ratio, values[-1] * ratio)
        elif gap:
            axis.set_xlim(values[0] - gap, values[-1] + gap)
        if len(labels) > 7:
            labels = [label if index % 2 == 0 else "" for index, label in enumerate(labels)]
    else:
        axis.set_xlim(-0.5, len(places) - 0.5)
    steep = len(labels) > 6 and max(map(len, labels)) > 6
    turned: dict[str, Any] = {"rotation": 90} if steep else {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
    axis.set_xticks(list(places.values()), labels, **(turned if sum(map(len, labels)) > 34 else {}))
    axis.set_xlabel(name)


def geometric(values: Sequence[float]) -> bool:
    """Return whether levels belong on a logarithmic axis: positive, growing by similar ratios of 1.5 or more.

    Two levels do when one is at least twice the other.
    """
    if len(values) < 2 or min(values) <= 0:
        return False
    ordered = sorted(values)
    ratios = [later / earlier for earlier, later in pairwise(ordered)]
    return min(ratios) >= 1.5 and max(ratios) / min(ratios) <= 4
