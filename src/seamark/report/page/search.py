"""Blocks of searches (the probes drawn, what each found, every probe) and of the knees of load sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import LONGEST_MS, counted
from seamark.model.results.search_record import ProbeResult, SearchRecord
from seamark.model.results.summary import Knee, SearchSummary, SummaryRow
from seamark.model.results.trial_metrics import ObjectiveResult
from seamark.model.scenario import Slo
from seamark.model.service import Value
from seamark.report.figures.canvas import COLOURS, INK, MUTED, drawing, log_ticks, picture_of, scale_y
from seamark.report.headline import knee_mean
from seamark.report.numbers import (
    MEAN_NOTE,
    RANGE_NOTE,
    SEARCHED,
    bracket,
    is_time,
    level,
    levels_text,
    number,
    range_text,
    span,
)
from seamark.report.page.content import Block, Cell, Column, Picture, Table, Text, absent, column, figures, known
from seamark.report.source import ShownWorkload
from seamark.storage.documents import read_or_none

MOST_ROWS = 200
MOST_COLUMNS, MOST_OBJECTIVES = 4, 3
LOOKS: Mapping[str, tuple[str, str, str, str]] = {
    "pass": ("passed", "o", COLOURS[0], COLOURS[0]),
    "fail": ("failed", "X", COLOURS[1], "white"),
    "void": ("not judged", "^", MUTED, "none"),
    "likely_pass": ("likely passes", "o", COLOURS[0], "white"),
    "likely_fail": ("likely fails", "X", COLOURS[1], MUTED),
}
"""Verdict -> words, marker, edge colour, face colour."""


@dataclass(frozen=True, kw_only=True)
class Searched:
    """One treatment with the searches of its trials."""

    treatment: SummaryRow
    searches: tuple[tuple[TrialView, SearchRecord], ...]

    @property
    def factors(self) -> str:
        return levels_text(self.treatment.factors)


def search_blocks(workload: ShownWorkload) -> list[Block]:
    """Return every probe against the objectives, a table of the loads found and one of all probes; nothing for a
    workload without a search."""
    searched = []
    for row in workload.treatments:
        records = [(view, read_or_none(view.folder.search, SearchRecord)) for view in workload.results.trials_of(row)]
        searches = tuple((view, record) for view, record in records if record and record.probes)
        if searches:
            searched.append(Searched(treatment=row, searches=searches))
    if not searched:
        return []
    first = searched[0].searches[0][1]
    return [_picture(searched, first, workload), _found(searched, first), _probes(searched, first)]


def _picture(searched: Sequence[Searched], first: SearchRecord, workload: ShownWorkload) -> Picture:
    """Draw every probe at its level and value: a column for each treatment, a row for each objective."""
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
            axis.set_title(treatment.factors or workload.name, fontsize=8)
        levels = [probe.level for treatment in shown for _, search in treatment.searches for probe in search.probes]
        for axis in axes[-1]:
            axis.set_xscale("log")
            axis.set_xlim(min(levels) / 1.15, max(levels) * 1.15)
            log_ticks(axis.xaxis, min(levels) / 1.15, max(levels) * 1.15)
            axis.set_xlabel(f"{first.setting} ({SEARCHED[first.setting]})")
        for verdict in LOOKS:
            _mark(axes[0][0], [], verdict, label=LOOKS[verdict][0])
        axes[0][0].plot([], [], color=INK, ls=(0, (5, 2)), lw=1.2, label="limit")
        axes[0][0].plot([], [], color=COLOURS[2], lw=1.4, label="found")
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
        more = len(searched) - len(shown)
        left_out = f" In the table: {counted(more, 'more treatment')}." if more else ""
        return picture_of(
            figure,
            f"{workload.stem}-search",
            alt=f"Probes of the search for the largest {first.setting} of {workload.name}",
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
            _mark(axis, points, verdict)
            seen += [y for _, y in points]
    axis.axhline(slo.limit * printed_scale(slo), color=INK, ls=(0, (5, 2)), lw=1.2, zorder=2)
    return seen


def _mark(axis: Axes, points: Sequence[tuple[float, float]], verdict: str, label: str | None = None) -> None:
    _, marker, edge, face = LOOKS[verdict]
    x, y = [x for x, _ in points], [y for _, y in points]
    axis.plot(x, y, ls="none", marker=marker, ms=6, mec=edge, mfc=face, mew=1.2, zorder=3, label=label)


def _found(searched: Sequence[Searched], first: SearchRecord) -> Table:
    """Return the load found for each treatment, with its spread over the repetitions."""
    unit = SEARCHED[first.setting]
    every = [row.treatment.search or SearchSummary(setting=first.setting) for row in searched]
    loads = [search.found for search in every]
    why = "no repetition found a load that meets the objectives"
    middles = [spread.median for spread in loads]
    spans = [None if spread.median is None else span(spread.min, spread.max) for spread in loads]
    outcomes = [", ".join(f"{name} ({n})" for name, n in search.outcomes.items()) for search in every]
    confirmed = [f"{of.confirmed} / {len(row.searches)}" for of, row in zip(every, searched, strict=True)]
    between = "decided to pass, decided to fail: the medians over the repetitions"
    columns = (
        *_factors([row.factors for row in searched]),
        figures("found", middles, unit, "median over the repetitions", why=why),
        figures("min – max", spans, unit, "over the repetitions", why=why),
        figures("between", [bracket(search) for search in every], "", between),
        column("outcome", outcomes, title="of each repetition"),
        figures("confirmed", confirmed, "of n", "decided to pass, by 1 + confirm probes at least"),
        figures("probes", [str(sum(len(search.probes) for _, search in row.searches)) for row in searched]),
    )
    limits = " and ".join(f"{slo.metric} {slo.op} {slo.limit:g}" for slo in first.slos)
    return Table(columns=columns, caption=f"The largest {first.setting} at which {limits}")


def _probes(searched: Sequence[Searched], first: SearchRecord) -> Table:
    """Return every probe in the order of measurement."""
    every = [
        (treatment.factors, trial, index, probe, probe.level == search.found)
        for treatment in searched
        for trial, search in treatment.searches
        for index, probe in enumerate(search.probes, 1)
    ]
    rows = every[:MOST_ROWS]
    probes = [probe for _, _, _, probe, _ in rows]
    levels = [known(number(probe.level), title="found" if is_found else None) for _, _, _, probe, is_found in rows]
    ended_s = [probe.over_saturated_at_s for probe in probes]
    verdicts = [LOOKS[probe.verdict][0] + (", found" if is_found else "") for _, _, _, probe, is_found in rows]
    columns = (
        *_factors([factors for factors, _, _, _, _ in rows]),
        figures("repetition", [str(view.trial.repetition) for _, view, _, _, _ in rows]),
        figures("probe", [str(index) for _, _, index, _, _ in rows]),
        figures(first.setting, levels, SEARCHED[first.setting]),
        figures("requests", [probe.requests for probe in probes]),
        *(
            figures(objective_label(slo), [_figure(probe, slo) for probe in probes], "", f"limit {slo.limit:g}")
            for slo in first.slos
        ),
        figures("ended early", ended_s, "s", "the server could not keep up", why="it ran to its end"),
        column("verdict", verdicts),
        column("why", [probe.why for probe in probes]),
    )
    more = len(every) - len(rows)
    notes = (f"In search.json of their trials: {counted(more, 'more probe')}.",) if more else ()
    return Table(columns=columns, caption="Probes", footnotes=notes)


def _factors(factors: Sequence[str]) -> list[Column]:
    return [column("treatment", factors)] if any(factors) else []


def _figure(probe: ProbeResult, slo: Slo) -> Cell:
    result = objective_of(probe, slo)
    if result is None or result.known is None:
        return absent("too few replies, or none")
    limits, scale = result.known, printed_scale(slo)
    in_s = " s" if scale > 1 and scale * limits.low > LONGEST_MS else ""
    text = range_text(limits.times(1.0 if in_s else scale))
    return known(f"{text}{in_s}", title=None if limits.is_narrow else RANGE_NOTE)


def printed_scale(slo: Slo) -> float:
    """Return the factor to the printed unit: times are printed in milliseconds, unless the limit is above 10 s."""
    return 1e3 if is_time(slo.metric) and 1e3 * slo.limit <= LONGEST_MS else 1.0


def objective_label(slo: Slo) -> str:
    """Return an objective's metric with the unit in which it is printed."""
    name = slo.metric.removesuffix("_s")
    return f"{name} (ms)" if printed_scale(slo) > 1 else slo.metric


