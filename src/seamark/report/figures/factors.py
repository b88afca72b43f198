"""Throughput and response time of one workload against each of its factors: x axis, curves and panels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path as Outline

from seamark.model.plurals import counted
from seamark.model.results.summary import Knee, SummaryRow
from seamark.model.service import Value
from seamark.report.figures.canvas import (
    COLOURS,
    DASHES,
    INK,
    MARKERS,
    level_axis,
    looks,
    picture_of,
    places_of,
    scale_y,
    theme,
)
from seamark.report.numbers import ARROW_NOTE, level, unit_of, unit_words
from seamark.report.ordering import levels_of, numeric
from seamark.report.page.content import Block, Picture
from seamark.report.page.search import knee_blocks
from seamark.report.source import Results, ShownWorkload

PREFERRED = ("concurrency", "rate_rps", "clients", "threads", "batch", "batch_size", "gpus", "nodes")
"""Factors preferred for the x axis, best first."""
MOST_CURVES, MOST_PANELS, MOST_FIGURES = 7, 4, 4
MOST_NAMED = 3
RESPONSE_NOTE = " Response time: filled and thick is p50; hollow and thin is p99, left out where it is withheld."
TITLES = {"throughput": "Throughput", "response": "Response time, p50 and p99"}
WIDTHS = {"throughput": 1.6, "p50": 1.6, "p99": 0.9}
AT_LEAST = Outline(
    [(-0.12, -1), (0.12, -1), (0.12, 0.2), (0.45, 0.2), (0, 1), (-0.45, 0.2), (-0.12, 0.2), (-0.12, -1)], closed=True
)
"""Marker of a point that is a lower bound: an arrow up."""
STEP = 0.11
"""Vertical distance of the labels of several knees, as a share of the axis."""

Levels = Mapping[str, Sequence[Value]]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Layout of a figure: one factor along x, one as curves, the others as panels."""

    x: str
    curves: str | None
    panels: tuple[str, ...]
    levels: Levels


def factor_blocks(workload: ShownWorkload) -> list[Block]:
    """Draw figures for each factor of a workload: throughput, response time, a column for each panel. Below one of a
    sweep of load stands where its knee is."""
    results, treatments = workload.results, workload.treatments
    varying = {
        name: values if all(name in t.factors for t in treatments) or None in values else (None, *values)
        for name, values in levels_of(treatments).items()
        if len(values) > 1
    }
    frame = measured(results, treatments)
    if frame.empty:
        return []
    levels, follows = independent(varying, treatments)
    note = "".join(f" {name} varies with {other} only." for name, other in follows.items())
    blocks: list[Block] = []
    for x in order_of(levels)[:MOST_FIGURES]:
        knees = [knee for knee in results.summary.knees if (knee.workload, knee.factor) == (workload.name, x)]
        blocks += _pictures(grid_for(levels, x), workload, frame, note, knees)
        blocks += knee_blocks(knees)
    return blocks


