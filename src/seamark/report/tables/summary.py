"""Summary table of each workload, and the table of all trials."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.plurals import counted
from seamark.report.numbers import (
    ABSENT,
    SEARCHED,
    bracket,
    level,
    number,
    span,
    unit_words,
)
from seamark.report.ordering import SERVER, levels_of, mixture, trial_marks
from seamark.report.page.content import Cell, Column, Section, Table, Text, absent, known
from seamark.report.source import Document, Results, TrialRecord
from seamark.report.tables.by_treatment import (
    energy_table,
    figure_cell,
    kinds_table,
    marked,
    notes_of,
    objectives_table,
    ratio_cell,
    streams_table,
)

WITHHELD = "withheld: too few samples in the measured window (p99 needs 1,000, p99.9 needs 10,000)"
NOT_MEASURED = "not measured: no trial of this treatment is ok"
FOOTNOTE = (
    "– : no number is given. A percentile is withheld where too few samples support it "
    "(p99 needs 1,000 in the measured window, p99.9 needs 10,000); it is not zero."
)


def slug(text: str) -> str:
    """Return an anchor or file stem: letters, digits and single hyphens."""
    kept = "".join(c if c.isalnum() and c.isascii() else "-" for c in text.lower())
    return "-".join(part for part in kept.split("-") if part) or "x"


def summary_section(results: Results) -> Section:
    """Return the summary tables, one for each workload, under its service."""
    services = []
    for service, workloads in results.services():
        several = len(workloads) > 1
        tables: list[Table] = []
        for name, own in workloads:
            besides = (streams_table, kinds_table, objectives_table, energy_table)
            found = (table_of(name, own, several) for table_of in besides)
            tables += [workload_table(name, own, several), *(table for table in found if table)]
        services.append(Section(id=f"results-{slug(service)}", title=service, blocks=tuple(tables)))
    blocks = () if services else (Text(text="There is no treatment in the summary.", kind="warning"),)
    if warning := mixture(results.summary):
        blocks = (Text(text=warning, kind="warning"), *blocks)
    return Section(id="results", title="Summary", blocks=blocks, sections=tuple(services))


def workload_table(workload: str, treatments: Sequence[Document], named: bool) -> Table:
    """Return a row for each treatment: its factors, throughput, response times, errors, quality and verdict."""
    levels = levels_of(treatments)
    qualities, alike = qualities_of(treatments)
    own = {name: about for t in treatments for name, about in (t.get("own") or {}).items()}
    bandwidth = any((t.get("bandwidth_mb_per_s") or {}).get("median") is not None for t in treatments)
    unit = next((u for t in treatments if (u := (t.get("throughput") or {}).get("unit"))), "")
    searched = next((str(search["setting"]) for t in treatments if (search := t.get("search"))), None)
    most = max((v for t in treatments if (v := (t.get("throughput") or {}).get("median"))), default=None)
    columns = [
        *(
            Column(name=name, numeric=all(isinstance(v, int | float) for v in values))
            for name, values in levels.items()
        ),
        *(
            (
                Column(
                    name="largest load", unit=SEARCHED[searched], title="found; median of repetitions", numeric=True
                ),
                Column(name="between", title="the bracket of the search, with its confidence", numeric=True),
            )
            if searched
            else ()
        ),
        Column(name="throughput", unit=unit_words(unit), title="median over the repetitions", numeric=True),
        Column(name="min – max", unit=unit_words(unit), title="over the repetitions", numeric=True),
        *([Column(name="bandwidth", unit="MB/s", title="10^6 bytes a second", numeric=True)] if bandwidth else []),
        *(
            Column(name=name, unit="ms", title="response time, raw samples of all repetitions pooled", numeric=True)
            for name in ("p50", "p95", "p99")
        ),
        Column(name="errors", unit="%", title="failed requests of those sent", numeric=True),
        *(
            Column(name=name.replace("_", " "), title="median over the repetitions", numeric=True)
            for name in qualities
        ),
        *(
            Column(name=name.replace("_", " "), unit=about["unit"], title=about["meaning"], numeric=True)
            for name, about in own.items()
        ),
        Column(name="ok", unit="of n", title="repetitions with a result, of those planned", numeric=True),
        Column(name="verdict", title="the worst of the repetitions"),
    ]
    rows = []
    for treatment in treatments:
        factors = treatment.get("factors") or {}
        throughput = treatment.get("throughput") or {}
        measured = bool(treatment.get("repetitions"))
        middle = throughput.get("median")
        reasons = "; ".join(f"{code} ({count})" for code, count in reason_counts(treatment).items())
        rows.append(
            (
                *(
                    Cell(text=level(factors.get(n), n), kind="number" if c.numeric else "text")
                    for n, c in zip(levels, columns, strict=False)
                ),
                *((_found(treatment), known(bracket(treatment.get("search")))) if searched else ()),
                _throughput(throughput, unit, middle / most if middle is not None and most else None),
                known(span(throughput.get("min"), throughput.get("max"))) if measured else absent(NOT_MEASURED),
                *(
                    [figure_cell((treatment.get("bandwidth_mb_per_s") or {}).get("median"), "not known")]
                    if bandwidth
                    else []
                ),
                *(_response(treatment, name) for name in ("p50", "p95", "p99")),
                ratio_cell((treatment.get("errors") or {}).get("rate"), NOT_MEASURED),
                *(figure_cell((treatment.get("quality") or {}).get(name), "not measured") for name in qualities),
                *(
                    figure_cell((treatment.get("own") or {}).get(name, {}).get("median"), "not measured")
                    for name in own
                ),
                _complete(treatment),
                Cell(text=str(treatment.get("verdict") or "INVALID"), kind="verdict", title=reasons or None),
            )
        )
    missing = any(cell.title == WITHHELD for row in rows for cell in row)
    return Table(
        columns=tuple(columns),
        rows=tuple(rows),
        caption=workload if named else "",
        footnotes=(
            *((alike,) if alike else ()),
            *((FOOTNOTE,) if missing else ()),
            *notes_of(rows),
        ),
    )


def _found(treatment: Document) -> Cell:
    """Return the load that a treatment's searches found: the headline of such a treatment."""
    found = ((treatment.get("search") or {}).get("found") or {}).get("median")
    return figure_cell(found, "no repetition found a load that meets the objectives")


