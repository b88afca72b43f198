"""A form: how a structured setting, whose level is a mapping, is read, checked, named and described."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from seamark.config.levels import levels
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Levels, Workload, placeholder
from seamark.model.service import Service, Setting

Document = Mapping[str, Any]
"""A level as it is kept: an object of JSON."""
NAME = "name"
"""Key of a mapping with its label."""


@dataclass(kw_only=True)
class Leaves:
    """Collects the leaves of the structures of a workload that are written as lists: factors by their dotted path."""

    settings: dict[str, Setting] = field(default_factory=dict)
    levels: dict[str, Levels] = field(default_factory=dict)

    def read(self, path: str, item: Item, mistakes: Mistakes) -> dict[str, str]:
        """Take a list of texts or numbers as the levels of the leaf `path`; return what stands for it."""
        values = [entry.value for entry in item.value]
        kind = "str" if any(isinstance(value, str) for value in values) else "float"
        kind = "int" if values and all(type(value) is int for value in values) else kind
        setting = Setting(name=path, type=kind, role="workload", help=f"Leaf of {path.partition('.')[0]}.")  # type: ignore[arg-type]
        found = levels(item, setting, mistakes)
        self.settings[path] = setting
        self.levels[path] = found or ()
        return placeholder(path)


class Form(Protocol):
    """One form, which a class extends. Its name is that of the settings that have it."""

    name: str
    presets: str
    """Folder of its preset files in `config`."""
    example: str

    def read(self, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves) -> Document | None:
        """Return the level in a mapping, or None after noting every mistake in it. Leaves that are factors go to
        `leaves`."""

    def file_of(self, text: str) -> str:
        """Return the name of the preset file, without .yaml, that a level written as text stands for."""
        return text

    def of_file(
        self, tree: Item, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves
    ) -> tuple[Document, ...]:
        """Return the levels in a preset file for `item`, the text that names it; () after noting a mistake."""
        document = self.read(tree, service, mistakes, leaves)
        return () if document is None else ({NAME: item.value, **document},)

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """Note what does not fit together in a workload that has such a setting."""

    def label(self, document: Document) -> str:
        """Return a level in short, for names, tables and figures."""

    def text(self, document: Document) -> str:
        """Return a level in full, in one line."""

    def qualities(self, document: Document) -> tuple[str, ...]:
        """Return the names of the figures that a level gives, which objectives may use."""

    def scored_by(self, document: Document) -> tuple[str, ...]:
        """Return the dotted paths of functions and packages that scores depend on beside the recipe's `judge`."""
        return ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one mapping."""
