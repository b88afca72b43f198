"""Sections of comparisons: a figure of the intervals, a table with verdicts, and what both rest on; quality against
costs, with a table for each front."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, Comparisons, Front
from seamark.report.compared_answers import items_text, score_text
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
from seamark.report.figures.fronts import front_picture
from seamark.report.fronts import as_printed, front_note, front_sentence, front_title, share
from seamark.report.numbers import level, number, span
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


MOST_TABLES = 12


def front_blocks(results: Results, folder: Path) -> list[Picture]:
    """Draw the fronts of a scenario; nothing where it has none."""
    comparisons = results.summary.comparisons
    picture = front_picture(comparisons.fronts, folder) if comparisons is not None and comparisons.fronts else None
    return [picture] if picture is not None else []


def fronts_section(results: Results, drawn: Sequence[Block]) -> Section | None:
    """Return quality against costs; None where no answers were scored, or only one level was."""
    comparisons = results.summary.comparisons
    if comparisons is None or not comparisons.fronts:
        return None
    several = len({front.workload for front in comparisons.fronts}) > 1
    blocks: list[Block] = [
        Text(text=f"{front_title(front, several)}: {front_sentence(front)}")
        for front in comparisons.fronts[:MOST_TABLES]
    ]
    blocks += [
        *drawn,
        *(_front_table(as_printed(front), front_title(front, several)) for front in comparisons.fronts[:MOST_TABLES]),
    ]
    if more := len(comparisons.fronts) - MOST_TABLES:
        blocks += [Text(text=f"{more} more are in summary.json.")] if more > 0 else []
    return Section(id="fronts", title="Quality against cost", blocks=tuple(blocks))


def _front_table(front: Front, title: str) -> Table:
    points = front.points
    chance = "probability" if front.blocks > 1 else "probability (quality alone)"
    columns = (
        column(front.factor, [level(point.level, front.factor) for point in points]),
        figures(front.quality, [None if point.quality is None else score_text(point.quality) for point in points]),
        figures("95 % interval", [span(point.quality_low, point.quality_high) for point in points]),
        figures(
            front.cost,
            [None if point.cost is None else number(point.cost) for point in points],
            front.cost_unit,
            why="no place",
        ),
        figures("to baseline", [None if point.ratio is None else f"{point.ratio:.2f} x" for point in points]),
        column("on the front", ["yes" if point.on_front else "no" for point in points]),
        figures(chance, [None if point.probability is None else share(point.probability) for point in points]),
        column("within the margin", [_within(front, index) for index in range(len(points))]),
    )
    notes = [front_note(front)]
    notes += [f"{level(point.level, front.factor)} has no place: {point.reason}." for point in points if point.reason]
    return Table(columns=columns, caption=title, footnotes=tuple(notes))


def _within(front: Front, place: int) -> str:
    if place == 0:
        return "baseline"
    not_worse = front.points[place].not_worse
    return "no margin stated" if not_worse is None else "shown" if not_worse else "not shown"