def objective_of(probe: ProbeResult, slo: Slo) -> ObjectiveResult | None:
    """Return a probe's result of an objective."""
    return next((result for result in probe.slos if (result.metric, result.op) == (slo.metric, slo.op)), None)


METHOD = (
    "The knee is where throughput over mean response time (power, after Kleinrock) is greatest, on medians over "
    "repetitions: beyond it, throughput costs more than its share of waiting."
)


def knee_blocks(knees: Sequence[Knee]) -> list[Block]:
    """Return a sentence for one knee, a table for several, nothing without a sweep."""
    if not knees:
        return []
    if len(knees) == 1:
        return [Text(text=f"{_sentence(knees[0])} {METHOD}", kind="note")]
    factor = knees[0].factor
    knee = [absent(_outside(f)) if f.knee is None else _levels(factor, [f.knee]) for f in knees]
    between = [_outside(f) if f.between is None else _levels(factor, f.between, " – ") for f in knees]
    rates = [None if sweep.knee is None else sweep.requests_per_s for sweep in knees]
    means = [None if sweep.knee is None else knee_mean(sweep) for sweep in knees]
    agree = "In how many repetitions the knee is at the same level."
    full = [_levels(factor, sweep.saturated) or "none" for sweep in knees]
    columns = (
        *(column(name, [level(sweep.fixed.get(name), name) for sweep in knees]) for name in knees[0].fixed),
        figures(f"knee: {factor}", knee),
        column("between", between, title="The neighbouring levels: the knee lies between them."),
        figures("requests/s", rates, why="There is no knee."),
        figures("mean response", means, "", why="There is no knee."),
        column("repetitions", [f"{sweep.agree} of {sweep.of}" for sweep in knees], title=agree),
        column("saturated", full, title="Levels that add waiting and no throughput."),
    )
    notes = (METHOD, *((MEAN_NOTE,) if any(sweep.mean_conditional for sweep in knees) else ()))
    return [Table(columns=columns, caption=f"Knee of each sweep by {factor}", footnotes=notes)]


def _sentence(found: Knee) -> str:
    factor = found.factor
    full = _levels(factor, found.saturated)
    full = f" Saturated: {full}." if full else " No level is saturated."
    if found.knee is None:
        return f"No knee by {factor}: {_outside(found)}.{full}"
    rate, mean = number(found.requests_per_s), knee_mean(found)
    return (
        f"Knee by {factor}: at {_levels(factor, [found.knee])} (it lies between "
        f"{_levels(factor, found.between or (), ' and ')}), with {rate} requests/s at a mean of {mean}; so in "
        f"{found.agree} of {counted(found.of, 'repetition')}.{full}"
    )


def _outside(found: Knee) -> str:
    edge = _levels(found.factor, [found.levels[0 if found.place == "first" else -1]])
    if found.place == "first":
        return f"not in the measured range, power is greatest at the lowest level, {edge}: measure lower ones"
    return f"not in the measured range, power still grows at the highest level, {edge}: measure higher ones"


def _levels(factor: str, levels: Sequence[Value], between: str = ", ") -> str:
    return between.join(level(value, factor) for value in levels)
