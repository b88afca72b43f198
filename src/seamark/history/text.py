"""The history of scenarios as text for a terminal, as Markdown, and as one JSON document."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from seamark.history.index import Scanned
from seamark.history.series import Judgement, RunValue, SeriesChange
from seamark.model.plurals import counted
from seamark.report.numbers import ABSENT, aligned, level, number, range_text, span, unit_of
from seamark.stats.range import Range
from seamark.storage.codec import encode

BARS = "▁▂▃▄▅▆▇█"
LONGEST_TREND = 24
"""Latest runs in a trend."""
HEADS = ("workload", "factors", "runs", "trend", "latest", "reference", "change", "judged")
RIGHT = ("runs", "latest", "reference", "change", "median", "n")
RUN_HEADS = ("run", "commit", "started", "median", "spread", "n", "")

LACKING = {
    "no figures": "has no value in the latest run, which failed, is damaged or INVALID",
    "withheld": "is withheld in the latest run, whose samples are too few for it",
}
Rows = list[tuple[str, ...]]


def trend(values: Sequence[float]) -> str:
    """Return the latest values as bars, from their least to their largest, of equal height where all are equal."""
    shown = values[-LONGEST_TREND:]
    low, high = min(shown), max(shown)
    if high <= low:
        return BARS[3] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / (high - low) * len(BARS)))] for value in shown)


def change_words(ratio: float | None, before: float | None, after: float) -> str:
    """Return a change with its sign: `-13.8 %`; where it has no ratio, the two values."""
    if before is None:
        return ABSENT
    if ratio is None:
        return "0 %" if before == after else f"{number(before)} to {number(after)}"
    percent = 100 * (ratio - 1)
    return f"{percent:+.1f} %" if abs(percent) < 1000 else f"{ratio:,.0f} times"


def as_text(judgements: Sequence[Judgement], scanned: Scanned, *, every_run: bool, markdown: bool = False) -> str:
    """Return the tables of all series, by scenario, machine and metric: a row for each treatment, then its change
    points; with `every_run` a table of the runs of each."""
    table = _markdown if markdown else _plain
    lines: list[str] = []
    last = None
    for group in map(_as_printed, _groups(judgements)):
        first = group[0].series
        if last != (first.scenario, first.machine):
            last = (first.scenario, first.machine)
            title = f"{first.scenario} on {first.machine}: {_runs_words(group)}"
            lines += [f"## {title}" if markdown else title, ""]
        unit = f"{first.unit}, " if first.unit else ""
        better = "no direction is better" if first.better == "neither" else f"{first.better} is better"
        head = f"{first.metric} ({unit}{better})"
        lines += [f"**{head}**" if markdown else head, *([""] if markdown else [])]
        lines += [*table(HEADS, [_row(judged) for judged in group]), ""]
        points = [(judgement, change) for judgement in group for change in judgement.changes]
        lines += [f"{'- ' if markdown else '  '}{_change_line(judgement, change)}" for judgement, change in points]
        lines += [""] if points else []
        if every_run:
            for judgement in group:
                title = f"runs of {name_of(judgement)}"
                lines += [title, *([""] if markdown else []), *table(RUN_HEADS, _run_rows(judgement)), ""]
    lines += notes(scanned)
    return "\n".join(lines).rstrip()


def notes(scanned: Scanned) -> list[str]:
    """Return a line for each damaged file."""
    return [f"Left out: {file.path}: {file.why}" for file in scanned.damaged]


def document(judgements: Sequence[Judgement], scanned: Scanned) -> dict[str, Any]:
    """Return everything as one JSON document."""
    return {"schema_version": 1, "index": encode(scanned), "series": [encode(judgement) for judgement in judgements]}


def failures(judgements: Sequence[Judgement], fail_on: str) -> list[str]:
    """Return a line for each series whose latest run fails the gate: it is `worse`, or with `change` changed in any
    direction, or it has no figures that can be judged."""
    unknown = ("no figures", "withheld", "range", "lower bound")
    bad = ("worse", *unknown) if fail_on == "worse" else ("worse", "better", "changed", *unknown)
    return [_failure(printed) for judged in judgements if judged.judged in bad for printed in _as_printed([judged])]


def name_of(judged: Judgement) -> str:
    """Return workload and levels of a series."""
    return f"{judged.series.workload} {_levels(judged)}".replace(f" {ABSENT}", "")


def _as_printed(group: Sequence[Judgement]) -> list[Judgement]:
    """Return judgements of one figure with all values in the printed unit: times above 10 s in s."""
    unit, factor = unit_of([run.value for judged in group for run in judged.series.runs], group[0].series.unit)
    if factor == 1:
        return list(group)

    def scaled(record: Any, *names: str) -> Any:
        values = {name: getattr(record, name) for name in names}
        return replace(record, **{name: value and factor * value for name, value in values.items()})

    return [
        replace(
            scaled(judged, "reference"),
            changes=tuple(scaled(change, "before", "after") for change in judged.changes),
            series=replace(
                judged.series,
                unit=unit,
                runs=tuple(scaled(run, "value", "low", "high", "most") for run in judged.series.runs),
            ),
        )
        for judged in group
    ]


def _failure(judged: Judgement) -> str:
    series, latest = judged.series, judged.series.runs[-1]
    if judged.judged in LACKING:
        return (
            f"{judged.judged}: {series.scenario} {name_of(judged)}: {series.metric} {LACKING[judged.judged]}; the"
            f" last value is that of {latest.place}"
        )
    if judged.judged in ("range", "lower bound"):
        return (
            f"{judged.judged}: {series.scenario} {name_of(judged)}: {series.metric} is {_value(latest)} {series.unit}"
            f" in {latest.place}, as requests had no answer; against {number(judged.reference)}"
            f" ({judged.reference_name}) nothing can be said"
        )
    return (
        f"{judged.judged}: {series.scenario} {name_of(judged)}: {series.metric} {_value(latest)} {series.unit}"
        f" in {latest.place} against {number(judged.reference)} ({judged.reference_name}): "
        f"{change_words(judged.ratio, judged.reference, latest.value)}, threshold {judged.threshold_ratio:.3g}"
    )


def _groups(judgements: Sequence[Judgement]) -> Iterator[list[Judgement]]:
    groups: dict[tuple[str, str, str], list[Judgement]] = {}
    for judgement in judgements:
        series = judgement.series
        groups.setdefault((series.scenario, series.machine, series.metric), []).append(judgement)
    pairs = list(dict.fromkeys((scenario, machine) for scenario, machine, _ in groups))
    for pair in pairs:
        yield from (group for key, group in groups.items() if key[:2] == pair)


def _runs_words(group: Sequence[Judgement]) -> str:
    runs = {run.folder: run.started_at for judgement in group for run in judgement.series.runs}
    count = counted(len(runs), "run")
    first, latest = min(runs.values())[:10], max(runs.values())[:10]
    return f"{count}, {first}" if first == latest else f"{count}, {first} to {latest}"


def _row(judged: Judgement) -> tuple[str, ...]:
    series = judged.series
    latest = series.runs[-1]
    return (
        series.workload,
        _levels(judged),
        f"{len(series.runs)}",
        trend([run.value for run in series.runs]),
        _value(latest),
        number(judged.reference),
        change_words(judged.ratio, judged.reference, latest.value),
        judged.judged,
    )


def _value(run: RunValue) -> str:
    return range_text(Range(low=run.value, high=run.most)) if run.lower_bound else number(run.value)


def _levels(judged: Judgement) -> str:
    return " ".join(f"{name}={level(value, name)}" for name, value in judged.series.levels.items()) or ABSENT


def _change_line(judged: Judgement, change: SeriesChange) -> str:
    also = f"; also changed: {', '.join(change.also_changed)}" if change.also_changed else ""
    return (
        f"{name_of(judged)}: {change_words(change.ratio, change.before, change.after)} "
        f"({number(change.before)} -> {number(change.after)}, {change.judged}, p {change.p:.3g}) between "
        f"{change.place_before} and {change.place_after}{also}"
    )


def _run_rows(judged: Judgement) -> Rows:
    changed = {change.at for change in judged.changes}
    rows: Rows = []
    for at, run in enumerate(judged.series.runs):
        commits = f" and {run.commits - 1} more" if run.commits > 1 else ""
        commit = f"{run.short_commit}{commits}" if run.commit else ABSENT
        left_out = [f"{run.invalid} INVALID left out"] if run.invalid else []
        marks = ", ".join([*(["change point"] if at in changed else []), *left_out])
        spread = span(run.low, run.high) if run.n > 1 else ABSENT
        rows.append((run.run, commit, run.started_at[:16], _value(run), spread, str(run.n), marks))
    return rows


def _plain(heads: Sequence[str], rows: Rows) -> list[str]:
    return aligned([heads, *rows], left=[place for place, head in enumerate(heads) if head not in RIGHT])


def _markdown(heads: Sequence[str], rows: Rows) -> list[str]:
    rule = ["--:" if head in RIGHT else "---" for head in heads]
    cells = (tuple(heads), tuple(rule), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows))
    return [f"| {' | '.join(row)} |" for row in cells]
