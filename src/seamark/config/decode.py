"""Decoder of YAML Items into frozen dataclasses by their annotations; notes every mistake with its line.

Knows no noun of Seamark. docs/dependencies.md says why it is not pydantic or msgspec.
"""

import dataclasses
import math
import re
import types
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean

WRONG: Any = object()
"""Placeholder for a value that could not be decoded; the reason is noted."""


@cache
def hints(form: type) -> dict[str, Any]:
    """Return the resolved annotations of a dataclass."""
    return get_type_hints(form)


def decode(item: Item, form: Any, mistakes: Mistakes, *, given: Mapping[str, Any] | None = None) -> Any:
    """Return `item` decoded as `form`: a dataclass, tuple, Mapping, Literal, union, or plain type.

    `given` holds fields of a dataclass that are already decoded. Returns WRONG after noting at least one mistake.
    """
    if dataclasses.is_dataclass(form):
        return _dataclass(item, cast(type, form), mistakes, given or {})
    origin = get_origin(form)
    if origin in (Union, types.UnionType):
        return _union(item, get_args(form), mistakes)
    if origin is Literal:
        return _literal(item, get_args(form), mistakes)
    if origin is tuple:
        return _tuple(item, get_args(form)[0], mistakes)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(item, get_args(form)[1], mistakes)
    return scalar(item, form, mistakes)


@cache
def required(form: type) -> list[str]:
    """Return the fields of a dataclass that have no default."""
    return [
        field.name
        for field in dataclasses.fields(form)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


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


def _dataclass(item: Item, form: type, mistakes: Mistakes, given: Mapping[str, Any]) -> Any:
    if not is_mapping(item, mistakes):
        return WRONG
    annotations = {name: hint for name, hint in hints(form).items() if name not in given}
    known_keys(item, annotations, mistakes)
    values: dict[str, Any] = dict(given)
    for name, hint in annotations.items():
        if name in item.value:
            values[name] = decode(item.value[name], hint, mistakes)
        elif name in required(form):
            mistakes.add(item, f"the key '{name}' is missing.", "missing")
            values[name] = WRONG
    return WRONG if any(value is WRONG for value in values.values()) else form(**values)


def _union(item: Item, options: tuple[Any, ...], mistakes: Mistakes) -> Any:
    if item.value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return decode(item, options[0], mistakes)
    forms = [option for option in options if dataclasses.is_dataclass(option)]
    if len(forms) == 1 and len(options) == 2:
        word = next(option for option in options if option not in forms)
        return decode(item, forms[0] if isinstance(item.value, dict) else word, mistakes)
    lists = [option for option in options if get_origin(option) is tuple]
    if len(lists) == 1 and len(options) == 2:
        return decode(item, lists[0], mistakes) if isinstance(item.value, list) else _word(item, options, mistakes)
    if isinstance(item.value, (list, dict)) or item.value is None:
        mistakes.add(item, f"expected one value, but it is {item.shown}.", "wrong_type")
        return WRONG
    return item.value


def _word(item: Item, options: tuple[Any, ...], mistakes: Mistakes) -> Any:
    """Return a value that stands in the place of a list."""
    allowed = [value for option in options if get_origin(option) is Literal for value in get_args(option)]
    if item.value in allowed:
        return item.value
    words = ", ".join(str(choice) for choice in allowed)
    guess = did_you_mean(item.text or "", allowed)
    mistakes.add(item, f"{item.shown} is neither a list nor {words}.{guess}", "not_a_choice")
    return WRONG


def _literal(item: Item, allowed: tuple[Any, ...], mistakes: Mistakes) -> Any:
    if item.value in allowed and not isinstance(item.value, bool):
        return item.value
    words = ", ".join(str(choice) for choice in allowed)
    guess = did_you_mean(item.text or "", allowed)
    mistakes.add(item, f"{item.shown} is none of {words}.{guess}", "not_a_choice")
    return WRONG


def _tuple(item: Item, form: Any, mistakes: Mistakes) -> Any:
    if not isinstance(item.value, list):
        text = f"expected a list, but it is {item.shown}. Write '[...]' or lines that begin with '-'."
        mistakes.add(item, text, "wrong_type")
        return WRONG
    values = [decode(entry, form, mistakes) for entry in item.value]
    return WRONG if any(value is WRONG for value in values) else tuple(values)


def _mapping(item: Item, form: Any, mistakes: Mistakes) -> Any:
    if not is_mapping(item, mistakes):
        return WRONG
    values = {key: decode(entry, form, mistakes) for key, entry in item.items()}
    return WRONG if any(value is WRONG for value in values.values()) else values


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
