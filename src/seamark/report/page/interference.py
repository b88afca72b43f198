"""Blocks of what parties cost each other: a heat map, a row for each slowdown, and each set as a whole."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import TwoSlopeNorm

from seamark.model.plurals import counted
from seamark.report.comparison import NO_VERDICT
from seamark.report.figures.canvas import INK, drawing, picture_of
from seamark.report.interference import (
    SetFacts,
    Slowdown,
    StageSlowdown,
    cells_of,
    energies_of,
    in_matrix,
    sets_of,
    slowdowns_of,
    stage_slowdowns_of,
)
from seamark.report.numbers import levels_text, number, with_unit
from seamark.report.page.content import Block, Column, Picture, Table, Text, column, figures
from seamark.report.source import Results

MOST_ROWS = 200
MARKS = {"worse": " ▲", "better": " ▼", "equivalent": " =", "inconclusive": " ?", None: ""}
"""Verdict -> its mark in the heat map."""
DOUBTFUL = " !"
NOT_COMPARED = "no trial of it was compared"
NO_COUNTER = "no counter of energy moves in a block, alone and together, or a party has a GPU"


def interference_blocks(results: Results) -> list[Block]:
    """Return who slows whom; nothing where no sets of parties are compared."""
    found = slowdowns_of(results.summary.comparisons)
    matrix = in_matrix(found)
    if not matrix:
        return []
    stages = stage_slowdowns_of(results)
    text = Text(text=slowdown_text(matrix, stages, cells_of(results.summary.comparisons)))
    return [text, _heat_map(matrix), _table(found), *_sets(found, results), *_stages(stages)]


def first_slowdown(results: Results) -> str:
    """Return who suffers most, and which of its stages; nothing where no sets of parties are compared."""
    comparisons = results.summary.comparisons
    matrix = in_matrix(slowdowns_of(comparisons))
    return slowdown_text(matrix, stage_slowdowns_of(results), cells_of(comparisons)) if matrix else ""


def slowdown_text(matrix: Sequence[Slowdown], stages: Sequence[StageSlowdown], cells: int) -> str:
    """Return who suffers most, and which of its stages."""
    return " ".join(filter(None, (worst_text(matrix, cells), stage_text(matrix, stages))))


def worst_text(matrix: Sequence[Slowdown], cells: int) -> str:
    """Return who suffers most, and beside whom, in the cells that are known: those with a slowdown without doubts.
    `cells` is the number of all."""
    worst, known = _worst(matrix), sum(not slowdown.doubts for slowdown in matrix)
    if worst is None:
        doubts = ", ".join(dict.fromkeys(code for slowdown in matrix for code in slowdown.doubts))
        return f"Who suffers most is not known: no slowdown of {counted(cells, 'cell')} is free of doubt ({doubts})."
    among = "" if known == cells else f" of the {known} of {cells} cells that are known"
    if worst.value <= 1:
        among = among and f" in {known} of {cells} cells; the others are not known"
        return f"No party is slower beside others than alone{among}."
    where = f" ({levels_text(worst.fixed)})" if worst.fixed else ""
    sure = f"; {worst.verdict}" if worst.verdict else ""
    return (
        f"{worst.party} suffers most{among}: beside {' and '.join(worst.beside)} it is {number(worst.value)} times as"
        f" slow ({worst.metric}{interval_text(worst)}{sure}){where}."
    )


def stage_text(matrix: Sequence[Slowdown], stages: Sequence[StageSlowdown]) -> str:
    """Return which stage of the party that suffers most loses the most time a visit; nothing where no stage does."""
    worst = _worst(matrix)
    own = [
        one
        for one in stages
        if worst is not None
        if (one.party, one.beside) == (worst.party, worst.beside) and worst.fixed.items() <= one.fixed.items()
    ]
    most = max(own, key=lambda one: one.ms, default=None)
    if most is None or most.ms <= 0:
        return ""
    if most.low is None or most.low <= 1:
        doubt = "too few blocks for an interval" if most.low is None else "not told apart from none"
        return f"Its stage {most.stage} lost most, {with_unit(most.ms, 'ms')} a visit ({doubt}{interval_text(most)})."
    done = "runs" if most.what == "run" else "waits"
    return (
        f"Its stage {most.stage} suffers most: a visit {done} {with_unit(most.ms, 'ms')} longer, "
        f"{number(most.value)} times as long{interval_text(most)}."
    )


def _worst(matrix: Sequence[Slowdown]) -> Slowdown | None:
    """Return the largest slowdown without doubts, None where all are doubtful."""
    known = [slowdown for slowdown in matrix if not slowdown.doubts]
    return max(known, key=lambda slowdown: slowdown.value, default=None)


def interval_text(slowdown: Slowdown | StageSlowdown) -> str:
    """Return `, 1.2 to 1.9`, or nothing without an interval."""
    if slowdown.low is None or slowdown.high is None:
        return ""
    return f", {number(slowdown.low)} to {number(slowdown.high)}"


def _heat_map(matrix: Sequence[Slowdown]) -> Picture:
    rows = list(dict.fromkeys(_name(slowdown) for slowdown in matrix))
    columns = list(dict.fromkeys(" + ".join(slowdown.beside) for slowdown in matrix))
    values = np.full((len(rows), len(columns)), np.nan)
    texts = [[""] * len(columns) for _ in rows]
    for slowdown in matrix:
        row, at = rows.index(_name(slowdown)), columns.index(" + ".join(slowdown.beside))
        values[row, at] = np.log2(slowdown.value)
        mark = DOUBTFUL if slowdown.doubts else MARKS[slowdown.verdict]
        texts[row][at] = f"{number(slowdown.value)}{mark}"
    most = 1.6 * max(0.5, float(np.nanmax(np.abs(values))))  # pale enough for the numbers
    longest = max(map(len, columns))
    with drawing(2.6 + 1.3 * len(columns) + 0.05 * longest, 1.5 + 0.42 * len(rows) + 0.05 * longest) as figure:
        axis = figure.subplots()
        axis.imshow(values, cmap="RdBu_r", norm=TwoSlopeNorm(0, -most, most), aspect="auto", alpha=0.7)
        axis.set_xticks(range(len(columns)), columns, rotation=20, ha="right")
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xlabel("beside")
        axis.set_ylabel("suffers")
        axis.grid(visible=False)
        for row, line in enumerate(texts):
            for at, text in enumerate(line):
                axis.text(at, row, text, ha="center", va="center", color=INK, fontsize=9)
        return picture_of(
            figure,
            "interference",
            alt="Slowdown of each party beside others",
            caption="Times as slow as alone, by the median response time, else by the throughput. "
            "▲ slower, ▼ faster, = the same within the margin, ? not told apart, ! in doubt (see the table); none: "
            "not in the declared family.",
        )


def _name(slowdown: Slowdown | StageSlowdown) -> str:
    fixed = levels_text(slowdown.fixed)
    return f"{slowdown.party} ({fixed})" if fixed else slowdown.party


def _table(found: Sequence[Slowdown]) -> Table:
    shown = found[:MOST_ROWS]
    more = (f"{len(found) - MOST_ROWS} more are in interference.csv.",) if len(found) > MOST_ROWS else ()
    return Table(
        columns=(
            column("party", [_name(slowdown) for slowdown in shown]),
            column("beside", [" + ".join(slowdown.beside) for slowdown in shown]),
            column("by", [slowdown.metric for slowdown in shown]),
            figures("times as slow", [slowdown.value for slowdown in shown]),
            figures("from", [slowdown.low for slowdown in shown], why=NOT_COMPARED),
            figures("to", [slowdown.high for slowdown in shown], why=NOT_COMPARED),
            column("verdict", [slowdown.verdict or NO_VERDICT for slowdown in shown]),
            *_doubts(shown),
        ),
        caption="Each party beside others, against itself alone",
        footnotes=("Ratios and intervals are those of the comparisons; of rates the inverse.", *more),
    )


def _sets(found: Sequence[Slowdown], results: Results) -> list[Table]:
    facts = sets_of(found, energies_of(results))
    if not facts:
        return []
    return [
        Table(
            columns=(
                column("set", [_set_name(" + ".join(one.parties), levels_text(one.fixed)) for one in facts]),
                figures("progress", [one.progress for one in facts], title="sum of throughputs together over alone"),
                figures("worst slowdown", [one.worst for one in facts]),
                figures("fairness", [one.fairness for one in facts], title="smallest share over the largest"),
                figures("energy", [one.energy for one in facts], title="for the same work", why=NO_COUNTER),
                figures("least", [one.energy_low for one in facts], why=NO_COUNTER),
                figures("most", [one.energy_high for one in facts], why=NO_COUNTER),
                *_doubts(facts),
            ),
            caption="Sets as a whole",
            footnotes=(
                "Progress 1 is no better than taking turns; fairness 1 slows all parties alike.",
                "Energy is the machine's for the same work, together over one party after another, by block.",
            ),
        )
    ]


def _doubts(shown: Sequence[Slowdown | SetFacts]) -> list[Column]:
    """Return the column with the codes for which a row does not say what parties cost each other, if any has some."""
    return [column("doubts", [", ".join(one.doubts) for one in shown])] if any(one.doubts for one in shown) else []


def _stages(found: Sequence[StageSlowdown]) -> list[Table]:
    if not found:
        return []
    shown = sorted(found, key=lambda one: -one.ms)[:MOST_ROWS]
    return [
        Table(
            columns=(
                column("party", [_name(one) for one in shown]),
                column("beside", [" + ".join(one.beside) for one in shown]),
                column("stage", [one.stage for one in shown]),
                column("what", [one.what for one in shown]),
                figures("longer", [one.ms for one in shown], "ms"),
                figures("times as long", [one.value for one in shown]),
                figures("from", [one.low for one in shown], why=NOT_COMPARED),
                figures("to", [one.high for one in shown], why=NOT_COMPARED),
            ),
            caption="Stages of each party beside others, against itself alone",
            footnotes=("Mean time of a visit, by block; each 95 % interval stands for itself, without a verdict.",),
        )
    ]


def _set_name(names: str, fixed: str) -> str:
    return f"{names} ({fixed})" if fixed else names


def documents_of(results: Results) -> dict[str, list[dict[str, object]]]:
    """Return slowdowns, stages and sets as interference.json has them; nothing where no sets are compared."""
    found = slowdowns_of(results.summary.comparisons)
    if not found:
        return {}
    return {
        "slowdowns": [vars(slowdown) | {"fixed": dict(slowdown.fixed)} for slowdown in found],
        "stages": [vars(one) | {"fixed": dict(one.fixed)} for one in stage_slowdowns_of(results)],
        "sets": [vars(one) | {"fixed": dict(one.fixed)} for one in sets_of(found, energies_of(results))],
    }
