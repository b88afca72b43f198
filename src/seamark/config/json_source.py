"""JSON parsed into the same tree as YAML, with the line of each part. Knows no noun of Seamark."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from json import decoder
from pathlib import Path
from typing import Any

from seamark.config.yaml_source import (
    DEEPEST,
    LARGEST_INTEGER,
    Item,
    Mistakes,
    holds_mapping,
    read_text,
    shown,
    yaml_tree,
)

LARGEST_BYTES = 1_000_000_000
MOST_PARTS = 50_000_000

_BLANK = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"null": None, "true": True, "false": False}
_scan: Callable[[str, int, bool], tuple[str, int]] = vars(decoder)["scanstring"]
"""Reads a string from the place after its first quote: the C function of the standard library's parser."""
_WORD = re.compile("null|true|false")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What takes the parts of a list, of which there may be millions. `key` is its key in the document; `quick` takes
    a part as plain values if nothing is wrong with it, and returns whether it did; `take` takes any part."""

    key: str
    quick: Callable[[Any], bool]
    take: Callable[[Item], object]


class NoJsonError(ValueError):
    """A text that is not JSON: its line, and why."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def load_document(path: Path, mistakes: Mistakes, begin: Callable[[Mistakes], Rows] | None = None) -> Item | None:
    """Return the mapping in a file that is JSON or YAML, whatever its name, or None after noting why there is
    none. What `begin` returns takes the rows of a list in JSON."""
    text = read_text(path, mistakes, LARGEST_BYTES)
    if text is None:
        return None
    if text.lstrip()[:1] in ("{", "["):
        try:
            noted = Mistakes()
            tree = json_tree(text, shown(path), noted, MOST_PARTS, begin and begin(noted))
            mistakes.note(*noted.noted)
            mistakes.passed_over.update({**noted.passed_over, **mistakes.passed_over})
            return tree if holds_mapping(tree, mistakes) else None
        except OverflowError:
            mistakes.of_file(path, f"more than {MOST_PARTS} parts.", "out_of_limits")
            return None
        except NoJsonError as error:
            if path.suffix == ".json":
                text = f"not valid JSON: {error}. Correct it here or just above."
                mistakes.of_file(path, text, "not_yaml", error.line)
                return None
    if begin is not None:
        begin(mistakes)
    return yaml_tree(text, path, mistakes, MOST_PARTS)


def json_tree(text: str, file: str, mistakes: Mistakes, most_parts: int, rows: Rows | None = None) -> Item:
    """Return the tree of a JSON text. Notes keys that are written twice and numbers out of range.

    `rows` takes the parts of its list, which is empty in the tree then.

    Raises NoJsonError, and OverflowError for more than `most_parts` parts.
    """
    reader = _Reader(text=text, file=file, mistakes=mistakes, left=[most_parts], rows=rows)
    tree, end = reader.item(reader.after_blank(0), "", 1)
    if (end := reader.after_blank(end)) < len(text):
        raise NoJsonError(reader.line(end), "text after the end of the document")
    return tree


