"""Decoder of YAML Items into frozen dataclasses by their annotations; notes every mistake with its line.

Knows no noun of Seamark. docs/dependencies.md says why it is not pydantic or msgspec.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.annotations import NONE, Limits, hints, is_required, keys_of, limits_of, shape_of

WRONG: Any = object()
"""Placeholder for a value that could not be decoded; the reason is noted."""
SMALL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What names a metric, a figure, and a category of failed trials."""


def decode(
    item: Item, form: Any, mistakes: Mistakes, *, given: Mapping[str, Any] = NONE, limits: Limits = NONE
) -> Any:
    """Return `item` decoded as `form`: a dataclass, tuple, Mapping, Literal, union, or plain type.

    `given` holds fields of a dataclass that are already decoded. Returns WRONG after noting at least one mistake. A
    value outside of its limits is noted and returned, so that what else is wrong is found too.
    """
    kind, parts = shape_of(form)
    if kind == "dataclass":
        values = decoded_fields(item, form, mistakes, given) if is_mapping(item, mistakes) else {"": WRONG}
        return WRONG if any(value is WRONG for value in values.values()) else form(**values)
    if kind == "union":
        return _union(item, parts, mistakes, limits)
    if kind == "literal":
        return _choice(item, parts, "is none of", mistakes)
    if kind == "list":
        return _list(item, parts[1], mistakes, limits)
    if kind == "mapping":
        if not is_mapping(item, mistakes):
            return WRONG
        entries = {key: decode(entry, parts[0], mistakes, limits=limits) for key, entry in item.items()}
        return WRONG if any(value is WRONG for value in entries.values()) else entries
    value = scalar(item, parts[0], mistakes)
    if type(value) in (int, float) and (wrong := _outside(value, item.text, limits)):
        mistakes.add(item, wrong, "out_of_limits")
    if isinstance(value, str) and "pattern" in limits and not re.fullmatch(limits["pattern"], value):
        mistakes.add(item, f"{item.shown} {limits['wrong']}", "wrong_form")
    return value


def decoded_fields(item: Item, form: Any, mistakes: Mistakes, given: Mapping[str, Any] = NONE) -> dict[str, Any]:
    """Return the fields of a dataclass that a mapping has, by name, with WRONG for each that is missing or wrong."""
    members = {key: member for key, member in keys_of(form).items() if member.name not in given}
    known_keys(item, members, mistakes)
    values: dict[str, Any] = dict(given)
    for key, member in members.items():
        if key in item.value:
            values[member.name] = decode_field(item.value[key], form, member.name, mistakes)
        elif is_required(member):
            which = limits_of(form)[member.name].get("missing", "")
            mistakes.add(item, f"the key '{key}' is missing{which}.", "missing")
            values[member.name] = WRONG
    return values


def decode_field(item: Item, form: Any, name: str, mistakes: Mistakes) -> Any:
    """Return `item` decoded as the field of that name of a dataclass."""
    return decode(item, hints(form)[name], mistakes, limits=limits_of(form)[name])


def known_keys(item: Item, allowed: Collection[str], mistakes: Mistakes) -> None:
    """Note every key of a mapping that is not allowed."""
    for key, entry in item.items():
        if key not in allowed:
            mistakes.unknown_key(entry, allowed)


def is_mapping(item: Item, mistakes: Mistakes) -> bool:
    """Return whether an item is a mapping, after noting a mistake if it is not."""
    if isinstance(item.value, dict):
        return True
    mistakes.add(item, f"expected keys and values, but it is {item.shown}.", "wrong_type")
    return False


def _union(item: Item, options: tuple[Any, ...], mistakes: Mistakes, limits: Limits) -> Any:
    if item.value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return decode(item, options[0], mistakes, limits=limits)
    shapes = {shape_of(option)[0]: option for option in options}
    if len(options) == len(shapes) == 2 and "dataclass" in shapes:
        form = shapes.pop("dataclass")
        return decode(item, form if isinstance(item.value, dict) else next(iter(shapes.values())), mistakes)
    if len(options) == len(shapes) == 2 and "list" in shapes:
        if isinstance(item.value, list):
            return decode(item, shapes["list"], mistakes, limits=limits)
        return _choice(item, shape_of(shapes["literal"])[1], "is neither a list nor", mistakes)
    if isinstance(item.value, (list, dict)) or item.value is None:
        mistakes.add(item, f"expected one value, but it is {item.shown}.", "wrong_type")
        return WRONG
    return item.value


def _choice(item: Item, allowed: tuple[Any, ...], wrong: str, mistakes: Mistakes) -> Any:
    if item.value in allowed and not isinstance(item.value, bool):
        return item.value
    guess = did_you_mean(item.text or "", allowed)
    mistakes.add(item, f"{item.shown} {wrong} {', '.join(map(str, allowed))}.{guess}", "not_a_choice")
    return WRONG


