"""Throughput and response time of one workload against each of its factors: x axis, curves and panels."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes

from seamark.model.plurals import counted
from seamark.model.service import Value
from seamark.report.figures.canvas import INK, drawing, level_axis, look, scale_y, written
from seamark.report.numbers import ARROW_NOTE, level, unit_words
from seamark.report.ordering import levels_of, numeric
from seamark.report.page.content import Block
from seamark.report.source import Document, Results, TrialRecord
from seamark.report.tables.search import knee_blocks

PREFERRED = ("concurrency", "rate_rps", "clients", "threads", "batch", "batch_size", "gpus", "nodes")
"""Factors preferred for the x axis, best first."""
MOST_CURVES = 7


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Layout of a figure: one factor along x, one as curves, the others as panels."""

    x: str
    curves: str | None
    panels: tuple[str, ...]
    levels: Mapping[str, tuple[Value, ...]]

    def panel_keys(self) -> list[tuple[Value, ...]]:
        """Return every combination of the panels' levels, in order."""
        keys: list[tuple[Value, ...]] = [()]
        for name in self.panels:
            keys = [(*key, value) for key in keys for value in self.levels[name]]
        return keys

    def panel_of(self, treatment: Document) -> tuple[Value, ...]:
        """Return the combination a treatment belongs to."""
        factors = treatment.get("factors") or {}
        return tuple(factors.get(name) for name in self.panels)

    def title(self, key: tuple[Value, ...]) -> str:
        """Return a panel's title."""
        return "\n".join(f"{name} = {level(value, name)}" for name, value in zip(self.panels, key, strict=True))

    def curves_of(self, treatments: Sequence[Document]) -> list[tuple[int, str, list[Document]]]:
        """Split treatments into curves: index of its look, label, treatments by x."""

        def at(treatment: Document) -> int:
            return self.levels[self.x].index(treatment["factors"].get(self.x))

        if self.curves is None:
            return [(0, "", sorted(treatments, key=at))]
        return [
            (
                index,
                level(value, self.curves),
                sorted((t for t in treatments if t["factors"].get(self.curves) == value), key=at),
            )
            for index, value in enumerate(self.levels[self.curves])
        ]


def independent(
    levels: Mapping[str, tuple[Value, ...]], treatments: Sequence[Document]
) -> tuple[dict[str, tuple[Value, ...]], dict[str, str]]:
    """Return the factors without dependent ones, and for each dependent one the factor that determines it.

    Where small blocks are always read at random and large ones in sequence, one of both tells everything.
    """
    kept: dict[str, tuple[Value, ...]] = {}
    follows: dict[str, str] = {}
    for name in order_of(levels):
        for other in kept:
            pairs = {((t.get("factors") or {}).get(other), (t.get("factors") or {}).get(name)) for t in treatments}
            if len(pairs) == len(levels[other]) == len(levels[name]):
                follows[name] = other
                break
        else:
            kept[name] = levels[name]
    return kept, follows


def order_of(levels: Mapping[str, tuple[Value, ...]]) -> list[str]:
    """Return the factors, best for the x axis first."""

    def rank(name: str) -> tuple[int, int, int]:
        preferred = PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)
        return (preferred, 0 if numeric(levels[name]) else 1, -len(levels[name]))

    return sorted(levels, key=rank)


def grid_for(levels: Mapping[str, tuple[Value, ...]], x: str) -> Grid:
    """Return the layout with `x` along the x axis; curves are the factor with most levels, up to MOST_CURVES."""
    rest = [name for name in order_of(levels) if name != x]
    few = [name for name in rest if len(levels[name]) <= MOST_CURVES]
    curves = max(few, key=lambda name: len(levels[name])) if few else None
    return Grid(x=x, curves=curves, panels=tuple(name for name in rest if name != curves), levels=levels)


MOST_COLUMNS, MOST_PANELS, MOST_FIGURES = 4, 8, 4
MOST_NAMED = 3

