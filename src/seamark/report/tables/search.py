"""Tables of searches (what each found, every probe) and of the knees of load sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.model.plurals import counted
from seamark.report.numbers import BOUND_NOTE, MEAN_NOTE, SEARCHED, bracket, level, number, span, statistic
from seamark.report.page.content import Block, Cell, Column, Table, Text, absent, known
from seamark.report.source import Document, Results, TrialRecord
from seamark.storage.paths import read_json

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

    treatment: Document
    searches: tuple[tuple[TrialRecord, Document], ...]

    @property
    def factors(self) -> str:
        named = (self.treatment.get("factors") or {}).items()
        return ", ".join(f"{name} {level(value, name)}" for name, value in named)


def searched_treatments(results: Results, treatments: Sequence[Document]) -> list[Searched]:
    """Return the treatments of a workload that have searches."""
    return [
        Searched(treatment=treatment, searches=found)
        for treatment in treatments
        if (found := tuple(_searches(results.trials_of(treatment))))
    ]


def search_tables(searched: Sequence[Searched]) -> list[Block]:
    """Return a table of the loads found and one of all probes."""
    first = searched[0].searches[0][1]
    return [_found(searched, first), _probes(searched, first)]


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


def _found(searched: Sequence[Searched], first: Document) -> Table:
    """Return the load found for each treatment, with its spread over the repetitions."""
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
    """Return every probe in the order of measurement."""
    named = any(one.factors for one in searched)
    columns = (
        *((Column(name="treatment"),) if named else ()),
        Column(name="repetition", numeric=True),
        Column(name="probe", numeric=True),
        Column(name=first["setting"], unit=SEARCHED[first["setting"]], numeric=True),
        Column(name="requests", numeric=True),
        *(Column(name=objective_label(slo), title=f"limit {slo['limit']:g}", numeric=True) for slo in first["slos"]),
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
    text = number(float(one["value"]) * printed_scale(slo))
    return known(f"≥ {text}", title=BOUND_NOTE) if one.get("lower_bound") else known(text)


def printed_scale(slo: Document) -> float:
    """Return the factor to the printed unit: times are printed in milliseconds."""
    return 1e3 if str(slo["metric"]).endswith("_s") and not str(slo["metric"]).endswith("_per_s") else 1.0


def objective_label(slo: Document) -> str:
    name = str(slo["metric"])
    return f"{name.removesuffix('_s')} (ms)" if printed_scale(slo) != 1 else name


def probe_value(probe: Mapping[str, Any], slo: Document) -> float | None:
    one = _judged(probe, slo)
    return None if one is None or one["value"] is None else float(one["value"])


def _judged(probe: Mapping[str, Any], slo: Document) -> Document | None:
    """Return a probe's record of an objective."""
    alike = (one for one in probe["slos"] if one["metric"] == slo["metric"] and one["op"] == slo["op"])
    return next(alike, None)


METHOD = (
    "The knee is where throughput over mean response time (power, after Kleinrock) is greatest, on medians over "
    "repetitions: beyond it, throughput costs more than its share of waiting."
)


def knee_blocks(knees: Sequence[Document]) -> list[Block]:
    """Return a sentence for one knee, a table for several, nothing without a sweep."""
    if not knees:
        return []
    if len(knees) == 1:
        return [Text(text=f"{_sentence(knees[0])} {METHOD}", kind="note")]
    names = list(knees[0]["fixed"])
    factor = str(knees[0]["factor"])
    columns = (
        *(Column(name=name) for name in names),
        Column(name=f"knee: {factor}", numeric=True),
        Column(name="between", title="The neighbouring levels: the knee lies between them."),
        Column(name="requests/s", numeric=True),
        Column(name="mean response", unit="ms", numeric=True),
        Column(name="repetitions", title="In how many repetitions the knee is at the same level."),
        Column(name="saturated", title="Levels that add waiting and no throughput."),
    )
    rows = []
    for found in knees:
        inside = found["knee"] is not None
        rows.append(
            (
                *(Cell(text=level(found["fixed"].get(name), name)) for name in names),
                known(_levels(factor, [found["knee"]])) if inside else absent(_outside(found)),
                Cell(text=_levels(factor, found["between"], " – ") if inside else _outside(found)),
                known(number(found["requests_per_s"])) if inside else absent("There is no knee."),
                known(_mean(found)) if inside else absent("There is no knee."),
                Cell(text=f"{found['agree']} of {found['of']}"),
                Cell(text=_levels(factor, found["saturated"]) or "none"),
            )
        )
    notes = (METHOD, *((MEAN_NOTE,) if any(found.get("mean_conditional") for found in knees) else ()))
    return [Table(columns=columns, rows=tuple(rows), caption=f"Knee of each sweep by {factor}", footnotes=notes)]


def _sentence(found: Document) -> str:
    factor = str(found["factor"])
    full = _levels(factor, found["saturated"])
    full = f" Saturated: {full}." if full else " No level is saturated."
    if found["knee"] is None:
        return f"No knee by {factor}: {_outside(found)}.{full}"
    rate, mean_ms = number(found["requests_per_s"]), _mean(found)
    return (
        f"Knee by {factor}: at {_levels(factor, [found['knee']])} (it lies between "
        f"{_levels(factor, found['between'], ' and ')}), with {rate} requests/s at a mean of {mean_ms} ms; so in "
        f"{found['agree']} of {counted(found['of'], 'repetition')}.{full}"
    )


def _mean(found: Document) -> str:
    """Return the mean response time at a knee; in parentheses where unanswered requests are not in it."""
    return statistic({"mean": found["latency_mean_ms"], "censored": found.get("mean_conditional")}, "mean")


def _outside(found: Document) -> str:
    edge = _levels(str(found["factor"]), [found["levels"][0 if found["place"] == "first" else -1]])
    if found["place"] == "first":
        return f"not in the measured range, power is greatest at the lowest level, {edge}: measure lower ones"
    return f"not in the measured range, power still grows at the highest level, {edge}: measure higher ones"


def _levels(factor: str, levels: Sequence[object], between: str = ", ") -> str:
    return between.join(level(value, factor) for value in levels)  # type: ignore[arg-type]