def qualities_of(treatments: Sequence[Document], most: int = 3) -> tuple[list[str], str]:
    """Return the qualities that get a column, those that vary and any recall, and a line about the others."""
    values: dict[str, list[Any]] = {}
    for treatment in treatments:
        for name, value in (treatment.get("quality") or {}).items():
            if value is not None:
                values.setdefault(name, []).append(value)
    shown = [name for name, found in values.items() if "recall" in name or len(set(found)) > 1][:most]
    rest = {name: found for name, found in values.items() if name not in shown}
    said = ", ".join(f"{name} = {span(min(found), max(found))}" for name, found in rest.items())
    return shown, f"Quality, as named in metrics.json: {said}." if said else ""


def reason_counts(treatment: Document) -> dict[str, int]:
    """Return a treatment's reasons with the number of its trials that have them, however they are listed."""
    reasons = treatment.get("reasons") or {}
    if isinstance(reasons, Mapping):
        return {str(code): int(count) for code, count in reasons.items()}
    counts: dict[str, int] = {}
    for reason in reasons:
        if isinstance(reason, Mapping):
            counts[str(reason["code"])] = int(reason.get("count") or reason.get("trials") or 1)
        elif isinstance(reason, str):
            counts[reason] = counts.get(reason, 0) + 1
        else:
            counts[str(reason[0])] = int(reason[1])
    return counts


def _codes(trial: TrialRecord) -> str | None:
    if not trial.ok:
        return trial.category
    return ", ".join(trial.codes) or None


def _complete(treatment: Document) -> Cell:
    done, planned = treatment.get("repetitions") or 0, treatment.get("planned")
    text = f"{done} / {planned if planned is not None else ABSENT}"
    return known(text) if done == planned else Cell(text=text, kind="short", title="some repetitions have no result")


def _response(treatment: Document, name: str) -> Cell:
    times = treatment.get("latency_ms") or {}
    return marked(times, name, reason_counts(treatment), WITHHELD if treatment.get("repetitions") else NOT_MEASURED)


def _throughput(throughput: Document, unit: str, share: float | None) -> Cell:
    """Return the median; with its own unit where that is not the column's."""
    middle, own = throughput.get("median"), throughput.get("unit")
    if middle is None or own == unit:
        return figure_cell(middle, NOT_MEASURED, share=share)
    return known(f"{number(middle)} {unit_words(own)}")


def trials_section(results: Results, most: int = 400) -> Section:
    """Return the table of all trials in the order of the run."""
    ordered = sorted(results.trials, key=lambda t: (t.started_at is None, t.started_at or "", t.block, t.position))
    days = {trial.started_at[:10] for trial in ordered if trial.started_at}
    clock = slice(11, 19) if len(days) == 1 else slice(0, 19)
    servers = trial_marks(results.summary)
    columns = (
        Column(name="trial"),
        *([Column(name=SERVER)] if servers else []),
        Column(name="block", numeric=True),
        Column(name="position", numeric=True),
        Column(name="started", unit=days.pop() if len(days) == 1 else ""),
        Column(name="throughput", numeric=True),
        Column(name="unit"),
        *(Column(name=name, unit="ms", numeric=True) for name in ("p50", "p99")),
        Column(name="errors", unit="%", numeric=True),
        Column(name="window", unit="s", title="measured window, from the start of the load", numeric=True),
        Column(name="verdict"),
    )
    rows = tuple(
        (
            Cell(text=trial.id, kind="code"),
            *([Cell(text=servers.get(trial.id, ABSENT))] if servers else []),
            known(str(trial.block)),
            known(str(trial.position)),
            Cell(text=trial.started_at.replace("T", " ")[clock] if trial.started_at else ABSENT, kind="time"),
            figure_cell(trial.throughput, "no result"),
            Cell(text=unit_words(trial.unit)),
            *(
                marked(trial.latency_ms, name, trial.codes, WITHHELD if trial.ok else "no result")
                for name in ("p50", "p99")
            ),
            ratio_cell(trial.error_rate, "no result"),
            known(f"{trial.window_s[0]:g} – {trial.window_s[1]:g}") if trial.window_s else absent("no window"),
            Cell(text=trial.verdict if trial.ok else trial.status, kind="verdict", title=_codes(trial)),
        )
        for trial in ordered[:most]
    )
    more = len(ordered) - len(rows)
    notes = (
        FOOTNOTE,
        *notes_of(rows),
        *((f"In the results' summary: {counted(more, 'more trial')}.",) if more else ()),
    )
    return Section(id="trials", title="All trials", blocks=(Table(columns=columns, rows=rows, footnotes=notes),))
