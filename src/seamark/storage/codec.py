"""Decodes JSON into frozen dataclasses and encodes them: the only code that handles damaged or older documents.

A key that a noun does not have is ignored, because a later version may have written it. A missing key, and null where
the field's type has no null, take the field's default, because an earlier version may not have written it. Opens no
file.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_args

from seamark.model.annotations import hints, is_required, shape_of

Noun = TypeVar("Noun")
Decode = Callable[[Any], Any]

LARGEST = 2**63
"""Limit of whole numbers. Metrics may exceed it: Go's memory limit is shown as 9.22337204e18."""
SUSPECT = re.compile(r"[0-9]{20}|[eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]")
"""A text without a match contains no number out of range and no half of a surrogate pair: the fast parser
suffices."""
LONGEST_SHOWN = 60
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


class MismatchError(ValueError):
    """A value that does not have the type of its field. `path` is its place in the document."""

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.what, self.path = what, path

    def below(self, step: str) -> "MismatchError":
        """Return the same error as seen from one level further out."""
        return MismatchError(self.what, step + ("." if self.path[:1] not in ("", "[") else "") + self.path)

    def __str__(self) -> str:
        return f"{self.path or 'the document'} {self.what}"


def parse(text: str, noun: type[Noun]) -> Noun:
    """Return the noun of a JSON text. Raises ValueError with path and mistake."""
    return decode(parse_object(text), noun)


def parse_object(text: str) -> dict[str, Any]:
    """Return the object of a JSON text, which may begin with a byte order mark. Raises ValueError.

    NaN, infinity, whole numbers beyond 64 bits and nesting beyond Python's stack are refused everywhere.
    """
    strict = SUSPECT.search(text)
    numbers: dict[str, Any] = {"parse_float": _float, "parse_int": _int} if strict else {}
    try:
        document = json.loads(text.removeprefix("\ufeff"), parse_constant=_no_number, **numbers)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error})") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if strict and not _encodable(document):
        raise ValueError("holds half a character (\\ud800 to \\udfff)")
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, but it is {_shown(document)}")
    return document


def decode(document: Any, noun: type[Noun]) -> Noun:
    """Return the noun of a parsed JSON document. Raises MismatchError."""
    return cast(Noun, decoder(cast(Any, noun))(document))


def encode(value: Any) -> Any:
    """Return a noun as JSON, with fields in their order. A field marked `OPTIONAL` is omitted if it has its default,
    such as None."""
    if type(value) in NAMES:
        return value
    if is_dataclass(value):
        document = {}
        for key, name, left_out in _written(cast(Any, type(value))):
            part = getattr(value, name)
            if part != left_out:
                document[key] = part if type(part) in NAMES else encode(part)  # a call less for most fields
        return document
    if isinstance(value, Mapping):
        return {name: encode(part) for name, part in value.items()}
    return list(value) if NAMES.keys() >= set(map(type, value)) else [encode(part) for part in value]


@cache
def _written(noun: Any) -> list[tuple[str, str, Any]]:
    """Return key and name of each field, and the value at which it is omitted: MISSING, unless it is `OPTIONAL`."""
    return [
        (_key(field), field.name, field.default if field.metadata.get("optional") else MISSING)
        for field in fields(noun)
    ]


def _key(field: "Field[Any]") -> str:
    """Return the key of a field in JSON: its name, unless that is a keyword of Python."""
    return str(field.metadata.get("key", field.name))


@cache
def decoder(shape: Any) -> Decode:
    """Return the function that decodes a type: a dataclass, tuple[...], Mapping[str, ...], a union, Literal, a plain
    type, or Annotated with a function that raises ValueError."""
    kind, parts = shape_of(shape)
    if kind == "any":
        return lambda value: value
    if kind == "union":
        return _union(parts)
    if kind == "checked":
        return _checked(decoder(parts[0]), parts[1])
    if kind == "literal":
        return _literal(parts)
    if kind == "dataclass":
        return _noun(shape) if shape not in _BEGUN else lambda value: decoder(cast(Any, shape))(value)
    if kind == "list":
        return _sequence(*parts)
    return _mapping(decoder(parts[0])) if kind == "mapping" else _plain(shape)


