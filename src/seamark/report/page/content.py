"""Model of a page: sections of text, tables, figures and code, free of HTML and Markdown."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Cell of a table. `title` is its tooltip; `share` (0..1) draws a bar behind a number."""

    text: str
    kind: Literal["text", "number", "verdict", "code", "time", "absent", "short"] = "text"
    title: str | None = None
    share: float | None = None
    href: str | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """Head of a column, with its unit."""

    name: str
    unit: str = ""
    title: str | None = None
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table: each row has as many cells as there are columns."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    footnotes: tuple[str, ...] = ()


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
    width_px: int
    height_px: int


Block = Table | Facts | Text | Code | Picture


@dataclass(frozen=True, kw_only=True)
class Section:
    """Heading, blocks and subsections. `id` is the anchor."""

    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple["Section", ...] = ()


def known(text: str, *, title: str | None = None, share: float | None = None) -> Cell:
    """Return a cell that holds a number."""
    return Cell(text=text, kind="number", title=title, share=share)


def absent(why: str) -> Cell:
    """Return the cell of a missing number: an en dash, never 0, with the reason as tooltip."""
    return Cell(text="–", kind="absent", title=why)
