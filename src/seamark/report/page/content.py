"""Model of a page: sections of text, tables, figures and code, free of HTML and Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.report.numbers import ABSENT, number

Kind = Literal["text", "number", "verdict", "code", "time", "absent", "faint", "short"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Cell of a table. `title` is its tooltip; `share` (0..1) draws a bar behind a number."""

    text: str
    kind: Kind = "text"
    title: str | None = None
    share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of a table: its head with a unit and a tooltip, and its cells from top to bottom."""

    name: str
    cells: Sequence[Cell]
    unit: str = ""
    title: str | None = None
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table of columns that have equally many cells."""

    columns: tuple[Column, ...]
    caption: str = ""
    footnotes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        return tuple(zip(*(column.cells for column in self.columns), strict=True))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of name and value; `long` ones take a line each."""

    pairs: tuple[tuple[str, str], ...]
    long: bool = False


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str
    kind: Literal["plain", "note", "warning", "good"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Preformatted lines."""

    text: str
    language: str = ""
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Figure: `name` is the stem of its PNG and SVG files, `svg` is embedded in the page.

    Its size is in CSS pixels; a page needs it to keep the place free before the figure is decoded.
    """

    name: str
    alt: str
    caption: str
    svg: bytes
    png: bytes = b""
    width_px: int
    height_px: int


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Blocks that are shown only when a reader opens them, under a line that says what they are."""

    title: str
    blocks: "tuple[Block, ...]"


Block = Table | Facts | Text | Code | Picture | Fold


@dataclass(frozen=True, kw_only=True)
class Section:
    """Heading, blocks and subsections. `id` is the anchor."""

    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple["Section", ...] = ()


Content = Cell | str | float | None
"""What a cell of a column is made of."""


def column(
    name: str,
    cells: Iterable[Content],
    kind: Kind = "text",
    *,
    why: str = "",
    unit: str = "",
    numeric: bool = False,
    title: str | None = None,
    shown: Callable[[float], str] = number,
) -> Column:
    """Return a column: text and numbers, as `shown`, become cells of `kind`, None an absent one with the reason
    `why`."""
    whole = [
        cell
        if isinstance(cell, Cell)
        else absent(why)
        if cell is None
        else Cell(text=cell if isinstance(cell, str) else shown(cell), kind=kind)
        for cell in cells
    ]
    return Column(name=name, cells=whole, unit=unit, title=title, numeric=numeric)


def figures(
    name: str,
    cells: Iterable[Content],
    unit: str = "",
    title: str | None = None,
    *,
    why: str = "",
    shown: Callable[[float], str] = number,
) -> Column:
    """Return a column of numbers."""
    return column(name, cells, "number", why=why, unit=unit, title=title, numeric=True, shown=shown)


def named(ids: Iterable[str], names: Mapping[str, str]) -> list[Cell]:
    """Return cells of what is named by its id, with its name as text and the id as tooltip."""
    return [Cell(text=names.get(key, key), title=key) for key in ids]


def known(text: str, *, title: str | None = None, share: float | None = None) -> Cell:
    """Return a cell that holds a number."""
    return Cell(text=text, kind="number", title=title, share=share)


def faint(text: str, *, title: str | None = None) -> Cell:
    """Return a cell with an interval in place of a number that few samples support."""
    return Cell(text=text, kind="faint", title=title)


def absent(why: str) -> Cell:
    """Return the cell of a missing number: an en dash, never 0, with the reason as tooltip."""
    return Cell(text=ABSENT, kind="absent", title=why)