Repeated = Mapping[str, Sequence[TrialRecord]]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A metric of a trial, whether it is a lower bound, and the style of its points and line."""

    value: Callable[[TrialRecord], float | None]
    bound: Callable[[TrialRecord], bool] = lambda trial: False
    line_width: float = 1.6
    hollow: bool = False


THROUGHPUT = (Measure(value=lambda trial: trial.throughput),)


def _percentile(name: str, *, line_width: float, hollow: bool) -> Measure:
    return Measure(
        value=lambda trial: trial.latency_ms.get(name),
        bound=lambda trial: name in (trial.latency_ms.get("lower_bounds") or ()),
        line_width=line_width,
        hollow=hollow,
    )


RESPONSE = (
    _percentile("p50", line_width=1.6, hollow=False),
    _percentile("p99", line_width=0.9, hollow=True),
)
AT_LEAST = "$\\uparrow$"
"""Marker of a point that is a lower bound."""


def factor_pictures(
    results: Results, workload: str, treatments: Sequence[Document], stem: str, folder: Path
) -> list[Block]:
    """Draw a figure for each factor of a workload: throughput, response time, a column for each panel. Below one of a
    sweep of load stands where its knee is."""
    varying = {name: values for name, values in levels_of(treatments).items() if len(values) > 1}
    levels, follows = independent(varying, treatments)
    repeated = {str(t["treatment"]): [trial for trial in results.trials_of(t) if trial.ok] for t in treatments}
    if not any(repeated.values()):
        return []
    grids = [grid_for(levels, x) for x in order_of(levels)[:MOST_FIGURES]]
    note = "".join(f" {name} varies with {other} only." for name, other in follows.items())
    blocks: list[Block] = []
    for grid in grids:
        knees = knees_of(results, workload, grid.x)
        blocks.append(_picture(grid, workload, treatments, repeated, stem, folder, note, knees))
        blocks += knee_blocks(knees)
    return blocks


def _picture(
    grid: Grid,
    workload: str,
    treatments: Sequence[Document],
    repeated: Repeated,
    stem: str,
    folder: Path,
    note: str,
    knees: Sequence[Document],
) -> Block:
    keys = [key for key in grid.panel_keys() if any(grid.panel_of(t) == key for t in treatments)]
    shown = keys[:MOST_PANELS]
    count = len(shown)
    with drawing(*_size(count)) as figure:
        tops, bottoms, columns = _axes(figure.subplots, count)
        for axes, measures in ((tops, THROUGHPUT), (bottoms, RESPONSE)):
            seen: list[float] = []
            for axis, key in zip(axes, shown, strict=True):
                own = [t for t in treatments if grid.panel_of(t) == key]
                seen += _draw(axis, grid, own, repeated, measures)
                _mark_knees(axis, grid, own, knees, rises=measures is THROUGHPUT)
            scale_y(axes, seen, log_beyond=20)
            _outer_labels(axes, columns)
        if count == 1:
            tops[0].set_title("Throughput")
            bottoms[0].set_title("Response time, p50 and p99")
        else:
            for axis, key in zip(tops, shown, strict=True):
                axis.set_title(grid.title(key), fontsize=8)
            for axis, key in zip(bottoms, shown, strict=True):
                axis.set_title(grid.title(key) if count > columns else "", fontsize=8)
            for axis in tops:
                axis.set_xlabel("")
        unit = next((trial.unit for trials in repeated.values() for trial in trials if trial.unit), "")
        for place in range(0, count, columns):
            tops[place].set_ylabel(unit_words(unit))
            bottoms[place].set_ylabel("response time (ms)")
        if grid.curves:
            handles, labels = tops[0].get_legend_handles_labels()
            figure.legend(
                handles,
                [f"{grid.curves} {label}" for label in labels],
                loc="outside upper left",
                ncols=_legend_columns(labels, grid.curves),
            )
        left_out = (
            f" Not drawn: {len(keys) - count} of {counted(len(keys), 'combination')}." if len(keys) > count else ""
        )
        bounded = any(each.bound(trial) for trials in repeated.values() for trial in trials for each in RESPONSE)
        arrows = ARROW_NOTE if bounded else ""
        return written(
            figure,
            folder,
            f"{stem}-by-{grid.x.replace('_', '-')}",
            alt=f"Throughput and response time of {workload} against {grid.x}",
            caption=f"Against {grid.x}: a point for each repetition, lines at the medians. Response time: filled and "
            f"thick is p50; hollow and thin is p99, left out where it is withheld.{arrows}{_said_of(knees)}{note}"
            f"{left_out}",
        )


def _legend_columns(labels: Sequence[str], name: str) -> int:
    """Return the columns of a legend: as many as fit, in rows of equal length."""
    most = 5 if len(name) < 14 and max(map(len, labels), default=0) < 8 else 3 if len(name) >= 14 else 4
    return math.ceil(len(labels) / max(1, math.ceil(len(labels) / most)))


def _size(count: int) -> tuple[float, float]:
    columns = min(count, MOST_COLUMNS)
    return (8.4, 2.7) if count == 1 else (max(8.4, 2.7 * columns), 0.7 + 3.5 * math.ceil(count / columns))


def _axes(subplots: Callable[..., object], count: int) -> tuple[list[Axes], list[Axes], int]:
    """Return the axes for throughput and for response time, and how many stand in a row."""
    if count == 1:
        pair = list(np_flat(subplots(1, 2, squeeze=False)))
        return pair[:1], pair[1:], 1
    columns = min(count, MOST_COLUMNS)
    rows = math.ceil(count / columns)
    every = list(np_flat(subplots(2 * rows, columns, squeeze=False)))
    halves = every[: rows * columns], every[rows * columns :]
    for half in halves:
        for unused in half[count:]:
            unused.remove()
    return halves[0][:count], halves[1][:count], columns


def np_flat(axes: object) -> list[Axes]:
    """Return an array of axes as a list, row by row."""
    return list(axes.flat)  # type: ignore[attr-defined]


def _draw(
    axis: Axes, grid: Grid, treatments: Sequence[Document], repeated: Repeated, measures: Sequence[Measure]
) -> list[float]:
    """Draw one panel and return the values in it. Words on the x axis get short bars, not lines between them."""
    places = level_axis(axis, grid.levels[grid.x], grid.x)
    ordered = numeric(grid.levels[grid.x])
    curves = grid.curves_of(treatments)
    apart = min(0.3, 0.8 / max(1, len(curves)))
    seen: list[float] = []
    for index, label, own in curves:
        style = look(index)
        aside = 0.0 if ordered else apart * (index - (len(curves) - 1) / 2)
        for measure in measures:
            medians = []
            for treatment in own:
                at = places[treatment["factors"][grid.x]] + aside
                trials = repeated[str(treatment["treatment"])]
                found = [
                    (value, measure.bound(trial)) for trial in trials if (value := measure.value(trial)) is not None
                ]
                values = [value for value, _ in found]
                face = "white" if measure.hollow else style.colour
                for marker, bounds in ((style.marker, False), (AT_LEAST, True)):
                    own_values = [value for value, bound in found if bound is bounds]
                    places_x = [at] * len(own_values)
                    axis.plot(
                        places_x, own_values, ls="", marker=marker, color=style.colour, mfc=face, alpha=0.85, zorder=3
                    )
                if values:
                    medians.append((at, median(values)))
                    seen += values
            if ordered:
                at_x, middle = [at for at, _ in medians], [value for _, value in medians]
                axis.plot(at_x, middle, ls=style.dashes, color=style.colour, lw=measure.line_width)
            else:
                for at, value in medians:
                    axis.plot(
                        [at - 0.4 * apart, at + 0.4 * apart],
                        [value, value],
                        color=style.colour,
                        lw=measure.line_width,
                    )
        drawn = style.dashes if ordered else "none"
        axis.plot([], [], ls=drawn, marker=style.marker, color=style.colour, label=label)
    return seen


def _mark_knees(
    axis: Axes, grid: Grid, treatments: Sequence[Document], knees: Sequence[Document], *, rises: bool
) -> None:
    """Mark the knee of each curve; curves that bend at the same level share a line."""
    if not knees or not numeric(grid.levels[grid.x]):
        return
    places = {value: float(value) for value in grid.levels[grid.x] if isinstance(value, int | float)}
    found: dict[float, list[tuple[int, str]]] = {}
    for index, label, own in grid.curves_of(treatments):
        bends = knee_of(knees, own[0]["factors"]) if own else None
        if bends is not None:
            found.setdefault(places[bends["knee"]], []).append((index, label))
    for place, (x, curves) in enumerate(sorted(found.items())):
        named = [label for _, label in curves if label]
        of = ", ".join(named) if len(named) <= MOST_NAMED else f"{len(named)} curves"
        text = f"knee {level(x if x % 1 else int(x), grid.x)}" + (f" ({of})" if of else "")
        mark(axis, x, text, look(curves[0][0]).colour, place, rises=rises)


def _said_of(knees: Sequence[Document]) -> str:
    return " Dotted lines mark knees." if any(found["knee"] is not None for found in knees) else ""


def _outer_labels(axes: Sequence[Axes], columns: int) -> None:
    """Label only the outer axes of a grid."""
    for place, axis in enumerate(axes):
        axis.tick_params(labelleft=place % columns == 0)
        if place + columns < len(axes):
            axis.set_xlabel("")
            axis.tick_params(labelbottom=False)


STEP = 0.11
"""Vertical distance of the labels of several curves, as a share of the axis."""


def knees_of(results: Results, workload: str, factor: str) -> list[Document]:
    """Return the knees in summary.json of a workload's sweeps by `factor`."""
    every = results.summary.get("knees") or ()
    return [found for found in every if (found["workload"], found["factor"]) == (workload, factor)]


def knee_of(knees: Sequence[Document], factors: Mapping[str, object]) -> Document | None:
    """Return the knee of the sweep that a treatment with these factors belongs to; None without one."""
    for found in knees:
        if found["knee"] is not None and all(factors.get(name) == value for name, value in found["fixed"].items()):
            return found
    return None


def mark(axis: Axes, x: float, label: str, colour: str, place: int, *, rises: bool) -> None:
    """Draw a dotted line at a knee, with its label; `place` counts the marks of one panel. The label keeps off the
    curve: right of the line and low where what is drawn `rises` up to the knee, else high and on the left."""
    axis.axvline(x, color=colour, lw=1.1, ls=(0, (1, 1.6)), zorder=2)
    across = axis.transAxes.inverted().transform(axis.transData.transform((x, 1.0)))[0]
    left = not rises and across > 0.3
    axis.annotate(
        label,
        (x, 0.1 + STEP * place if rises else 0.97 - STEP * place),
        (-3 if left else 3, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=7,
        color=INK,
        va="top",
        ha="right" if left else "left",
        bbox={"facecolor": "white", "edgecolor": colour, "linewidth": 0.6, "pad": 1.2, "alpha": 0.9},
        zorder=4,
    )
