"""A form: how a structured setting, whose level is a mapping, is read, checked, named and described."""

from collections.abc import Mapping
from typing import Any, Protocol

from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Workload
from seamark.model.service import Service

Document = Mapping[str, Any]
"""A level as it is kept: an object of JSON."""


class Form(Protocol):
    """One form. Its name is that of the settings that have it."""

    name: str
    presets: str
    """Folder of its preset files in `config`."""
    example: str

    def read(self, item: Item, service: Service, mistakes: Mistakes) -> Document | None:
        """Return the level in a mapping, or None after noting every mistake in it."""

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """Note what does not fit together in a workload that has such a setting."""

    def label(self, document: Document) -> str:
        """Return a level in short, for names, tables and figures."""

    def text(self, document: Document) -> str:
        """Return a level in full, in one line."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one mapping."""
