"""Probes of a workload's searches against its objectives."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from seamark.model.plurals import counted
from seamark.model.scenario import Slo
from seamark.report.figures.canvas import COLOURS, INK, MUTED, drawing, log_ticks, scale_y, written
from seamark.report.numbers import SEARCHED
from seamark.report.page.content import Picture
from seamark.report.tables.search import SAID, Searched, objective_label, objective_of, printed_scale

MOST_COLUMNS, MOST_OBJECTIVES = 4, 3
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "pass": ("o", COLOURS[0], COLOURS[0]),
    "fail": ("X", COLOURS[1], "white"),
    "void": ("^", MUTED, "none"),
    "likely_pass": ("o", COLOURS[0], "white"),
    "likely_fail": ("X", COLOURS[1], MUTED),
}
"""Verdict -> marker, edge colour, face colour."""


def search_picture(searched: Sequence[Searched], workload: str, stem: str, folder: Path) -> Picture:
    """Draw every probe at its level and value: a column for each treatment, a row for each objective."""
    first = searched[0].searches[0][1]
    shown, objectives = searched[:MOST_COLUMNS], first.slos[:MOST_OBJECTIVES]
    with drawing(max(6.0, 3.2 * len(shown)), 2.5 * len(objectives) + 0.5) as figure:
        axes = figure.subplots(len(objectives), len(shown), squeeze=False, sharex=True, sharey="row")
        for row, slo in zip(axes, objectives, strict=True):
            values: list[float] = []
            for axis, treatment in zip(row, shown, strict=True):
                values += _draw(axis, treatment, slo)
            scale_y(row, [*values, slo.limit * printed_scale(slo)], log_beyond=10, room=1.1)
            row[0].set_ylabel(objective_label(slo))
        for axis, treatment in zip(axes[0], shown, strict=True):
            axis.set_title(treatment.factors or workload, fontsize=8)
        levels = [probe.level for treatment in shown for _, search in treatment.searches for probe in search.probes]
        for axis in axes[-1]:
            axis.set_xscale("log")
            axis.set_xlim(min(levels) / 1.15, max(levels) * 1.15)
            log_ticks(axis.xaxis, min(levels) / 1.15, max(levels) * 1.15)
            axis.set_xlabel(f"{first.setting} ({SEARCHED[first.setting]})")
        for verdict in LOOKS:
            _mark(axes[0][0], [], [], verdict, label=SAID[verdict])
        axes[0][0].plot([], [], color=INK, ls=(0, (5, 2)), lw=1.2, label="limit")
        axes[0][0].plot([], [], color=COLOURS[2], lw=1.4, label="found")
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
        left_out = (
            f" In the table: {counted(len(searched) - len(shown), 'more treatment')}."
            if searched[len(shown) :]
            else ""
        )
        return written(
            figure,
            folder,
            f"{stem}-search",
            alt=f"Probes of the search for the largest {first.setting} of {workload}",
            caption="Search: each mark is a probe of some repetition, at its load and what the objective speaks of. "
            "Dashed: the limit. Vertical lines: the load that each repetition found. A verdict is that of all "
            "probes of its level so far. A probe that failed below the limit was ended early, since the server could "
            f"not keep up, or missed another objective.{left_out}",
        )


def _draw(axis: Axes, one: Searched, slo: Slo) -> list[float]:
    """Draw the probes of one treatment and return their values."""
    seen: list[float] = []
    for _, search in one.searches:
        if search.found is not None:
            axis.axvline(search.found, color=COLOURS[2], lw=1.4, alpha=0.8, zorder=1)
        for verdict in LOOKS:
            points = [
                (probe.level, result.value * printed_scale(slo))
                for probe in search.probes
                if probe.verdict == verdict and (result := objective_of(probe, slo)) and result.value is not None
            ]
            _mark(axis, [x for x, _ in points], [y for _, y in points], verdict)
            seen += [y for _, y in points]
    axis.axhline(slo.limit * printed_scale(slo), color=INK, ls=(0, (5, 2)), lw=1.2, zorder=2)
    return seen


def _mark(axis: Axes, x: Sequence[float], y: Sequence[float], verdict: str, label: str | None = None) -> None:
    marker, edge, face = LOOKS[verdict]
    axis.plot(x, y, ls="none", marker=marker, ms=6, mec=edge, mfc=face, mew=1.2, zorder=3, label=label)
