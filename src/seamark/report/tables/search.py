"""Tables of searches (what each found, every probe) and of the knees of load sweeps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import LONGEST_MS, counted
from seamark.model.results.search_record import ProbeResult, SearchRecord
from seamark.model.results.summary import Knee, SearchSummary, SummaryRow
from seamark.model.results.trial_metrics import ObjectiveResult
from seamark.model.scenario import Slo
from seamark.model.service import Value
from seamark.report.headline import knee_mean
from seamark.report.numbers import (
    MEAN_NOTE,
    RANGE_NOTE,
    SEARCHED,
    bracket,
    level,
    levels_text,
    number,
    range_text,
    span,
)
from seamark.report.page.content import Block, Cell, Column, Table, Text, absent, column, figures, known
from seamark.report.source import Results
from seamark.storage.documents import read_or_none

MOST_ROWS = 200
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

    treatment: SummaryRow
    searches: tuple[tuple[TrialView, SearchRecord], ...]

    @property
    def factors(self) -> str:
        return levels_text(self.treatment.factors)


def searched_treatments(results: Results, treatments: Sequence[SummaryRow]) -> list[Searched]:
    """Return the treatments of a workload that have searches."""
    return [
        Searched(treatment=treatment, searches=searches)
        for treatment in treatments
        if (searches := tuple(_searches(results.trials_of(treatment))))
    ]


def search_tables(searched: Sequence[Searched]) -> list[Block]:
    """Return a table of the loads found and one of all probes."""
    first = searched[0].searches[0][1]
    return [_found(searched, first), _probes(searched, first)]


def _searches(trials: Sequence[TrialView]) -> Iterator[tuple[TrialView, SearchRecord]]:
    for trial in trials:
        record = read_or_none(trial.folder.search, SearchRecord)
        if record and record.probes:
            yield trial, record


def _found(searched: Sequence[Searched], first: SearchRecord) -> Table:
    """Return the load found for each treatment, with its spread over the repetitions."""
    unit = SEARCHED[first.setting]
    every = [row.treatment.search or SearchSummary(setting=first.setting) for row in searched]
    loads = [search.found for search in every]
    why = "no repetition found a load that meets the objectives"
    middles = [None if spread.median is None else number(spread.median) for spread in loads]
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
    ended_s = [None if (s := probe.over_saturated_at_s) is None else number(s) for probe in probes]
    verdicts = [SAID[probe.verdict] + (", found" if is_found else "") for _, _, _, probe, is_found in rows]
    columns = (
        *_factors([factors for factors, _, _, _, _ in rows]),
        figures("repetition", [str(view.trial.repetition) for _, view, _, _, _ in rows]),
        figures("probe", [str(index) for _, _, index, _, _ in rows]),
        figures(first.setting, levels, SEARCHED[first.setting]),
        figures("requests", [number(probe.requests) for probe in probes]),
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
    is_time = slo.metric.endswith("_s") and not slo.metric.endswith("_per_s")
    return 1e3 if is_time and 1e3 * slo.limit <= LONGEST_MS else 1.0


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
    rates = [None if sweep.knee is None else number(sweep.requests_per_s) for sweep in knees]
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
