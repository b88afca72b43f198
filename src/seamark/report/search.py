"""Draws the probes of a workload's searches against its objectives, and lists them, from each trial's search.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from seamark.model.plurals import counted
from seamark.report.canvas import COLOURS, INK, MUTED, drawing, log_ticks, plain_numbers, written
from seamark.report.content import Block, Cell, Column, Picture, Table, absent, known
from seamark.report.numbers import BOUND_NOTE, SEARCHED, bracket, level, number, span
from seamark.report.source import Document, Results, TrialRecord
from seamark.storage.paths import read_json

MOST_COLUMNS, MOST_OBJECTIVES, MOST_ROWS = 4, 3, 200
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "pass": ("o", COLOURS[0], COLOURS[0]),
    "fail": ("X", COLOURS[1], "white"),
    "void": ("^", MUTED, "none"),
    "likely_pass": ("o", COLOURS[0], "white"),
    "likely_fail": ("X", COLOURS[1], MUTED),
}
"""Marker, colour of its edge, colour inside: each verdict has a form of its own."""
SAID = {
    "pass": "passed",
    "fail": "failed",
    "void": "not judged",
    "likely_pass": "likely passes",
    "likely_fail": "likely fails",
}


@dataclass(frozen=True, kw_only=True)
class Searched:
    """One treatment with the searches of its trials."""

    treatment: Document
    searches: tuple[tuple[TrialRecord, Document], ...]

    @property
    def factors(self) -> str:
        named = (self.treatment.get("factors") or {}).items()
        return ", ".join(f"{name} {level(value, name)}" for name, value in named)


def search_blocks(
    results: Results, workload: str, treatments: Sequence[Document], stem: str, folder: Path
) -> list[Block]:
    """Return a figure and two tables of a workload's searches; nothing for a workload whose loads are given."""
    searched = [
        Searched(treatment=treatment, searches=found)
        for treatment in treatments
        if (found := tuple(_searches(results.trials_of(treatment))))
    ]
    if not searched:
        return []
    first = searched[0].searches[0][1]
    return [_picture(searched, first, workload, stem, folder), _found(searched, first), _probes(searched, first)]


def _searches(trials: Sequence[TrialRecord]) -> list[tuple[TrialRecord, Document]]:
    found: list[tuple[TrialRecord, Document]] = []
    for trial in trials:
        try:
            document = read_json(trial.folder.search)
        except (OSError, ValueError):
            continue
        if document.get("probes"):
            found.append((trial, document))
    return found


def _picture(searched: Sequence[Searched], first: Document, workload: str, stem: str, folder: Path) -> Picture:
    """A column for each treatment, a row for each objective: every probe at its level and value."""
    shown, objectives = searched[:MOST_COLUMNS], first["slos"][:MOST_OBJECTIVES]
    with drawing(max(6.0, 3.2 * len(shown)), 2.5 * len(objectives) + 0.5) as figure:
        axes = figure.subplots(len(objectives), len(shown), squeeze=False, sharex=True, sharey="row")
        for row, slo in zip(axes, objectives, strict=True):
            values: list[float] = []
            for axis, one in zip(row, shown, strict=True):
                values += _draw(axis, one, slo)
            _scale(row, [*values, slo["limit"] * _factor(slo)])
            row[0].set_ylabel(_named(slo))
        for axis, one in zip(axes[0], shown, strict=True):
            axis.set_title(one.factors or workload, fontsize=8)
        levels = [probe["level"] for one in shown for _, search in one.searches for probe in search["probes"]]
        for axis in axes[-1]:
            axis.set_xscale("log")
            axis.set_xlim(min(levels) / 1.15, max(levels) * 1.15)
            log_ticks(axis.xaxis, min(levels) / 1.15, max(levels) * 1.15)
            axis.set_xlabel(f"{first['setting']} ({SEARCHED[first['setting']]})")
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
            alt=f"Probes of the search for the largest {first['setting']} of {workload}",
            caption="Search: each mark is a probe of some repetition, at its load and what the objective speaks of. "
            "Dashed: the limit. Vertical lines: the load that each repetition found. A verdict is that of all "
            "probes of its level so far. A probe that failed below the limit was ended early, since the server could "
            f"not keep up, or missed another objective.{left_out}",
        )


def _draw(axis: Axes, one: Searched, slo: Document) -> list[float]:
    """Draw the probes of one treatment and return their values."""
    seen: list[float] = []
    for _, search in one.searches:
        if search["found"] is not None:
            axis.axvline(search["found"], color=COLOURS[2], lw=1.4, alpha=0.8, zorder=1)
        for verdict in LOOKS:
            points = [
                (probe["level"], value * _factor(slo))
                for probe in search["probes"]
                if probe["verdict"] == verdict and (value := _value(probe, slo)) is not None
            ]
            _mark(axis, [x for x, _ in points], [y for _, y in points], verdict)
            seen += [y for _, y in points]
    axis.axhline(slo["limit"] * _factor(slo), color=INK, ls=(0, (5, 2)), lw=1.2, zorder=2)
    return seen


