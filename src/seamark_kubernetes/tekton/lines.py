"""List items of a YAML text as lines, which are changed without touching the lines around them."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.config.yaml_source import Item, Mistakes

_PLAIN = re.compile(r"(?!(?i:yes|no|on|off|true|false|null)$)[A-Za-z_][\w-]+", re.ASCII)
"""Words that no reader of YAML takes for anything but a text; some take `y` for true."""

_BREAK = re.compile("(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)")


def flow(value: Any) -> str:
    """Return texts, lists and mappings as YAML in one line: JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)


def word(text: str) -> str:
    """Return a text as YAML, in quotes where it needs some."""
    return text if _PLAIN.fullmatch(text) else flow(text)


def texts_of(item: Item) -> Any:
    """Return an item as lists and mappings of texts, as written: Tekton takes numbers for texts as well."""
    if isinstance(item.value, dict):
        return {key: texts_of(inner) for key, inner in item.value.items()}
    return [texts_of(inner) for inner in item.value] if isinstance(item.value, list) else item.text or ""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text with their ends, broken where YAML breaks them."""
    return _BREAK.split(text if text.endswith("\n") else f"{text}\n")


@dataclass(frozen=True, kw_only=True)
class ItemLines:
    """The lines of a list item: a mapping with each key in a line of its own."""

    first: int
    """Index of its first line, the one with the dash."""
    head: str
    """Begin of that line, up to the first key."""
    entries: dict[str, list[str]]
    """Key -> its lines, the first one without the dash; they end with comments before the next key."""

    @classmethod
    def read(cls, item: Item, lines: Sequence[str], mistakes: Mistakes) -> "ItemLines | None":
        """Return the lines of an item of a file, or None after noting why it cannot be changed."""
        first, starts = item.line - 1, [entry.line - 1 for _, entry in item.items()]
        head = re.match(r" *- +(?![{\s])", lines[first])
        end = first + 1
        for index in range(end, len(lines) if head else end):
            bare = lines[index].lstrip()
            if len(lines[index]) - len(bare) > lines[first].index("-") or (not bare and index == end):
                end = index + 1
            elif bare and bare[0] != "#":
                break
        if head is None or starts[:1] != [first] or starts != sorted({*starts}) or starts[-1] >= end:
            text = "is changed line by line: write '- ' before its first key, each key in a line, and no braces."
            mistakes.add(item, text, "wrong_form")
            return None
        own = [" " * len(head[0]) + lines[first][head.end() :], *lines[first + 1 : end]]
        bounds = zip(starts, [*starts[1:], end], strict=True)
        cut = [own[begin - first : stop - first] for begin, stop in bounds]
        return cls(first=first, head=head[0], entries=dict(zip(dict(item.items()), cut, strict=True)))

    @property
    def end(self) -> int:
        """Index of the line after the last one."""
        return self.first + sum(map(len, self.entries.values()))

    def changed(self, changes: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the lines with other ones for some keys, no lines for none; new keys come second. Lines of changes
        have neither indent nor end."""
        indented = {key: [f"{' ' * len(self.head)}{line}\n" for line in lines] for key, lines in changes.items()}
        blocks = []
        for key, lines in self.entries.items():
            last = max(i for i, line in enumerate(lines) if i == 0 or line.lstrip()[:1] not in ("", "#"))
            blocks.append([*indented.pop(key), *lines[last + 1 :]] if key in changes else lines)
        blocks[1:1] = indented.values()
        first, *rest = (line for block in blocks for line in block)
        return [self.head + first[len(self.head) :], *rest]