def _list(item: Item, form: Any, mistakes: Mistakes, limits: Limits) -> Any:
    if not isinstance(item.value, list):
        text = f"expected a list, but it is {item.shown}. Write '[...]' or lines that begin with '-'."
        mistakes.add(item, text, "wrong_type")
        return WRONG
    if "empty" in limits and not item.value:
        mistakes.add(item, limits["empty"], "no_value")
    values = [decode(entry, form, mistakes, limits=limits) for entry in item.value]
    return WRONG if any(value is WRONG for value in values) else tuple(values)


def _outside(value: float, written: str | None, limits: Limits) -> str | None:
    """Return what is wrong with a number that is outside of its limits."""
    least = limits.get("minimum", limits.get("above"))
    most = limits.get("maximum", limits.get("below", limits.get("largest")))
    low = least is not None and (value < least or (value == least and "above" in limits))
    high = most is not None and (value > most or (value == most and "below" in limits))
    if not low and not high:
        return None
    unit = f" {limits['unit']}" if "unit" in limits else ""
    least, most = (f"{limit:g}" if isinstance(limit, float) else limit for limit in (least, most))
    if {"minimum", "maximum"} <= limits.keys():
        return f"{written} is outside of {least} to {most}{unit}."
    if {"above", "below"} <= limits.keys():
        return f"{written} is not between {least} and {most}{unit}."
    if low:
        allowed = f"more than {least}{unit}" if "above" in limits else f"{least}{unit} or more"
        return f"{written} is too small. Give {allowed}."
    return f"{written} is too large. Give {most}{unit} or less."


def scalar(item: Item, form: type, mistakes: Mistakes) -> Any:
    """Return a plain value of exactly the type `form`; an integer is accepted as a float."""
    value: Any = item.value
    if form is float and type(value) is int:
        value = float(value)
    if type(value) is form and (not isinstance(value, float) or math.isfinite(value)):
        return value
    mistakes.add(item, _not_a(form, item), "wrong_type")
    return WRONG


UNITS: dict[str, dict[str, float]] = {
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "m": 60, "min": 60, "h": 3600, "d": 86400},
    "rps": {"rps": 1, "/s": 1},
    "bytes": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1024, "mib": 1024**2, "gib": 1024**3},
    "gb": {"gb": 1, "tb": 1e3},
    "ratio": {"%": 0.01},
}
"""By the last word of a name: units that may be written behind a number, and how much one is."""


def without_unit(name: str, text: str) -> str:
    """Return " Write 8." for a number with its unit, as '8s' for a name that ends in `_s`; else ""."""
    match = re.fullmatch(r"([-+]?[0-9.]+(?:e[-+]?[0-9]+)?) *([a-z/%]+)", text.strip().lower())
    factor = match and UNITS.get(name.rsplit("_", 1)[-1], {}).get(match[2])
    number = _number(match[1]) if match and factor else None
    return "" if number is None or not factor else f" Write {number * factor:.15g}."


NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _not_a(form: type, item: Item) -> str:
    value, text = item.value, item.text or ""
    if value is None and text and form is str:
        return f"expected text, but {_read_as(item, 'nothing')}. Put it in quotes: '{text}'."
    if isinstance(value, (list, dict)) or value is None:
        return f"expected {NOUNS[form]}, but it is {item.shown}."
    if form is str:
        kind = NOUNS.get(type(value), "something else")
        return f"expected text, but {_read_as(item, kind)}. Put it in quotes: '{text}'."
    if form is bool:
        return f"expected true or false, but it is {item.shown}."
    if isinstance(value, bool):
        return f"expected {NOUNS[form]}, but {_read_as(item, str(value).lower())}."
    if isinstance(value, str):
        number = _number(value)
        if number is None:
            return f"expected {NOUNS[form]}, but it is the text '{text}'.{without_unit(item.path, text)}"
        written = f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else repr(number)
        return f"expected {NOUNS[form]}, but {_read_as(item, 'text')}. Write {written}, without quotes."
    if isinstance(value, float) and value.is_integer():
        return f"expected {NOUNS[form]}. Write {value:.0f} instead of {text}."
    return f"expected {NOUNS[form]}, but it is {text}."


def _read_as(item: Item, kind: str) -> str:
    """Return what a value is; YAML has readings of its own, as of `no`, JSON has none."""
    return f"{item.text} is {kind}" if item.file.endswith(".json") else f"YAML reads {item.text} as {kind}"


def _number(text: str) -> float | None:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None