def measured(results: Results, treatments: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return a row for each figure of a good trial: `measure`, `value`, `bound` (it is the lower end of a range),
    `row` of the figure, `unit`, and `factor_NAME` for each factor. A p99 that only all repetitions together have
    samples enough for, as in the tables, is one row."""
    trials = results.frame[results.frame["ok"] & results.frame["treatment"].isin([t.treatment for t in treatments])]
    factors = [name for name in trials if name.startswith("factor_")]
    trials = pd.concat([trials, _pooled(trials, treatments)], ignore_index=True)
    frame = trials.melt([*factors, "unit", "bounds"], list(WIDTHS), "measure").dropna(subset="value")
    for name in factors:  # a workload of the same service may have other factors
        frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
    frame["bound"] = [name in bounds for name, bounds in zip(frame["measure"], frame["bounds"], strict=True)]
    frame["row"] = frame["measure"].where(frame["measure"] == "throughput", "response")
    return frame


def _pooled(trials: pd.DataFrame, treatments: Sequence[SummaryRow]) -> pd.DataFrame:
    """Return a row with the pooled p99 of each treatment of which no trial has one."""
    rows = []
    for row in treatments:
        repetitions = trials[trials["treatment"] == row.treatment]
        if (
            len(repetitions)
            and repetitions["p99"].isna().all()
            and row.latency_ms is not None
            and row.latency_ms.p99 is not None
        ):
            bounds = ["p99"] if row.latency_ms.is_range("p99") else []
            factors = {name: repetitions.iloc[0][name] for name in trials if name.startswith("factor_")}
            rows.append({**factors, "unit": repetitions.iloc[0]["unit"], "bounds": bounds, "p99": row.latency_ms.p99})
    return pd.DataFrame(rows, columns=list(trials))


def independent(
    levels: Levels, treatments: Sequence[SummaryRow]
) -> tuple[dict[str, Sequence[Value]], dict[str, str]]:
    """Return the factors without dependent ones, and for each dependent one the factor that determines it.

    Where small blocks are always read at random and large ones in sequence, one of both tells everything.
    """
    frame = pd.DataFrame([{name: t.factors.get(name) for name in levels} for t in treatments], dtype=object)
    kept: dict[str, Sequence[Value]] = {}
    follows: dict[str, str] = {}
    for name in order_of(levels):
        same = (other for other in kept if len(levels[other]) == len(levels[name]))
        other = next(
            (factor for factor in same if len(frame[[factor, name]].drop_duplicates()) == len(levels[name])), None
        )
        if other is None:
            kept[name] = levels[name]
        else:
            follows[name] = other
    return kept, follows


def order_of(levels: Levels) -> list[str]:
    """Return the factors, best for the x axis first."""

    def rank(name: str) -> tuple[int, int, int]:
        preferred = PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)
        return (preferred, 0 if numeric(levels[name]) else 1, -len(levels[name]))

    return sorted(levels, key=rank)


def grid_for(levels: Levels, x: str) -> Grid:
    """Return the layout with `x` along the x axis; curves are the factor with most levels, up to MOST_CURVES."""
    rest = [name for name in order_of(levels) if name != x]
    few = [name for name in rest if len(levels[name]) <= MOST_CURVES]
    curves = max(few, key=lambda name: len(levels[name])) if few else None
    return Grid(x=x, curves=curves, panels=tuple(name for name in rest if name != curves), levels=levels)


def _placed(grid: Grid, frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Return the frame with the columns `panel`, `curve` and `at`, its place on the x axis, and the labels of panels
    and curves in order. Of a factor of words the curves stand side by side."""
    places = [[grid.levels[name].index(value) for value in frame[f"factor_{name}"]] for name in grid.panels]
    frame = frame.iloc[sorted(range(len(frame)), key=lambda row: [column[row] for column in places])].copy()
    named = [[f"{name} = {level(value, name)}" for value in frame[f"factor_{name}"]] for name in grid.panels]
    frame["panel"] = ["\n".join(names) for names in zip(*named, strict=True)] if named else ""
    curves = [level(value, grid.curves) for value in grid.levels[grid.curves]] if grid.curves else [""]
    frame["curve"] = [level(value, grid.curves) for value in frame[f"factor_{grid.curves}"]] if grid.curves else ""
    frame["at"] = frame[f"factor_{grid.x}"].map(places_of(grid.levels[grid.x])).astype(float)
    if not numeric(grid.levels[grid.x]):
        frame["at"] += _apart(curves) * (frame["curve"].map(curves.index) - (len(curves) - 1) / 2)
    return frame, list(frame["panel"].unique()), curves


def _apart(curves: Sequence[str]) -> float:
    return min(0.3, 0.8 / len(curves))


def _pictures(
    grid: Grid, workload: ShownWorkload, frame: pd.DataFrame, note: str, knees: Sequence[Knee]
) -> list[Picture]:
    frame, panels, curves = _placed(grid, frame)
    times = frame["row"] == "response"
    unit_of_times, factor = unit_of(frame.loc[times, "value"].dropna())
    frame.loc[times, "value"] *= factor
    unit = unit_words(next(filter(None, frame["unit"]), ""))
    said = " Dotted lines mark knees." if any(knee.knee is not None for knee in knees) else ""
    arrows = ARROW_NOTE if frame["bound"].any() else ""
    titles = {row: title for row, title in TITLES.items() if (frame["row"] == row).any()}
    shown = [panels[at : at + MOST_PANELS] for at in range(0, len(panels), MOST_PANELS)]
    if len(shown) > MOST_FIGURES:
        note += f" Not drawn: {len(panels) - MOST_PANELS * MOST_FIGURES} of {counted(len(panels), 'combination')}."
    pictures = []
    for index, group in enumerate(shown[:MOST_FIGURES], 1):
        with theme():
            if len(panels) == 1:
                size = {"height": 2.7, "aspect": 3.1 / len(titles)}
                layout = {"col": "row", "col_order": list(titles), "sharey": False}
            else:
                size = {"height": 2.1, "aspect": max(1.28, 4.0 / len(group))}
                layout = {
                    "row": "row",
                    "row_order": list(titles),
                    "col": "panel",
                    "col_order": group,
                    "sharey": "row",
                }
            facets = sns.FacetGrid(frame, despine=False, **layout, **size)
            facets.map_dataframe(_draw, grid, curves)
            facets.figure.set_layout_engine("constrained")
            rows = facets.axes.T if len(panels) == 1 else facets.axes
            for (row, title), axes in zip(titles.items(), rows, strict=True):
                scale_y(axes, frame.loc[frame["row"] == row, "value"], log_beyond=20)
                for axis, panel in zip(axes, group, strict=True):
                    level_axis(axis, grid.levels[grid.x], grid.x)
                    axis.set_title(title if len(panels) == 1 else panel if row == "throughput" else "")
                    bends = knees if numeric(grid.levels[grid.x]) else ()
                    _mark_knees(axis, grid, frame[frame["panel"] == panel], curves, bends, rises=row == "throughput")
                axes[0].set_ylabel(unit if row == "throughput" else f"response time ({unit_of_times})")
                if len(panels) > 1 and row != list(titles)[-1]:
                    for axis in axes:
                        axis.set_xlabel("")
            if grid.curves:
                _legend(facets.figure, curves, grid)
            pictures.append(
                picture_of(
                    facets.figure,
                    f"{workload.stem}-by-{grid.x.replace('_', '-')}{f'-{index}' if index > 1 else ''}",
                    alt=f"{' and '.join(titles).capitalize()} of {workload.name} against {grid.x}",
                    caption=f"Against {grid.x}: a point for each repetition, lines at the medians."
                    f"{RESPONSE_NOTE if 'response' in titles else ''}{arrows}{said}{note}",
                )
            )
    return pictures


def _draw(grid: Grid, curves: Sequence[str], *, data: pd.DataFrame, **_: Any) -> None:
    """Draw one panel. Medians of a factor of words are short bars, not lines between its levels."""
    axis, style = plt.gca(), looks(curves)
    place = {"x": "at", "y": "value", "hue": "curve", "legend": False, "ax": axis}
    colours = {name: style[name] for name in ("hue_order", "palette")}
    if numeric(grid.levels[grid.x]):
        lines = {name: style[name] for name in ("style_order", "dashes")}
        drawn = {"size": "measure", "sizes": WIDTHS, "estimator": "median", "errorbar": None}
        sns.lineplot(data, **place, **colours, style="curve", **lines, **drawn)
    else:
        middles = data.groupby(["curve", "at", "measure"], as_index=False)["value"].median()
        for name, width in WIDTHS.items():
            of_measure = middles[middles["measure"] == name]
            half = 0.4 * _apart(curves)
            axis.hlines(
                of_measure["value"],
                of_measure["at"] - half,
                of_measure["at"] + half,
                lw=width,
                colors=[style["palette"][curves.index(curve)] for curve in of_measure["curve"]],
            )
    forms = {"style": "curve", "style_order": curves, "markers": style["markers"], "s": 26, "alpha": 0.85}
    exact = data[~data["bound"]]
    for hollow, group in exact.groupby(exact["measure"] == "p99"):
        sns.scatterplot(group, **place, **colours, **forms, linewidth=1, zorder=3)
        points = axis.collections[-1]
        points.set_edgecolor(points.get_facecolor())
        if hollow:
            points.set_facecolor("white")
    if data["bound"].any():
        sns.scatterplot(data[data["bound"]], **place, **colours, marker=AT_LEAST, s=150, linewidth=0, zorder=3)


def _legend(figure: Any, curves: Sequence[str], grid: Grid) -> None:
    """Draw a legend with the marker, and where lines are drawn the dashes, of each curve, in rows of equal length."""
    name, ordered = str(grid.curves), numeric(grid.levels[grid.x])
    handles = [
        Line2D([], [], color=COLOURS[n], marker=MARKERS[n], ls=(0, DASHES[n] or ()) if ordered else "none")
        for n in range(len(curves))
    ]
    most = 5 if len(name) < 14 and max(map(len, curves)) < 8 else 3 if len(name) >= 14 else 4
    columns = math.ceil(len(curves) / math.ceil(len(curves) / most))
    labels = [f"{name} {label}" for label in curves]
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def _mark_knees(
    axis: Axes, grid: Grid, panel: pd.DataFrame, curves: Sequence[str], knees: Sequence[Knee], *, rises: bool
) -> None:
    """Mark the knee of each curve; curves that bend at the same level share a line."""
    curves_at: dict[float, list[str]] = {}
    for curve in curves:
        if (rows := panel[panel["curve"] == curve]).empty:
            continue
        row = rows.iloc[0]
        of = [knee.knee for knee in knees if all(row[f"factor_{name}"] == at for name, at in knee.fixed.items())]
        bends = next((bend for bend in of if bend is not None), None)
        if isinstance(bends, int | float):
            curves_at.setdefault(bends, []).append(curve)
    for index, (x, names) in enumerate(sorted(curves_at.items())):
        named = ", ".join(filter(None, names)) if len(names) <= MOST_NAMED else f"{len(names)} curves"
        text = f"knee {level(x if x % 1 else int(x), grid.x)}" + (f" ({named})" if named else "")
        mark(axis, x, text, COLOURS[curves.index(names[0])], index, rises=rises)


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
