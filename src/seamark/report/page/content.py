"""Model of a page: sections of text, tables, figures and code, free of HTML and Markdown."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of a table. `title` explains it on demand; `share` (0..1) draws a bar behind a number."""

    text: str
    kind: Literal["text", "number", "verdict", "code", "time", "absent", "short"] = "text"
    title: str | None = None
    share: float | None = None
    href: str | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """The head of a column, with its unit."""

    name: str
    unit: str = ""
    title: str | None = None
    numeric: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells, as long as `columns` each."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Pairs of a name and what is known of it; `long` ones take a line each."""

    pairs: tuple[tuple[str, str], ...]
    long: bool = False


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str
    kind: Literal["plain", "note", "warning", "good"] = "plain"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Lines that are shown as they are."""

    text: str
    language: str = ""
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn figure: `name` is the stem of its PNG and SVG files, `svg` what is shown in the page.

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
    """A heading, what stands below it, and its subsections. `id` is its anchor."""

    id: str
    title: str
    blocks: tuple[Block, ...] = ()
    sections: tuple["Section", ...] = ()


def known(text: str, *, title: str | None = None, share: float | None = None) -> Cell:
    """Return a cell that holds a number."""
    return Cell(text=text, kind="number", title=title, share=share)


def absent(why: str) -> Cell:
    """Return the cell of a number that is not given: an en dash that says why. Never 0."""
    return Cell(text="–", kind="absent", title=why)
