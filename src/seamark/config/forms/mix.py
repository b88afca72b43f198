"""Mixes of request classes: a workload's share of each class, and the settings of its own.

A worker decodes the text of a mix in load/engine/mix.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from seamark.config.decode import WRONG, is_mapping, scalar
from seamark.config.forms.form import Document, Form, Leaves
from seamark.config.levels import level, show
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Workload
from seamark.model.service import Service, Setting, Value
from seamark.patterns.table import LOAD_SETTINGS

MIX = "mix"
CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
MOST_CLASSES = 32
LEAST_SHARE = 0.001
EXAMPLE = "{chat: {weight: 3, ...}, search: {weight: 1, ...}}"


class MixForm(Form):
    """Class name -> its weight and its own settings; `name` -> the name of the mix, where it has one."""

    name = MIX
    presets = "mixes"
    example = f"classes such as {EXAMPLE}"

    def read(self, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves) -> Document | None:
        """Return the mix in a mapping, or None after noting every mistake in it."""
        before = mistakes.count
        members: dict[str, Any] = {}
        for name, member in item.items():
            if name == "name":
                members[name] = scalar(member, str, mistakes)
            elif not CLASS.fullmatch(name):
                mistakes.add(
                    member, f"'{name}' cannot name a class: use letters, digits, '.', '_' and '-', at most 32."
                )
            elif is_mapping(member, mistakes):
                members[name] = _class(member, service, mistakes)
        if mistakes.count == before:
            _check_shares(item, members, mistakes)
        return members if mistakes.count == before else None

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """Note settings that every class sets itself, so that varying them in the workload has no effect."""
        texts = [text for text in workload.levels.get(MIX, ()) if text is not None]
        if not texts or len(texts) < len(workload.levels[MIX]):
            return
        own = [set(settings) for text in texts for settings in classes_in(str(text)).values()]
        for name, values in workload.levels.items():
            if name in item.value and len(values) > 1 and all(name in settings for settings in own):
                text = "has no effect: every class of the mix has a value of its own. Remove it."
                mistakes.add(item.value[name], text)

    def label(self, document: Document) -> str:
        """Return the classes with their weights, `chat 3, search 1`."""
        return ", ".join(f"{name} {show(member['weight'])}" for name, member in document.items())

    def text(self, document: Document) -> str:
        """Return the classes with all settings: `chat 3 (gen_tokens 64, prompt_len 128), search 1`."""
        parts = []
        for name, member in document.items():
            settings = ", ".join(f"{key} {show(value)}" for key, value in member.items() if key != "weight")
            parts.append(f"{name} {show(member['weight'])}" + (f" ({settings})" if settings else ""))
        return ", ".join(parts)

    def qualities(self, document: Document) -> tuple[str, ...]:
        """Return nothing: classes have the figures of every load."""
        return ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one mix. Which settings a class may have is checked when the file is read."""
        plain = {"type": ["integer", "number", "string", "boolean", "null"]}
        one = {
            "type": "object",
            "properties": {"weight": {"type": "number", "exclusiveMinimum": 0, "default": 1}},
            "additionalProperties": plain,
        }
        return {
            "type": "object",
            "minProperties": 1,
            "properties": {"name": {"type": "string", "minLength": 1}},
            "propertyNames": {"pattern": f"^{CLASS.pattern}$"},
            "additionalProperties": one,
        }


def classes_in(text: str) -> dict[str, dict[str, Value]]:
    """Return the classes of a mix by name, from its text."""
    return {name: member for name, member in json.loads(text).items() if name != "name"}


def _class(item: Item, service: Service, mistakes: Mistakes) -> dict[str, Value]:
    """Return weight and settings of one class."""
    known = {
        setting.name: setting
        for setting in service.settings
        if setting.role != "deployment" and not setting.alike_in_mix
    }
    members: dict[str, Value] = {"weight": 1}
    for key, entry in item.items():
        if key == "weight":
            weight = scalar(entry, float, mistakes)
            if weight is not WRONG and weight <= 0:
                mistakes.add(entry, f"{show(weight)} is no weight: write more than 0, or remove the class.")
            elif weight is not WRONG:
                members[key] = int(weight) if weight.is_integer() else weight
        elif isinstance(entry.value, list):
            mistakes.add(entry, "a class has one value of each setting. To vary it, write a list of mixes.")
        elif key in known:
            members[key] = level(entry, known[key], mistakes)
        else:
            mistakes.unknown_key(entry, ("weight", *known), _why_not(key, service))
    return members


def _why_not(key: str, service: Service) -> str:
    """Return where a setting belongs that a class may not set; "" for an unknown one."""
    setting: Setting | None = service.setting(key)
    if key in (load_setting.name for load_setting in LOAD_SETTINGS):
        return " It shapes the whole load: write it beside 'mix'."
    if setting is None:
        return ""
    if setting.alike_in_mix:
        return " It is of the whole load, so all classes have the same: write it beside 'mix'."
    return " It needs a server of its own, so all classes have the same: write it beside 'mix'."


def _check_shares(item: Item, members: Mapping[str, Any], mistakes: Mistakes) -> None:
    weights = {name: member["weight"] for name, member in members.items() if name != "name"}
    if not weights:
        mistakes.add(item, f"has no class. Write classes such as {EXAMPLE}.")
    elif len(weights) > MOST_CLASSES:
        mistakes.add(item, f"{len(weights)} classes are more than {MOST_CLASSES}.")
    else:
        least = min(weights, key=lambda name: weights[name])
        share = weights[least] / sum(weights.values())
        if share < LEAST_SHARE:
            text = f"its share, {share:.2g}, is less than {LEAST_SHARE:g} of the requests. Raise its weight."
            mistakes.add(item.value[least], text)
