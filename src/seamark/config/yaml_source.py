"""YAML parsed into a tree with file and line of each part, and the list that collects mistakes.

Knows no noun of Seamark.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from seamark.errors import Code, Mistake, UserError, did_you_mean
from seamark.patterns.packed import unpacked

LARGEST_BYTES = 4_000_000
PIECE_BYTES = 1 << 16
"""What is read at once: a read of the largest file would take that much memory for any."""
MOST_NODES = 100_000
DEEPEST = 60
LONGEST_SHOWN = 80
LARGEST_INTEGER = 2**63 - 1
UNREAD: Any = object()
"""Value of an Item with a noted mistake: no further mistake is noted for it."""
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_EMPTY = "the file is empty; expected keys and values such as 'name: value'."
_TOO_MANY = "more than {} parts, aliases ('*name') counted each time."
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One part of a document. `value` is a scalar, a list of Items, or a dict of Items by key.

    `path` is dotted (`workload.batch[2]`); `text` is a scalar as written.
    """

    value: Any
    file: str
    line: int
    path: str
    text: str | None = None

    @property
    def where(self) -> str:
        """Return "file.yaml:12: workload.batch", or "file.yaml:12" for the whole document."""
        return f"{self.file}:{self.line}: {self.path}" if self.path else f"{self.file}:{self.line}"

    @property
    def shown(self) -> str:
        """Return the written text, shortened for a message."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        if self.value is None:
            return "nothing"
        return _cut(self.text if self.text is not None else str(self.value))

    @property
    def plain(self) -> Any:
        """Return the tree as plain values: scalars, lists and dicts."""
        if isinstance(self.value, dict):
            return {key: child.plain for key, child in self.value.items()}
        return [child.plain for child in self.value] if isinstance(self.value, list) else self.value

    def at(self, path: Sequence[str | int]) -> "Item":
        """Return the part at a path of keys and indices, or the last part on the way that is there."""
        part = self
        for step in path:
            inner = part.value
            listed = isinstance(inner, list) and isinstance(step, int) and step < len(inner)
            if not listed and not (isinstance(inner, dict) and step in inner):
                break
            part = inner[step]
        return part

    def items(self) -> Iterator[tuple[str, "Item"]]:
        """Yield the entries of a mapping, none for any other value."""
        yield from self.value.items() if isinstance(self.value, dict) else ()

    def listed(self, *path: str | int) -> list["Item"]:
        """Return the items of a list at a path of keys and indices, none where there is no list."""
        value = self.at(path).value
        return value if isinstance(value, list) else []


@dataclass(kw_only=True)
class Mistakes:
    """All mistakes of a document, reported at once."""

    noted: list[Mistake] = field(default_factory=list)
    passed_over: dict[str, str] = field(default_factory=dict)
    """Unknown keys of files that other programs write, with the first place of each: no mistakes."""
    count: int = 0
    """Number of mistakes so far, including those that share a line."""

    def add(self, at: Item, text: str, code: Code = "invalid") -> None:
        """Note a mistake of one part. `text` names what is wrong, what is allowed, and the remedy."""
        if at.value is UNREAD:
            self.count += 1
        else:
            self.note(Mistake(code=code, file=at.file, line=at.line, path=at.path, text=text))

    def note(self, *mistakes: Mistake) -> None:
        """Note mistakes once; unprintable characters of their paths and texts are escaped."""
        for mistake in mistakes:
            written = replace(mistake, path=mistake.path and printable(mistake.path), text=printable(mistake.text))
            self.count += 1
            if written not in self.noted:
                self.noted.append(written)

    def of_file(self, path: Path, text: str, code: Code, line: int | None = None) -> None:
        """Note a mistake of a whole file, or of one of its lines."""
        self.note(Mistake(code=code, file=shown(path), line=line, text=text))

    def unknown_key(self, at: Item, allowed: Iterable[str], hint: str = "") -> None:
        """Note an unknown key, with the nearest known one."""
        names = list(dict.fromkeys(allowed))
        key = at.path.rsplit(".", 1)[-1]
        guess = hint or did_you_mean(key, names) or f" Allowed: {', '.join(names)}."
        self.add(at, f"unknown key.{guess}", "unknown_key")

    def raise_any(self) -> None:
        """Raise UserError when there is any."""
        if self.noted:
            raise UserError(*self.noted)


def printable(text: str) -> str:
    """Return a text with escapes in the place of characters that cannot be printed."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def value_of(text: str) -> Any:
    """Return the value of a YAML text. Raises ValueError for text that is no YAML, is nested too deep, or has nested
    aliases."""
    try:
        if (refused := _refused(text)) is not None:
            raise ValueError(refused[0])
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (AttributeError, TypeError):  # PyYAML on '!!timestamp abc'
        raise ValueError("a tag of YAML that does not fit its value") from None


