"""Says and marks where a sweep of load has its knee."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from seamark.model.plurals import counted
from seamark.report.canvas import INK
from seamark.report.content import Block, Cell, Column, Table, Text, absent, known
from seamark.report.numbers import MEAN_NOTE, level, number, statistic
from seamark.report.source import Document, Results

METHOD = (
    "The knee is where throughput over mean response time (power, after Kleinrock) is greatest, on medians over "
    "repetitions: beyond it, throughput costs more than its share of waiting."
)
STEP = 0.11
"""How far labels stand above each other, as a share of the axis, so that those of several curves do not meet."""


def knees_of(results: Results, workload: str, factor: str) -> list[Document]:
    """Return the knees that summary.json has of a workload's sweeps by `factor`."""
    every = results.summary.get("knees") or ()
    return [found for found in every if (found["workload"], found["factor"]) == (workload, factor)]


def knee_of(knees: Sequence[Document], factors: Mapping[str, object]) -> Document | None:
    """Return the knee of the sweep that a treatment with these factors belongs to; None without one."""
    for found in knees:
        if found["knee"] is not None and all(factors.get(name) == value for name, value in found["fixed"].items()):
            return found
    return None


def mark(axis: Axes, x: float, label: str, colour: str, place: int, *, rises: bool) -> None:
    """Draw a dotted line at a knee, with its label; `place` counts the marks of one panel. The label keeps off the
    curve: right of the line and low where what is drawn `rises` up to the knee, else high and on the left."""
    axis.axvline(x, color=colour, lw=1.1, ls=(0, (1, 1.6)), zorder=2)
    across = axis.transAxes.inverted().transform(axis.transData.transform((x, 1.0)))[0]
    left = not rises and across > 0.3
    axis.annotate(
        label,
        (x, 0.1 + STEP * place if rises else 0.97 - STEP * place),
        (-3 if left else 3, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=7,
        color=INK,
        va="top",
        ha="right" if left else "left",
        bbox={"facecolor": "white", "edgecolor": colour, "linewidth": 0.6, "pad": 1.2, "alpha": 0.9},
        zorder=4,
    )


def knee_blocks(knees: Sequence[Document]) -> list[Block]:
    """Return a sentence on one knee, a table of several; nothing without a sweep."""
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
