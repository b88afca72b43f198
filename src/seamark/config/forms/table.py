"""Structured settings in scenarios: a level is a mapping, or the name of a preset file, kept as canonical JSON text.

A setting of type `structure` has the form of its name: one of the core, or of a plugin.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from seamark.config.decode import WRONG
from seamark.config.extends import load_merged, yaml_files
from seamark.config.forms.command import CommandForm
from seamark.config.forms.form import NAME, Document, Form, Leaves
from seamark.config.forms.mix import MixForm
from seamark.config.levels import level, levels
from seamark.config.yaml_source import Item, Mistakes, shown
from seamark.errors import did_you_mean
from seamark.model.plugin import config_folders, part, plugins
from seamark.model.scenario import Levels, Workload
from seamark.model.service import Quality, Service, Setting, Value

OWN: Mapping[str, Form] = {form.name: form for form in (MixForm(), CommandForm())}

PresetFolder = Callable[[str], Path]
"""Returns the folder of the presets of a form by its name in `config`."""
PACKAGE = Path(__file__).parents[2] / "shipped" / "config"


@cache
def form_names() -> tuple[str, ...]:
    """Return the names of all forms."""
    return (*OWN, *(name for plugin in plugins() for name in plugin.forms))


@cache
def form_of(name: str) -> Form:
    """Return the form of the structured settings of that name."""
    if name in OWN:
        return OWN[name]
    form: Form = part(next(plugin.forms[name] for plugin in plugins() if name in plugin.forms))
    return form


def preset_files(folder: Path) -> Mapping[str, Path]:
    """Return the files of presets by name: those of a study's folder, then those of plugins and those that ship."""
    return yaml_files([folder, *config_folders(folder.name), PACKAGE / folder.name])


def is_structured(name: str) -> bool:
    """Return whether levels of settings of that name are structures."""
    return name in form_names()


def label_of(name: str, text: str) -> str:
    """Return a level of a structured setting in short: its `name`, else what its form makes of it. A text that is no
    structure, as in a damaged result, stands for itself."""
    document = _document(text)
    if document is None:
        return text
    return str(document[NAME]) if NAME in document else form_of(name).label(document)


def text_of(name: str, text: str) -> str:
    """Return a level of a structured setting in full, in one line; a text that is no structure as it is."""
    document = _document(text)
    if document is None:
        return text
    full = form_of(name).text({key: value for key, value in document.items() if key != NAME})
    return f"{document[NAME]}: {full}" if NAME in document else full


def _document(text: str) -> Document | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def qualities_of(levels: Mapping[str, Levels]) -> tuple[str, ...]:
    """Return the names of the figures that the structures among some levels give."""
    named = [name for name in form_names() if name in levels]
    texts = [(name, str(text)) for name in named for text in levels[name] if text is not None]
    documents = [(name, document) for name, text in texts if (document := _document(text)) is not None]
    return tuple(
        dict.fromkeys(quality for name, document in documents for quality in form_of(name).qualities(document))
    )


def directed_figures(workloads: Iterable[Workload]) -> dict[str, Quality]:
    """Return the figures of commands that say which values are better, where all commands say the same."""
    found: dict[str, set[str]] = {}
    for workload in workloads:
        for text in workload.levels.get("command", ()):
            for name, figure in ((_document(str(text)) or {}).get("figures") or {}).items():
                found.setdefault(name, set()).update({figure["better"]} if "better" in figure else ())
    ways = {name: ways.pop() for name, ways in found.items() if len(ways) == 1}
    return {name: Quality(better="higher" if way == "higher" else "lower") for name, way in ways.items()}


