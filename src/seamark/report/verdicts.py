"""What speaks against the numbers: reasons of the checks with their remedies, and trials that failed."""

from collections import Counter

from seamark.model.plurals import counted
from seamark.report.content import Block, Cell, Code, Column, Section, Table, Text, known
from seamark.report.source import Document, Results, TrialRecord

SEVERITY = {"invalid": 0, "suspect": 1, "note": 2}
OF_COMPARISONS = ("nodes_differ", "servers_mixed", "servers_differ", "configuration_differs")
"""Reasons that no trial has by itself: they stand with the treatments of summary.json."""
MOST_TRIALS, MOST_FAILED, LOG_LINES = 4, 60, 15


def verdicts_section(results: Results) -> Section:
    """Return every reason once: how many trials have it, what it says, what to do, and which trials."""
    found: dict[tuple[str, str], list[tuple[TrialRecord, Document]]] = {}
    for trial in results.ok:
        for reason in trial.reasons:
            key = (str(reason.get("severity") or "note"), str(reason.get("code")))
            found.setdefault(key, []).append((trial, reason))
    for treatment in results.treatments:
        for reason in treatment.get("reasons") or ():
            if reason.get("code") in OF_COMPARISONS:
                key = (str(reason.get("severity") or "note"), str(reason.get("code")))
                found.setdefault(key, []).extend(
                    (trial, reason) for trial in results.trials_of(treatment) if trial.ok
                )
    if not found:
        text = (
            "No check found anything against these numbers." if results.ok else "No trial is ok, so none was checked."
        )
        return Section(id="verdicts", title="Verdicts", blocks=(Text(text=text, kind="plain"),))
    rows = []
    for (severity, code), cases in sorted(
        found.items(), key=lambda item: (SEVERITY.get(item[0][0], 3), -len(item[1]))
    ):
        texts = Counter(str(reason.get("text") or "") for _, reason in cases)
        example, _ = texts.most_common(1)[0]
        more = len(texts) - 1
        most = 2 if severity == "note" else MOST_TRIALS
        shown = ", ".join(trial.id for trial, _ in cases[:most])
        rest = len(cases) - most
        rows.append(
            (
                Cell(text=severity.upper(), kind="verdict"),
                Cell(text=code, kind="code"),
                known(f"{len(cases)} of {len(results.ok)}"),
                Cell(text=example + (f" (and {more} more like it)" if more else "")),
                Cell(text=str(cases[0][1].get("remedy") or "")),
                Cell(text=shown + (f" and {rest} more" if rest > 0 else ""), kind="code"),
            )
        )
    columns = (
        Column(name="severity"),
        Column(name="code"),
        Column(name="trials", numeric=True),
        Column(name="what was seen"),
        Column(name="what to do"),
        Column(name="which trials"),
    )
    explained = Text(
        text="INVALID: do not use the number. SUSPECT: the number may be right, but something speaks against it. "
        "NOTE: nothing is wrong; something is not shown, or is good to know.",
    )
    return Section(id="verdicts", title="Verdicts", blocks=(explained, Table(columns=columns, rows=tuple(rows))))


def failures_section(results: Results) -> Section | None:
    """Return the trials without a result: category, reason and the server's last lines; None when all are ok."""
    failed = [trial for trial in results.trials if not trial.ok]
    if not failed:
        return None
    columns = (Column(name="trial"), Column(name="status"), Column(name="category"), Column(name="reason"))
    rows = tuple(
        (
            Cell(text=trial.id, kind="code"),
            Cell(text=trial.status, kind="verdict"),
            Cell(text=trial.category or "unknown", kind="code"),
            Cell(text=trial.reason or "no reason was recorded"),
        )
        for trial in failed[:MOST_FAILED]
    )
    more = len(failed) - len(rows)
    notes = (f"{more:,} more {'is' if more == 1 else 'are'} in the results' summary.",) if more else ()
    logs: dict[tuple[str, ...], list[str]] = {}
    for trial in failed[:MOST_FAILED]:
        if trial.log_tail:
            logs.setdefault(trial.log_tail[-LOG_LINES:], []).append(trial.id)
    lacking = "has no result and is" if len(failed) == 1 else "have no result and are"
    blocks: tuple[Block, ...] = (
        Text(
            text=f"{len(failed)} of {counted(len(results.trials), 'trial')} {lacking} in no figure of this report. "
            f"`bench retry -c {results.source}` runs them again.",
            kind="warning",
        ),
        Table(columns=columns, rows=rows, footnotes=notes),
        *(
            Code(
                text="\n".join(tail),
                caption=f"Last lines of the log: {', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}",
            )
            for tail, ids in list(logs.items())[:10]
        ),
    )
    return Section(id="failed", title="Failed trials", blocks=blocks)