def load(
    path: Path, mistakes: Mistakes, *, most_bytes: int = LARGEST_BYTES, most_parts: int = MOST_NODES
) -> Item | None:
    """Return the mapping in a YAML file, or None after noting why it cannot be read."""
    text = read_text(path, mistakes, most_bytes)
    return None if text is None else yaml_tree(text, path, mistakes, most_parts)


def yaml_tree(text: str, path: Path, mistakes: Mistakes, most_parts: int = MOST_NODES) -> Item | None:
    """Return the mapping in the YAML text of a file, or None after noting why it cannot be read."""
    try:
        if (refused := _refused(text)) is not None:
            mistakes.of_file(path, f"{refused[0]}.", "out_of_limits", refused[1])
            return None
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mistakes.of_file(path, *_syntax(error, text))
        return None
    if node is None:
        mistakes.of_file(path, _EMPTY, "no_value", 1)
        return None
    try:
        reader = _Tree(file=shown(path), mistakes=mistakes, most_parts=most_parts)
        tree = reader.item(node, "", node.start_mark.line + 1)
    except OverflowError:
        mistakes.of_file(path, _TOO_MANY.format(most_parts), "out_of_limits")
        return None
    return tree if holds_mapping(tree, mistakes) else None


def yaml_trees(text: str, path: Path, mistakes: Mistakes) -> list[tuple[Item, Mistakes]]:
    """Return every document of a YAML text with its mistakes, or none after noting why the text cannot be read."""
    try:
        if (refused := _refused(text)) is not None:
            mistakes.of_file(path, f"{refused[0]}.", "out_of_limits", refused[1])
            return []
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.YAMLError as error:
        mistakes.of_file(path, *_syntax(error, text))
        return []
    if not nodes:
        mistakes.of_file(path, _EMPTY, "no_value", 1)
    trees = []
    for node in nodes:
        reader = _Tree(file=shown(path), mistakes=Mistakes())
        try:
            trees.append((reader.item(node, "", node.start_mark.line + 1), reader.mistakes))
        except OverflowError:
            mistakes.of_file(path, _TOO_MANY.format(MOST_NODES), "out_of_limits")
    return trees


def holds_mapping(tree: Item, mistakes: Mistakes) -> bool:
    """Return whether a document is a mapping, after noting a mistake if it is not."""
    if not isinstance(tree.value, dict):
        text = f"expected keys and values such as 'name: value', but the file holds {tree.shown}."
        mistakes.add(tree, text, "wrong_type")
    return isinstance(tree.value, dict)


def _refused(text: str) -> tuple[str, int] | None:
    """Return why a text is not read, and the line: nesting that would overflow the composer's stack, or aliases in
    what has a name itself, of which a few lines are more than any memory. None for any other text."""
    names: list[str | None] = []
    for event in yaml.parse(text, Loader=_Loader):
        why = None
        if isinstance(event, yaml.CollectionStartEvent):
            names.append(event.anchor)
            why = (
                f"lists or mappings are nested too deep ({DEEPEST} levels at most)" if len(names) > DEEPEST else None
            )
        elif isinstance(event, yaml.CollectionEndEvent):
            names.pop()
        elif isinstance(event, yaml.AliasEvent) and any(names) and event.anchor not in names:
            why = f"nested aliases: '*{event.anchor}' is inside of '&{next(filter(None, names))}'. Write them out"
        if why is not None:
            return why, event.start_mark.line + 1 if event.start_mark is not None else 1
    return None


def shown(path: Path) -> str:
    """Return a path relative to the working directory where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_text(
    path: Path, mistakes: Mistakes, most_bytes: int = LARGEST_BYTES, *, encoding: str = "utf-8"
) -> str | None:
    """Return the text of a file, also of a packed one, or None after noting why it cannot be read."""
    content = bytearray()
    try:
        with unpacked(path) as file:
            while len(content) <= most_bytes and (piece := file.read(PIECE_BYTES)):
                content += piece
    except FileNotFoundError:
        near = did_you_mean(path.name, (file.name for file in path.parent.glob("*.y*ml")))
        mistakes.of_file(path, f"no such file.{near}", "no_such_file")
        return None
    except IsADirectoryError:
        mistakes.of_file(path, "is a folder; name a YAML file in it.", "no_such_file")
        return None
    except ValueError as error:
        mistakes.of_file(path, f"{error}.", "unreadable")
        return None
    except OSError as error:
        mistakes.of_file(path, f"cannot be read: {error.strerror}.", "unreadable")
        return None
    if len(content) > most_bytes:
        text = f"it is too large for a configuration ({most_bytes} bytes at most)."
        mistakes.of_file(path, text, "out_of_limits")
        return None
    try:
        return content.removeprefix(BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        mistakes.of_file(path, f"not UTF-8 text ({error.reason}). Save the file as UTF-8.", "unreadable", line)
        return None


def _syntax(error: yaml.YAMLError, text: str) -> tuple[str, Code, int]:
    """Return why a text is no YAML, the code, and the line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark is not None else 1
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not valid YAML"
    written = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return "a tab indents this line, which YAML forbids. Use spaces.", "not_yaml", line
    if "another document" in problem:
        return "a second document begins here ('---'). One file holds one document.", "not_yaml", line
    if "undefined alias" in problem:
        return f"{problem}. Define it above with '&', or quote a value that begins with '*'.", "not_yaml", line
    return f"not valid YAML: {problem}. Look here and one line above.", "not_yaml", line


