"""Section of quality against costs: the level to take, a figure, and a table for each front."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.results.front import Front
from seamark.report.compared_answers import score_text
from seamark.report.figures.fronts import front_picture
from seamark.report.fronts import as_printed, front_note, front_sentence, front_title, share
from seamark.report.numbers import level, number, span
from seamark.report.page.content import Block, Picture, Section, Table, Text, column, figures
from seamark.report.source import Results

MOST_TABLES = 12


def front_blocks(results: Results, folder: Path) -> list[Picture]:
    """Draw the fronts of a scenario; nothing where it has none."""
    found = results.summary.comparisons
    picture = front_picture(found.fronts, folder) if found is not None and found.fronts else None
    return [picture] if picture is not None else []


def fronts_section(results: Results, drawn: Sequence[Block]) -> Section | None:
    """Return quality against costs; None where no answers were scored, or only one level was."""
    found = results.summary.comparisons
    if found is None or not found.fronts:
        return None
    several = len({each.workload for each in found.fronts}) > 1
    blocks: list[Block] = [
        Text(text=f"{front_title(each, several)}: {front_sentence(each)}") for each in found.fronts[:MOST_TABLES]
    ]
    blocks += [*drawn, *(_table(as_printed(each), front_title(each, several)) for each in found.fronts[:MOST_TABLES])]
    if more := len(found.fronts) - MOST_TABLES:
        blocks += [Text(text=f"{more} more are in summary.json.")] if more > 0 else []
    return Section(id="fronts", title="Quality against cost", blocks=tuple(blocks))


def _table(front: Front, title: str) -> Table:
    points = front.points
    chance = "probability" if front.blocks > 1 else "probability (quality alone)"
    columns = (
        column(front.factor, [level(each.level, front.factor) for each in points]),
        figures(front.quality, [None if each.quality is None else score_text(each.quality) for each in points]),
        figures("95 % interval", [span(each.quality_low, each.quality_high) for each in points]),
        figures(
            front.cost,
            [None if each.cost is None else number(each.cost) for each in points],
            front.cost_unit,
            why="no place",
        ),
        figures("to baseline", [None if each.ratio is None else f"{each.ratio:.2f} x" for each in points]),
        column("on the front", ["yes" if each.on_front else "no" for each in points]),
        figures(chance, [None if each.probability is None else share(each.probability) for each in points]),
        column("within the margin", [_within(front, place) for place in range(len(points))]),
    )
    notes = [front_note(front)]
    notes += [f"{level(each.level, front.factor)} has no place: {each.reason}." for each in points if each.reason]
    return Table(columns=columns, caption=title, footnotes=tuple(notes))


def _within(front: Front, place: int) -> str:
    if place == 0:
        return "baseline"
    not_worse = front.points[place].not_worse
    return "no margin stated" if not_worse is None else "shown" if not_worse else "not shown"
