"""Section of comparisons: a figure of the intervals, a table with verdicts, and what both rest on."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.compared_answers import items_text
from seamark.report.comparison import (
    basis,
    contrast_text,
    effect_text,
    origin_text,
    p_number,
    reason_text,
    side_texts,
    verdict_text,
)
from seamark.report.figures.comparisons import comparison_pictures
from seamark.report.ordering import ORIGIN
from seamark.report.page.content import Block, Fold, Picture, Section, Table, Text, column, figures
from seamark.report.source import Results

MOST_ROWS = 200
SIDE = "median of the values that are tested, of answers the mean score"
EFFECT = "new to baseline: Hodges-Lehmann, exact interval; of answers the difference of mean scores"


def comparison_blocks(results: Results, folder: Path) -> list[Picture]:
    """Draw the intervals of a scenario's comparisons; nothing where it compares nothing."""
    comparisons = results.summary.comparisons
    return comparison_pictures(comparisons, folder) if comparisons is not None else []


def comparisons_section(results: Results, drawn: Sequence[Block]) -> Section | None:
    """Return the comparisons of a scenario with their intervals; None where it compares nothing."""
    comparisons = results.summary.comparisons
    if comparisons is None:
        return None
    declared = [compared for compared in comparisons.comparisons if compared.in_family and comparisons.declared]
    others = [compared for compared in comparisons.comparisons if not (compared.in_family and comparisons.declared)]
    notes = tuple(Text(text=text) for text in basis(comparisons))
    title = f"{counted(len(others), 'comparison')} that nobody declared"
    inside: tuple[Block, ...] = (*(() if declared else drawn), *((_table(comparisons, others),) if others else ()))
    blocks: tuple[Block, ...] = (
        *((*drawn, _table(comparisons, declared)) if declared else ()),
        *((Fold(title=title, blocks=inside),) if others else ()),
        *notes,
    )
    return Section(id="comparisons", title="Comparisons", blocks=blocks)


def _table(found: Comparisons, compared: Sequence[Compared]) -> Table:
    shown = compared[:MOST_ROWS]
    sides = [side_texts(row) for row in shown]
    scored = any(row.answers for row in shown)
    reasons = list(dict.fromkeys(text for row in shown if (text := reason_text(row))))
    marks = [f"{reasons.index(text) + 1}" if (text := reason_text(row)) else "" for row in shown]
    origins = (column(ORIGIN, [origin_text(row) for row in shown]),) if found.simulated else ()
    columns = (
        column("comparison", [contrast_text(row, found) for row in shown]),
        *origins,
        column("metric", [row.metric for row in shown], "code"),
        figures("baseline", [base for base, _ in sides], "", SIDE),
        figures("new", [other for _, other in sides], "", SIDE),
        figures("effect" if scored else "ratio", [effect_text(row) for row in shown], "", EFFECT),
        *((column("items", [items_text(row.answers) if row.answers else "" for row in shown]),) if scored else ()),
        figures("p", [p_number(row) or None for row in shown], "", why="no p is given"),
        column("verdict", [verdict_text(row) for row in shown], "verdict"),
        column("note", marks),
    )
    more = len(compared) - len(shown)
    left_out = (f"{more:,} more are printed by `bench compare`.",) if more else ()
    return Table(columns=columns, footnotes=(*(f"{at}: {text}" for at, text in enumerate(reasons, 1)), *left_out))