_BEGUN: set[Any] = set()
"""Nouns whose decoders are being made, so that a noun may hold others of its kind."""


def _noun(noun: Any) -> Decode:
    types = hints(noun)
    _BEGUN.add(noun)
    parts = [
        (_key(field), field.name, _field_decoder(field, types[field.name]), _skips_null(field, types[field.name]))
        for field in fields(noun)
    ]
    _BEGUN.discard(noun)
    required = [field.name for field in fields(noun) if is_required(field)]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise MismatchError(f"is {_shown(value)}, not an object")
        given, key = {}, ""
        try:
            for key, name, part, skips_null in parts:
                if key in value and not (skips_null and value[key] is None):
                    given[name] = part(value[key])
        except MismatchError as wrong:
            raise wrong.below(key) from None
        for name in required:
            if name not in given:
                raise MismatchError("is missing", name)
        return noun(**given)

    return read


def _field_decoder(field: "Field[Any]", hint: Any) -> Decode:
    """Return the function that decodes a field; `renamed` in its metadata has values of older versions."""
    part, renamed = decoder(hint), field.metadata.get("renamed")
    if renamed is None:
        return part
    return lambda value: renamed.get(found := part(value), found)


def _skips_null(field: "Field[Any]", hint: Any) -> bool:
    return not is_required(field) and hint is not Any and type(None) not in get_args(hint)


def _sequence(kind: type, form: Any, length: int | None) -> Decode:
    part = decoder(form)

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise MismatchError(f"is {_shown(value)}, not a list")
        if length not in (None, len(value)):
            raise MismatchError(f"has {len(value)} parts, not {length}")
        if form is int and set(map(type, value)) == {int} and -LARGEST < min(value) <= max(value) < LARGEST:
            return kind(value)  # thousands of counts in a histogram: one by one they take most of its time
        found: list[Any] = []
        try:
            for element in value:
                found.append(part(element))
        except MismatchError as wrong:
            raise wrong.below(f"[{len(found)}]") from None
        return kind(found)

    return read


def _mapping(part: Decode) -> Decode:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise MismatchError(f"is {_shown(value)}, not an object")
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, entry in value.items():
                found[name] = part(entry)
        except MismatchError as wrong:
            raise wrong.below(name) from None
        return found

    return read


def _union(options: tuple[Any, ...]) -> Decode:
    plain = [kind for kind in options if kind in NAMES]
    others = [option for option in options if option not in NAMES]
    kinds = frozenset((*plain, int) if float in plain else plain)
    first = decoder((others or plain)[0])

    def read(value: Any) -> Any:
        kind = type(value)
        if kind in kinds and (kind is not int or float in kinds or abs(value) < LARGEST):
            return value
        return first(value)

    return read


def _checked(part: Decode, check: Callable[[Any], object]) -> Decode:
    def read(value: Any) -> Any:
        found = part(value)
        try:
            check(found)
        except ValueError as error:
            raise MismatchError(f"is {_shown(value)} ({error})") from None
        return found

    return read


def _literal(allowed: tuple[Any, ...]) -> Decode:
    def read(value: Any) -> Any:
        if value not in allowed:
            raise MismatchError(f"is {_shown(value)}, none of {', '.join(map(str, allowed))}")
        return value

    return read


def _plain(kind: Any) -> Decode:
    def read(value: Any) -> Any:
        given = type(value)
        if kind is float and given is int:
            return value
        if given is not kind or (given is int and abs(value) >= LARGEST):
            raise MismatchError(f"is {_shown(value)}, not {NAMES[kind]}")
        return value

    return read


def _encodable(document: Any) -> bool:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_number(text: str) -> float:
    raise ValueError(f"holds {text}, which is no number")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:LONGEST_SHOWN])


def _int(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"holds {text[:LONGEST_SHOWN]}, which is too large")
    return int(text)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
