"""The table of streamed replies: times to the first token and to the first of the answer, and from token to token."""

from collections.abc import Sequence

from seamark.report.canvas import numeric
from seamark.report.content import Cell, Column, Table, absent, known
from seamark.report.grid import levels_of
from seamark.report.numbers import BOUND_NOTE, UNSTEADY_NOTE, level, saturation_mark, statistic
from seamark.report.source import Document

SHOWN = {
    "ttft_ms": ("TTFT", "first token, from the actual send"),
    "ttft_response_ms": ("TTFT response", "first token, from the intended send: what a user waits"),
    "ttfo_ms": ("TTFO", "first token that is no reasoning, from the actual send"),
    "tpot_ms": ("TPOT", "time per token after the first chunk"),
}
QUANTILES = ("p50", "p99")
NOTE = "Raw times of all repetitions pooled. TTFT and TTFO count from the moment when a request was sent."
WITHHELD = "withheld: too few samples (p99 needs 1,000), or not known: see the reasons"


def streams_table(workload: str, treatments: Sequence[Document], named: bool) -> Table | None:
    """Return a row for each treatment; None where no reply was streamed. The response of TTFT has columns where it
    is not TTFT itself, as in a closed loop, TTFO where there was reasoning."""
    shown = [group for group in SHOWN if any(_differs(treatment, group) for treatment in treatments)]
    if not shown:
        return None
    levels = levels_of(treatments)
    columns = [Column(name=name, numeric=numeric(values)) for name, values in levels.items()]
    columns += [
        Column(name=f"{SHOWN[group][0]} {quantile}", unit="ms", title=SHOWN[group][1], numeric=True)
        for group in shown
        for quantile in QUANTILES
    ]
    rows = []
    texts: list[str] = []
    for treatment in treatments:
        mark = saturation_mark(str(reason["code"]) for reason in treatment.get("reasons") or ())
        factors = treatment.get("factors") or {}
        times = [_time(treatment.get(group) or {}, quantile, mark) for group in shown for quantile in QUANTILES]
        texts += [cell.text for cell in times]
        rows.append((*(Cell(text=level(factors.get(name), name)) for name in levels), *times))
    marks = tuple(note for note in (BOUND_NOTE, UNSTEADY_NOTE) if any(note[0] in text for text in texts))
    caption = f"{workload}: streamed replies" if named else "Streamed replies"
    return Table(columns=tuple(columns), rows=tuple(rows), caption=caption, footnotes=(NOTE, *marks))


def _differs(treatment: Document, group: str) -> bool:
    """Whether a group of times is there, and another one than TTFT."""
    times, first = treatment.get(group), treatment.get("ttft_ms")
    if times is None or group in ("ttft_ms", "tpot_ms"):
        return times is not None
    return first is None or any(times.get(name) != first.get(name) for name in ("mean", "max"))


def _time(times: Document, quantile: str, mark: str) -> Cell:
    return absent(WITHHELD) if times.get(quantile) is None else known(statistic(times, quantile) + mark)