def scored_by(settings: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the dotted paths of what scores the replies of a trial beside its recipe's `judge`."""
    texts = {name: str(settings[name]) for name in form_names() if settings.get(name) is not None}
    documents = {name: document for name, text in texts.items() if (document := _document(text)) is not None}
    return tuple(path for name in sorted(documents) for path in form_of(name).scored_by(documents[name]))


def schema_of_structure(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one level of a structured setting."""
    form = form_of(name)
    preset = {"type": "string", "minLength": 1, "description": f"A file of config/{form.presets}, without .yaml."}
    return {"anyOf": [form.schema(), preset, {"type": "null"}]}


@dataclass(frozen=True, kw_only=True)
class LevelReader:
    """Reads levels of the settings of one service, structured ones and plain ones alike. `leaves` are those of the
    structures that it has read."""

    service: Service
    preset_folder: PresetFolder
    leaves: Leaves = field(default_factory=Leaves)

    def level(self, item: Item, setting: Setting, mistakes: Mistakes) -> Any:
        """Return one value of a setting, or WRONG after noting a mistake; a structure as canonical JSON."""
        if setting.type != "structure":
            return level(item, setting, mistakes)
        texts = self._texts(item, setting, mistakes)
        if len(texts) > 1:
            mistakes.add(item, f"{item.shown} stands for {len(texts)} levels, and one is needed here. Name one.")
        return texts[0] if len(texts) == 1 else WRONG

    def levels(self, item: Item, setting: Setting, mistakes: Mistakes) -> tuple[Value, ...] | None:
        """Return the levels of a setting: one for a single value, all for a list; None after noting a mistake."""
        if setting.type != "structure":
            return levels(item, setting, mistakes)
        if not isinstance(item.value, list):
            return self._texts(item, setting, mistakes) or None
        if not item.value:
            mistakes.add(item, f"an empty list has no level. Write at least one {setting.name}, or remove the line.")
            return None
        before = set(self.leaves.levels)
        read = [(entry, self._texts(entry, setting, mistakes)) for entry in item.value]
        if factors := [name for name in self.leaves.levels if name not in before]:
            text = f"has {factors[0]} as a factor, which needs a {setting.name} alone. Write one, or one value there."
            mistakes.add(item, text)
            return None
        if not all(texts for _, texts in read):
            return None
        labels: dict[str, Value] = {}
        for entry, value in ((entry, value) for entry, texts in read for value in texts):
            label = "none" if value is None else label_of(setting.name, str(value))
            if label in labels:
                remedy = (
                    "Remove one." if labels[label] == value else "Give one a line such as 'name: longer_prompts'."
                )
                mistakes.add(entry, f"a {setting.name} above reads the same, '{label}'. {remedy}")
                return None
            labels[label] = value
        return tuple(labels.values())

    def _texts(self, item: Item, setting: Setting, mistakes: Mistakes) -> tuple[Value, ...]:
        """Return the levels that one part stands for, as canonical JSON; () after noting a mistake."""
        form = form_of(setting.name)
        documents: tuple[Document | None, ...]
        if item.value is None:
            return (None,)
        if isinstance(item.value, str):
            documents = self._preset(item, form, mistakes)
        elif isinstance(item.value, dict):
            documents = (form.read(item, self.service, mistakes, self.leaves),)
        else:
            mistakes.add(item, f"expected {form.example}, or the name of a preset, but it is {item.shown}.")
            documents = ()
        return tuple(canonical(document) for document in documents if document is not None)

    def _preset(self, item: Item, form: Form, mistakes: Mistakes) -> tuple[Document, ...]:
        """Return the levels in a preset file, under the file's name unless they have names of their own."""
        folder = self.preset_folder(form.presets)
        known = preset_files(folder)
        name = form.file_of(item.value)
        if name not in known:
            names = f"Presets in {shown(folder)}: {', '.join(known)}." if known else f"{shown(folder)} has none."
            guess = did_you_mean(name, known)
            mistakes.add(item, f"{item.shown} is no preset. {names}{guess} Or write {form.example}.")
            return ()
        tree = load_merged(known[name], mistakes)
        if tree is None:
            return ()
        for key in ("extends", "schema_version"):
            tree.value.pop(key, None)
        return form.of_file(tree, item, self.service, mistakes, self.leaves)


def canonical(document: Document) -> str:
    """Return the text that stands for a structure in settings and in its identity."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
