"""Types of fields taken apart, and limits of fields: what the decoder of YAML, the JSON Schemas and the codec of JSON
files share. Knows no noun of Seamark."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

Kind = Literal["any", "checked", "dataclass", "list", "literal", "mapping", "plain", "union"]
Limits = Mapping[str, Any]
"""What a field may be, beside its type: see `limited`."""
NONE: Limits = types.MappingProxyType({})


def shape_of(annotation: Any) -> tuple[Kind, tuple[Any, ...]]:
    """Return the kind of an annotation, and its parts.

    `literal`: the values. `union`: the options. `list`: tuple or list, type of its entries, its length (None: any).
    `mapping`: the type of its values. `checked`: the type in `Annotated`, and a function that raises ValueError.
    `dataclass` and `plain`: the type itself.
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return "union", parts
    if origin is Literal:
        return "literal", parts
    if origin is Annotated:
        return "checked", parts
    if origin in (tuple, list):
        return "list", (origin, parts[0], None if origin is list or parts[-1] is Ellipsis else len(parts))
    if parts:
        return "mapping", parts[1:]
    if annotation is Any:
        return "any", ()
    return "dataclass" if is_dataclass(annotation) else "plain", (annotation,)


@cache
def hints(noun: type) -> dict[str, Any]:
    """Return the resolved annotations of a dataclass."""
    return get_type_hints(noun, include_extras=True)


@cache
def limits_of(noun: type) -> dict[str, Limits]:
    """Return the limits of each field of a dataclass, by its name."""
    return {member.name: member.metadata.get("limits", NONE) for member in fields(noun)}


def is_required(member: "Field[Any]") -> bool:
    """Return whether a field of a dataclass has no default."""
    return member.default is MISSING and member.default_factory is MISSING


@cache
def keys_of(noun: type) -> dict[str, "Field[Any]"]:
    """Return the fields of a dataclass that a YAML file may have, by their keys: their names, or how they are
    `written`; a field written "" is in no file."""
    written = ((member.metadata.get("written"), member) for member in fields(noun))
    return {member.name if key is None else key: member for key, member in written if key != ""}


def limited(
    value: Any = MISSING,
    /,
    *,
    default_factory: Any = MISSING,
    written: str | None = None,
    optional: bool = False,
    **limits: Any,
) -> Any:
    """Return a field with a default and limits. `written` is its key in YAML where that is not its name, and "" for
    a field that no file has; `optional` as `OPTIONAL`.

    `minimum` and `maximum` may be reached, `above` and `below` not; they hold for every number of a list or mapping.
    `largest` is a maximum so far away that no message on a small number names it. `unit` follows limits in messages.
    A text must match the whole `pattern`, else it is said to be `wrong`. `names` is the type of the setting of a
    service that a text names. `empty` is what is said of a list without entries, `missing` how the message on a
    missing key ends. `help` says what the field is.
    """
    metadata = {"limits": limits, "written": written, "optional": optional}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=value, metadata=metadata)
