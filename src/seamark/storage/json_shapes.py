"""Whether a JSON document has the shape that its reader expects, and what is the first thing that has not.

Keys that a shape does not name are let pass: a later version may have written them. No domain word; opens no file.
"""

import json
import math
import re
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

LARGEST = 2**63
"""No whole number of a document reaches it; a figure may: the limit of Go's memory is shown as 9.22337204e18."""
SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)
LONGEST_SHOWN = 60
NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}


def document_of(text: str, shape: Any) -> dict[str, Any]:
    """Return the JSON object that a text holds. Raises ValueError that says what of it is wrong.

    NaN, infinity, whole numbers beyond 64 bits and nesting beyond Python's stack are wrong wherever they stand.
    """
    try:
        document = json.loads(text, parse_constant=_no_number, parse_float=_float, parse_int=_int)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error})") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if SURROGATE.search(text) and not _encodable(document):
        raise ValueError("holds half a character (\\ud800 to \\udfff)")
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, but it is {_shown(document)}")
    if wrong := mistake(document, shape):
        raise ValueError(wrong)
    return document


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


def mistake(value: Any, shape: Any, path: str = "") -> str | None:
    """Return what is the first thing in a document that does not have the shape, None when all has.

    A shape is a TypedDict, list[...], Mapping[str, ...], a union, Literal or a plain type; Annotated with a second
    shape, or with a function that raises ValueError, has to fit both.
    """
    return next(_mistakes(value, shape, path), None)


def _mistakes(value: Any, shape: Any, path: str) -> Iterator[str]:
    if shape is Any:
        return
    origin = get_origin(shape)
    if origin in (Union, types.UnionType):
        if all(mistake(value, each) for each in get_args(shape)):
            yield from _of_union(value, [each for each in get_args(shape) if each is not type(None)], path)
    elif origin is Annotated:
        plain, check = get_args(shape)
        yield from _annotated(value, plain, check, path)
    elif origin is Literal:
        if value not in get_args(shape):
            yield f"{path} is {_shown(value)}, none of {', '.join(map(str, get_args(shape)))}"
    elif is_typeddict(shape):
        yield from _object(value, shape, path)
    elif origin is list:
        if not isinstance(value, list):
            yield f"{path} is {_shown(value)}, not a list"
        else:
            for number, each in enumerate(value):
                yield from _mistakes(each, get_args(shape)[0], f"{path}[{number}]")
    elif origin is not None:
        if not isinstance(value, dict):
            yield f"{path} is {_shown(value)}, not an object"
        else:
            for key, each in value.items():
                yield from _mistakes(each, get_args(shape)[1], f"{path}.{key}")
    elif not _is(value, shape):
        yield f"{path} is {_shown(value)}, not {NOUNS[shape]}"


def _of_union(value: Any, options: list[Any], path: str) -> Iterator[str]:
    """Say of a value that fits no part of a union why it does not fit the likeliest."""
    alike = [
        each for each in options if isinstance(value, dict) and (is_typeddict(each) or get_origin(each) is Mapping)
    ]
    yield mistake(value, (alike or options)[0], path) or f"{path} is {_shown(value)}"


def _annotated(value: Any, plain: Any, check: Any, path: str) -> Iterator[str]:
    wrong = mistake(value, plain, path)
    if wrong:
        yield wrong
        return
    if is_typeddict(check):
        yield from _mistakes(value, check, path)
        return
    try:
        check(value)
    except ValueError as error:
        yield f"{path} is {_shown(value)} ({error})"


def _object(value: Any, shape: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path or 'the document'} is {_shown(value)}, not an object"
        return
    for key, each in _hints(shape).items():
        inner = f"{path}.{key}" if path else key
        if key in value:
            yield from _mistakes(value[key], each, inner)
        elif key in shape.__required_keys__:
            yield f"{inner} is missing"


@cache
def _hints(shape: Any) -> dict[str, Any]:
    hints = get_type_hints(shape, include_extras=True)
    return {key: get_args(each)[0] if get_origin(each) is Required else each for key, each in hints.items()}


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    if kind is int:
        return isinstance(value, int) and abs(value) < LARGEST
    if kind is type(None):
        return value is None
    return isinstance(value, kind)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
