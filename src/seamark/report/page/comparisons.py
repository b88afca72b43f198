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
    found = results.summary.comparisons
    return comparison_pictures(found, folder) if found is not None else []


def comparisons_section(results: Results, drawn: Sequence[Block]) -> Section | None:
    """Return the comparisons of a scenario with their intervals; None where it compares nothing."""
    found = results.summary.comparisons
    if found is None:
        return None
    declared = [compared for compared in found.comparisons if compared.in_family and found.declared]
    others = [compared for compared in found.comparisons if not (compared.in_family and found.declared)]
    notes = tuple(Text(text=text) for text in basis(found))
    title = f"{counted(len(others), 'comparison')} that nobody declared"
    inside: tuple[Block, ...] = (*(() if declared else drawn), *((_table(found, others),) if others else ()))
    blocks: tuple[Block, ...] = (
        *((*drawn, _table(found, declared)) if declared else ()),
        *((Fold(title=title, blocks=inside),) if others else ()),
        *notes,
    )
    return Section(id="comparisons", title="Comparisons", blocks=blocks)


def _table(found: Comparisons, compared: Sequence[Compared]) -> Table:
    shown = compared[:MOST_ROWS]
    sides = [side_texts(each) for each in shown]
    scored = any(each.answers for each in shown)
    reasons = list(dict.fromkeys(text for each in shown if (text := reason_text(each))))
    marks = [f"{reasons.index(text) + 1}" if (text := reason_text(each)) else "" for each in shown]
    origins = (column(ORIGIN, [origin_text(each) for each in shown]),) if found.simulated else ()
    columns = (
        column("comparison", [contrast_text(each, found) for each in shown]),
        *origins,
        column("metric", [each.metric for each in shown], "code"),
        figures("baseline", [one for one, _ in sides], "", SIDE),
        figures("new", [other for _, other in sides], "", SIDE),
        figures("effect" if scored else "ratio", [effect_text(each) for each in shown], "", EFFECT),
        *((column("items", [items_text(each.answers) if each.answers else "" for each in shown]),) if scored else ()),
        figures("p", [p_number(each) or None for each in shown], "", why="no p is given"),
        column("verdict", [verdict_text(each) for each in shown], "verdict"),
        column("note", marks),
    )
    more = len(compared) - len(shown)
    left_out = (f"{more:,} more are printed by `bench compare`.",) if more else ()
    return Table(columns=columns, footnotes=(*(f"{at}: {text}" for at, text in enumerate(reasons, 1)), *left_out))