def _mark(axis: Axes, x: Sequence[float], y: Sequence[float], verdict: str, label: str | None = None) -> None:
    marker, edge, face = LOOKS[verdict]
    axis.plot(x, y, ls="none", marker=marker, ms=6, mec=edge, mfc=face, mew=1.2, zorder=3, label=label)


def _scale(row: Sequence[Axes], values: Sequence[float]) -> None:
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > 10:
        row[0].set_yscale("log")
        row[0].set_ylim(min(positive) / 1.4, max(positive) * 1.4)
        log_ticks(row[0].yaxis, min(positive), max(positive))
    elif positive:
        row[0].set_ylim(0, 1.1 * max(positive))
        plain_numbers(row[0], y=True)


def _factor(slo: Document) -> float:
    """Times are printed in milliseconds."""
    return 1e3 if str(slo["metric"]).endswith("_s") and not str(slo["metric"]).endswith("_per_s") else 1.0


def _named(slo: Document) -> str:
    name = str(slo["metric"])
    return f"{name.removesuffix('_s')} (ms)" if _factor(slo) != 1 else name


def _value(probe: Mapping[str, Any], slo: Document) -> float | None:
    one = _judged(probe, slo)
    return None if one is None or one["value"] is None else float(one["value"])


def _judged(probe: Mapping[str, Any], slo: Document) -> Document | None:
    """Return what a probe says of an objective."""
    alike = (one for one in probe["slos"] if one["metric"] == slo["metric"] and one["op"] == slo["op"])
    return next(alike, None)


def _found(searched: Sequence[Searched], first: Document) -> Table:
    """What each treatment bears, with its spread over the repetitions."""
    unit = SEARCHED[first["setting"]]
    columns = (
        *((Column(name="treatment"),) if any(one.factors for one in searched) else ()),
        Column(name="found", unit=unit, title="median over the repetitions", numeric=True),
        Column(name="min – max", unit=unit, title="over the repetitions", numeric=True),
        Column(
            name="between",
            title="decided to pass, decided to fail: the medians over the repetitions",
            numeric=True,
        ),
        Column(name="outcome", title="of each repetition"),
        Column(name="confirmed", unit="of n", title="decided to pass, by 1 + confirm probes at least", numeric=True),
        Column(name="probes", numeric=True),
    )
    rows = []
    for one in searched:
        known_of = one.treatment.get("search") or {}
        found = known_of.get("found") or {}
        why = "no repetition found a load that meets the objectives"
        middle = found.get("median")
        rows.append(
            (
                *((Cell(text=one.factors),) if any(other.factors for other in searched) else ()),
                known(number(middle)) if middle is not None else absent(why),
                known(span(found.get("min"), found.get("max"))) if middle is not None else absent(why),
                known(bracket(known_of)),
                Cell(text=", ".join(f"{name} ({count})" for name, count in (known_of.get("outcomes") or {}).items())),
                known(f"{known_of.get('confirmed', 0)} / {len(one.searches)}"),
                known(str(sum(len(search["probes"]) for _, search in one.searches))),
            )
        )
    limits = " and ".join(f"{slo['metric']} {slo['op']} {slo['limit']:g}" for slo in first["slos"])
    return Table(columns=columns, rows=tuple(rows), caption=f"The largest {first['setting']} at which {limits}")


def _probes(searched: Sequence[Searched], first: Document) -> Table:
    """Every probe in the order in which it was measured."""
    named = any(one.factors for one in searched)
    columns = (
        *((Column(name="treatment"),) if named else ()),
        Column(name="repetition", numeric=True),
        Column(name="probe", numeric=True),
        Column(name=first["setting"], unit=SEARCHED[first["setting"]], numeric=True),
        Column(name="requests", numeric=True),
        *(Column(name=_named(slo), title=f"limit {slo['limit']:g}", numeric=True) for slo in first["slos"]),
        Column(name="ended early", unit="s", title="the server could not keep up", numeric=True),
        Column(name="verdict"),
        Column(name="why"),
    )
    rows = []
    for one in searched:
        for trial, search in one.searches:
            for place, probe in enumerate(search["probes"], 1):
                early = probe.get("over_saturated_at_s")
                at_found = probe["level"] == search["found"]
                rows.append(
                    (
                        *((Cell(text=one.factors),) if named else ()),
                        known(str(trial.repetition)),
                        known(str(place)),
                        known(number(probe["level"]), title="found" if at_found else None),
                        known(number(probe["requests"])),
                        *(_figure(probe, slo) for slo in first["slos"]),
                        absent("it ran to its end") if early is None else known(number(early)),
                        Cell(text=SAID[probe["verdict"]] + (", found" if at_found else "")),
                        Cell(text=str(probe["why"])),
                    )
                )
    more = len(rows) - MOST_ROWS
    notes = (f"In search.json of their trials: {counted(more, 'more probe')}.",) if more > 0 else ()
    return Table(columns=columns, rows=tuple(rows[:MOST_ROWS]), caption="Probes", footnotes=notes)


def _figure(probe: Mapping[str, Any], slo: Document) -> Cell:
    one = _judged(probe, slo)
    if one is None or one["value"] is None:
        return absent("too few replies, or none")
    text = number(float(one["value"]) * _factor(slo))
    return known(f"≥ {text}", title=BOUND_NOTE) if one.get("lower_bound") else known(text)