@dataclass(frozen=True, kw_only=True)
class _Tree:
    file: str
    mistakes: Mistakes
    most_parts: int = MOST_NODES
    open: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=lambda: [0])

    def item(self, node: yaml.Node, path: str, line: int) -> Item:
        """Turn a node and all below it into Items."""
        blank = Item(value=None, file=self.file, line=line, path=path)
        self.seen[0] += 1
        if self.seen[0] > self.most_parts:
            raise OverflowError
        if id(node) in self.open:
            self.mistakes.add(blank, "an alias ('*name') that holds itself. Write it out.", "not_yaml")
            return replace(blank, value=UNREAD)
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
                self.mistakes.add(blank, f"the tag '{node.tag}' is not read. Remove it.", "not_yaml")
                return replace(blank, value=UNREAD)
            if isinstance(node, yaml.MappingNode):
                return Item(value=self._mapping(node, path), file=self.file, line=line, path=path)
            if isinstance(node, yaml.SequenceNode):
                return Item(value=self._sequence(node, path), file=self.file, line=line, path=path)
            return self._scalar(node, blank)
        finally:
            self.open.pop()

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Item]:
        entries: dict[str, Item] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            place = f"{path}.{key}" if path else key
            at = Item(value=None, file=self.file, line=line, path=place)
            if not isinstance(key_node, yaml.ScalarNode):
                self.mistakes.add(at, "a key must be a plain word.", "not_yaml")
            elif key_node.tag == "tag:yaml.org,2002:merge":
                text = "merge keys ('<<') are not read. Use 'extends' or 'defaults', or write it out."
                self.mistakes.add(at, text, "not_yaml")
            elif key in entries:
                first = entries[key].line
                text = f"written twice (first in line {first}). Remove one; for levels write a list."
                self.mistakes.add(at, text, "written_twice")
            else:
                entries[key] = self.item(value_node, place, line)
        return entries

    def _sequence(self, node: yaml.SequenceNode, path: str) -> list[Item]:
        return [self.item(child, f"{path}[{i}]", child.start_mark.line + 1) for i, child in enumerate(node.value)]

    def _scalar(self, node: yaml.Node, blank: Item) -> Item:
        text = str(node.value)
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        value: Any = text
        try:
            if kind in _PLAIN:
                value = _PLAIN[kind](text)
            elif kind not in ("str", "timestamp", "value"):
                raise ValueError(f"the tag '{node.tag}' is not read. Remove it.")
        except ValueError as error:
            self.mistakes.add(blank, str(error), "wrong_form")
            value = UNREAD
        return Item(value=value, file=self.file, line=blank.line, path=blank.path, text=text)


def _null(text: str) -> None:
    if text.lower() not in ("", "~", "null"):
        raise ValueError(f"{_cut(text)} is not null. Remove the tag, or the value.")


def _bool(text: str) -> bool:
    if text.lower() not in ("yes", "true", "on", "no", "false", "off"):
        raise ValueError(f"{_cut(text)} is neither true nor false.")
    return text.lower() in ("yes", "true", "on")


def _int(text: str) -> int:
    _one_reading(text)
    try:
        value = int(text.replace("_", "").lstrip("+"), 0)
    except ValueError:
        raise ValueError(f"{_cut(text)} is not a whole number. Write its decimal digits, or quote it.") from None
    if abs(value) > LARGEST_INTEGER:
        raise ValueError(f"{_cut(text)} is too large: whole numbers reach to {LARGEST_INTEGER}.")
    return value


def _float(text: str) -> float:
    _one_reading(text)
    try:
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise ValueError(f"{_cut(text)} is not a number. Write its decimal digits, or quote it.") from None


def _one_reading(text: str) -> None:
    if _OLD_NUMBER.fullmatch(text):
        raise ValueError(f"{_cut(text)} has two readings in YAML. Write a plain decimal number, or quote it.")


def _cut(text: str) -> str:
    return f"'{text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}'"


_PLAIN: dict[str, Callable[[str], Any]] = {"null": _null, "bool": _bool, "int": _int, "float": _float}
"""How the text of a scalar is read, by the kind that YAML resolves it to. Raises ValueError with the remedy."""
