"""Levels of a setting: values checked against its type, limits and allowed values, in scenarios and recipes; all
settings of a workload, and the combinations of their levels."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

from seamark.config.decode import WRONG, scalar
from seamark.config.expression import Condition, condition
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import Mistake, did_you_mean
from seamark.model.dotted import is_dotted
from seamark.model.scenario import Workload
from seamark.model.service import Service, Setting, Value
from seamark.patterns.table import load_settings_of, own_settings

TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


def level(item: Item, setting: Setting, mistakes: Mistakes) -> Any:
    """Return one value of a setting in the setting's type, or WRONG after noting a mistake."""
    if item.value is None:
        if setting.default is None:
            return None
        mistakes.add(item, f"has no value. Remove the line for the default ({show(setting.default)}).", "no_value")
        return WRONG
    if setting.object and isinstance(item.value, dict):
        return json.dumps(item.plain, sort_keys=True, separators=(",", ":"))
    if item.value in setting.words:
        return item.value
    if setting.words and isinstance(item.value, str):
        words = " nor ".join(setting.words)
        guess = did_you_mean(item.value, setting.words)
        mistakes.add(item, f"{item.shown} is neither a number nor {words}.{guess}", "not_a_choice")
        return WRONG
    value = scalar(item, TYPES[setting.type], mistakes)
    if value is WRONG:
        return WRONG
    wrong = violation(value, setting)
    if wrong:
        mistakes.add(item, wrong.text, wrong.code)
        return WRONG
    return value


def levels(item: Item, setting: Setting, mistakes: Mistakes) -> tuple[Value, ...] | None:
    """Return the levels of a setting: one for a scalar, all for a list; None after noting a mistake."""
    if not isinstance(item.value, list):
        only = level(item, setting, mistakes)
        return None if only is WRONG else (only,)
    if not item.value:
        mistakes.add(item, "an empty list has no level. Write at least one value, or remove the line.", "no_value")
        return None
    accepted: list[Value] = []
    wrong = False
    for entry in item.value:
        value = level(entry, setting, mistakes)
        if value is WRONG:
            wrong = True
        elif value in accepted:
            mistakes.add(entry, f"the level {show(value)} stands twice in the list. Remove one.", "written_twice")
            wrong = True
        else:
            accepted.append(value)
    return None if wrong else tuple(accepted)


def violation(value: Value, setting: Setting) -> Mistake | None:
    """Return why a value of the right type is not allowed for the setting, or None."""
    if value in setting.words:
        return None
    unit = f" {setting.unit}" if setting.unit else ""
    own = setting.name == "pattern" and isinstance(value, str) and is_dotted(value)
    if setting.allowed is not None and value not in setting.allowed and not own:
        words = ", ".join(show(choice) for choice in setting.allowed)
        text = f"{show(value)} is none of {words}.{did_you_mean(value, setting.allowed)}"
        return Mistake(code="not_a_choice", text=text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            return Mistake(code="out_of_limits", text=f"{value} is not a number that a setting can have.")
        if setting.minimum is not None and value < setting.minimum:
            text = f"{show(value)} is too small: at least {show(setting.minimum)}{unit}."
            return Mistake(code="out_of_limits", text=text)
        if setting.maximum is not None and value > setting.maximum:
            text = f"{show(value)} is too large: at most {show(setting.maximum)}{unit}."
            return Mistake(code="out_of_limits", text=text)
    if value == "":
        text = "the text is empty. Write a value, or remove the line for the default."
        return Mistake(code="no_value", text=text)
    return None


def show(value: Value) -> str:
    """Return a value as YAML would write it: true, null, 8, 0.5, text."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return str(value)


def settings_of(service: Service, workload: Workload) -> tuple[Setting, ...]:
    """Return every setting of a workload. Of one with parties those of the whole, and of each party under
    `PARTY.SETTING`."""
    if workload.parties:
        return (*service.settings, *workload.leaves)
    return (*service.settings, *workload.leaves, *load_settings_of(service), *own_patterns_settings(workload))


def own_patterns_settings(workload: Workload) -> tuple[Setting, ...]:
    """Return the settings of the user's own patterns of a workload."""
    return own_settings(workload.every_level("pattern"))


def combinations(workload: Workload, settings: Iterable[Setting]) -> Iterator[Mapping[str, Value]]:
    """Yield each combination of the levels of some settings that a treatment may have, then those that are included.

    None that `exclude` or `where` rules out, by levels of other settings too. Conditions on what is no level of the
    workload, such as resources, and those that cannot be worked out rule nothing out here: a plan applies them.
    """
    own = {setting.name: workload.levels.get(setting.name, (setting.default,)) for setting in settings}
    conditions = [clause for clause in map(condition, workload.where) if clause.names <= {*own, *workload.levels}]
    others = {name for clause in conditions for name in clause.names} | {
        name for entry in workload.exclude for name in entry
    }
    levels = own | {name: workload.levels[name] for name in sorted(others - {*own}) if name in workload.levels}
    fixed = {name: values[0] for name, values in own.items()}
    yielded: set[str] = set()
    for combination in product(*levels.values()):
        every = dict(zip(levels, combination, strict=True))
        if any(entry.items() <= every.items() for entry in workload.exclude) or not _holds(conditions, every):
            continue
        values = {name: every[name] for name in own}
        if (key := repr(values)) not in yielded:
            yielded.add(key)
            yield values
    for entry in workload.include:
        yield fixed | {name: value for name, value in entry.items() if name in fixed}


def _holds(conditions: Iterable[Condition], values: Mapping[str, Value]) -> bool:
    with suppress(ValueError):
        return all(clause.holds(values) for clause in conditions)
    return True
