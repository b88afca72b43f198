"""Section of quality against costs: the level to take, a figure, and a table for each front."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.results.comparison import Front
from seamark.report.compared_answers import score_text
from seamark.report.figures.fronts import front_picture
from seamark.report.fronts import as_printed, front_note, front_sentence, front_title, share
from seamark.report.numbers import level, number, span
from seamark.report.page.content import Block, Picture, Section, Table, Text, column, figures
from seamark.report.source import Results

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
        *(_table(as_printed(front), front_title(front, several)) for front in comparisons.fronts[:MOST_TABLES]),
    ]
    if more := len(comparisons.fronts) - MOST_TABLES:
        blocks += [Text(text=f"{more} more are in summary.json.")] if more > 0 else []
    return Section(id="fronts", title="Quality against cost", blocks=tuple(blocks))


def _table(front: Front, title: str) -> Table:
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