@dataclass(kw_only=True)
class _Reader:
    """Reads one text. Lines are counted on the way, as places only grow."""

    text: str
    file: str
    mistakes: Mistakes
    left: list[int]
    rows: Rows | None = None
    counted: list[int] = field(default_factory=lambda: [0, 1])
    depth: int = 0

    def line(self, place: int) -> int:
        """Return the line of a place that is not before the last one asked for."""
        last, line = self.counted
        self.counted = [place, line + self.text.count("\n", last, place)]
        return self.counted[1]

    def after_blank(self, place: int) -> int:
        match = _BLANK.match(self.text, place)
        return match.end() if match else place

    def item(self, place: int, path: str, line: int) -> tuple[Item, int]:
        """Return the value at a place, and the place after it."""
        self.left[0] -= 1
        if self.left[0] < 0:
            raise OverflowError
        first = self.text[place : place + 1]
        if first in ("{", "["):
            self.depth += 1
            if self.depth > DEEPEST:
                raise NoJsonError(self.line(place), f"nested too deep ({DEEPEST} levels at most)")
            value, end = self._mapping(place + 1, path) if first == "{" else self._list(place + 1, path)
            self.depth -= 1
            return Item(value=value, file=self.file, line=line, path=path), end
        if first == '"':
            text, end = self._string(place)
            return Item(value=text, file=self.file, line=line, path=path, text=text), end
        return self._scalar(place, path, line)

    def _string(self, place: int) -> tuple[str, int]:
        try:
            return _scan(self.text, place + 1, True)
        except json.JSONDecodeError as error:
            raise NoJsonError(error.lineno, error.msg) from None

    def _scalar(self, place: int, path: str, line: int) -> tuple[Item, int]:
        word = _WORD.match(self.text, place)
        match = word or _NUMBER.match(self.text, place)
        if match is None:
            raise NoJsonError(self.line(place), "expected a value")
        text = match.group()
        value: Any = _WORDS[text] if word else float(text) if re.search("[.eE]", text) else int(text[:25])
        item = Item(value=value, file=self.file, line=line, path=path, text=text)
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            self.mistakes.add(
                item, f"'{text}' is too large: whole numbers reach to {LARGEST_INTEGER}.", "out_of_limits"
            )
        return item, match.end()

    def _mapping(self, place: int, path: str) -> tuple[dict[str, Item], int]:
        entries: dict[str, Item] = {}
        place = self.after_blank(place)
        if self.text[place : place + 1] == "}":
            return entries, place + 1
        while True:
            line = self.line(place)
            if self.text[place : place + 1] != '"':
                raise NoJsonError(line, "expected a key in double quotes")
            key, place = self._string(place)
            place = self.after_blank(place)
            if self.text[place : place + 1] != ":":
                raise NoJsonError(self.line(place), "expected ':' after a key")
            item, place = self.item(self.after_blank(place + 1), f"{path}.{key}" if path else key, line)
            if key in entries:
                text = f"written twice (first in line {entries[key].line}). Remove one."
                self.mistakes.add(item, text, "written_twice")
            else:
                entries[key] = item
            place, ended = self._next(place, "}")
            if ended:
                return entries, place

    def _list(self, place: int, path: str) -> tuple[list[Item], int]:
        parts: list[Item] = []
        rows, count = self.rows if self.rows is not None and path == self.rows.key else None, 0
        take = parts.append if rows is None else rows.take
        place = self.after_blank(place)
        if self.text[place : place + 1] == "]":
            return parts, place + 1
        while True:
            end = None if rows is None else self._quick(place, rows)
            if end is None:
                item, end = self.item(place, f"{path}[{count}]", self.line(place))
                take(item)
            count += 1
            place, ended = self._next(end, "]")
            if ended:
                return parts, place

    def _quick(self, place: int, rows: Rows) -> int | None:
        """Return the place after a part that was taken as plain values; None if it must be read with its lines."""
        try:
            value, end = _PLAIN.raw_decode(self.text, place)
            size = _size(value, self.depth)
        except (ValueError, RecursionError):
            return None
        if size > self.left[0] or not rows.quick(value):
            return None
        self.left[0] -= size
        return end

    def _next(self, place: int, end: str) -> tuple[int, bool]:
        """Return the place after a comma, or after the end of a list or mapping, and which of the two it was."""
        place = self.after_blank(place)
        mark = self.text[place : place + 1]
        if mark not in (",", end) or not mark:
            raise NoJsonError(self.line(place), f"expected ',' or '{end}'")
        return (place + 1, True) if mark == end else (self.after_blank(place + 1), False)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a key is written twice")
    return entries


def _whole(text: str) -> int:
    value = int(text[:25])
    if abs(value) > LARGEST_INTEGER:
        raise ValueError("out of range")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_PLAIN = json.JSONDecoder(object_pairs_hook=_once, parse_int=_whole, parse_constant=_constant)
"""Reads what `_Reader` reads without a mistake, ten times as fast but without lines. Raises ValueError otherwise."""


def _size(value: Any, depth: int) -> int:
    """Return the number of parts of a plain value in `depth` others. Raises ValueError if it is nested too deep."""
    if type(value) not in (dict, list):
        return 1
    if depth >= DEEPEST:
        raise ValueError("nested too deep")
    inner = value.values() if type(value) is dict else value
    return 1 + len(inner) + sum(_size(part, depth + 1) - 1 for part in inner if type(part) in (dict, list))
