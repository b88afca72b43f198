"""The table of kinds of request: a row for each class of a mix, operation or turn of a session in each treatment."""

from collections.abc import Sequence

from seamark.report.canvas import numeric
from seamark.report.content import Cell, Column, Table, absent, known
from seamark.report.grid import levels_of
from seamark.report.numbers import BOUND_NOTE, UNSTEADY_NOTE, level, number, percent, saturation_mark, span
from seamark.report.source import Document

MOST_ROWS = 200
TIMES = {"ttft_ms": "TTFT", "latency_ms": "response"}
QUANTILES = ("p50", "p90", "p99")
NOTE = (
    "Times and rates of a kind are the median over repetitions of the trials' own figures; least and greatest stand "
    "beside a median that they differ from. Requests are those of all repetitions. – : withheld, since a trial has "
    "too few samples of this kind (p90 needs 100, p99 1,000), or not known."
)
NONE = "no trial of this treatment is ok, or all its requests are alike"
WITHHELD = "withheld: too few samples of this kind in a trial's measured window (p90 needs 100, p99 1,000)"
NOT_STREAMED = "no reply of this kind was streamed"
NOTHING_ENDED = "no request of this kind has ended"


def kinds_table(workload: str, treatments: Sequence[Document], named: bool) -> Table | None:
    """Return a row for each kind and treatment; None where all requests are alike."""
    if not any(treatment.get("by_kind") for treatment in treatments):
        return None
    levels = levels_of(treatments)
    shown = [group for group in TIMES if any(kind.get(group) for t in treatments for _, kind in _kinds(t))]
    columns = [
        *(Column(name=name, numeric=numeric(values)) for name, values in levels.items()),
        Column(name="kind"),
        Column(name="requests", title="due in the measured windows of all repetitions", numeric=True),
        Column(name="rate", unit="requests/s", title="good ones that were due in the window, a second", numeric=True),
        *(
            Column(name=f"{TIMES[group]} {quantile}", unit="ms", title="median over the repetitions", numeric=True)
            for group in shown
            for quantile in QUANTILES
        ),
        Column(name="errors", unit="%", title="failed requests of those that ended", numeric=True),
    ]
    rows = []
    texts: list[str] = []
    for treatment in treatments:
        factors = treatment.get("factors") or {}
        mark = saturation_mark(str(reason["code"]) for reason in treatment.get("reasons") or ())
        at = [Cell(text=level(factors.get(name), name)) for name in levels]
        if not _kinds(treatment):
            rows.append((*at, *(absent(NONE) for _ in columns[len(at) :])))
        for name, kind in _kinds(treatment):
            times = [_time(kind, group, quantile, mark) for group in shown for quantile in QUANTILES]
            texts += [cell.text for cell in times]
            rows.append((*at, Cell(text=name), *_counted(kind), *times, _errors(kind)))
    more = len(rows) - MOST_ROWS
    return Table(
        columns=tuple(columns),
        rows=tuple(rows[:MOST_ROWS]),
        caption=f"{workload}: kinds of request" if named else "Kinds of request",
        footnotes=(
            NOTE,
            *(note for note in (BOUND_NOTE, UNSTEADY_NOTE) if any(note[0] in text for text in texts)),
            *((f"{more} more rows: `by_kind` in summary.json has them.",) if more > 0 else ()),
        ),
    )


def _kinds(treatment: Document) -> list[tuple[str, Document]]:
    return list((treatment.get("by_kind") or {}).items())


def _counted(kind: Document) -> tuple[Cell, Cell]:
    return known(f"{kind['requests']:,}"), _spread(kind["requests_per_s"], "not known")


def _time(kind: Document, group: str, quantile: str, mark: str) -> Cell:
    times = kind.get(group)
    if times is None:
        return absent(NOT_STREAMED)
    bound = quantile in (times.get("lower_bounds") or ())
    return _spread(times.get(quantile) or {}, WITHHELD, "≥ " if bound else "", mark)


def _spread(figure: Document, why: str, before: str = "", after: str = "") -> Cell:
    """Return the median, with least and greatest where they differ from it, between two marks."""
    middle = figure.get("median")
    if middle is None:
        return absent(why)
    least, most = figure.get("min"), figure.get("max")
    same = number(least) == number(most)
    return known(before + (number(middle) if same else f"{number(middle)} ({span(least, most)})") + after)


def _errors(kind: Document) -> Cell:
    rate = kind["errors"]["rate"]
    return absent(NOTHING_ENDED) if rate is None else known(percent(rate))
