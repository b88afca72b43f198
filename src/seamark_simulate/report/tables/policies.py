"""Table of policies side by side: the ratio to the baseline policy with its interval and verdict, by column."""

from seamark.model.results.comparison import Compared
from seamark.report.comparison import effect_text, p_text, reason_text, verdict_text
from seamark.report.numbers import number, unit_words
from seamark.report.page.content import Cell, Table, absent, column
from seamark_simulate.report.policies import PolicyMatrix

MOST_COLUMNS = 12


def policy_table(matrix: PolicyMatrix, workload: str, family: int) -> Table:
    """Return a row for each policy, the baseline with its medians first."""
    shown = matrix.columns[:MOST_COLUMNS]
    policies = list(matrix.cells)
    unit = unit_words(matrix.unit)
    columns = [column("policy", [f"{matrix.base} (baseline)", *policies])]
    for name in shown:
        median = matrix.medians[name]
        base = absent("no figures") if median is None else Cell(text=f"{number(median)} {unit}".strip())
        cells = [base, *(_cell(matrix.cells[policy].get(name), family) for policy in policies)]
        columns.append(column(name or matrix.metric, cells))
    more = len(matrix.columns) - len(shown)
    notes = [
        "Of the baseline the median over repetitions, of the others the ratio to it. Intervals, p and verdicts are"
        " those of Comparisons."
    ]
    notes += [f"{more} more combinations are among the comparisons."] if more > 0 else []
    return Table(columns=tuple(columns), caption=f"{workload}: policies by {matrix.metric}", footnotes=tuple(notes))


def _cell(each: Compared | None, family: int) -> Cell:
    if each is None:
        return absent("not compared")
    text = ", ".join(filter(None, (effect_text(each), verdict_text(each))))
    title = ". ".join(filter(None, (p_text(each, family), reason_text(each))))
    return Cell(text=text, title=title or None)
