"""The matrix of a Tekton task: its combinations as Tekton makes them, and a matrix for some of them."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from seamark.config.yaml_source import Item, Mistakes
from seamark_kubernetes.tekton.lines import flow, word

_WHOLE_LIST = re.compile(r"\$\(.+\[\*\]\)")
"""A value such as `$(params.models[*])`: the values are in another place, and stand for themselves here."""
MOST = 10_000
"""Combinations of one matrix. Each takes some 200 bytes of a manifest, and a cluster takes about 1 MiB."""

Combination = dict[str, str]
"""Parameter -> value, as written."""


def read_matrix(
    matrix: Item, needed: Sequence[str] | None, mistakes: Mistakes
) -> tuple[list[Combination], list[Item]]:
    """Return the combinations, the first parameter varying slowest, and items of `include` that Tekton would drop.

    The values of parameters in `needed` (None: of all) must be in the file.
    """
    include, includes = matrix.listed("include"), []
    for item in include:
        given = read_params(item, mistakes)
        for value in given.values():
            if value.text is None or value.value is None:
                mistakes.add(value, "expected one text, as the value of a parameter in `include`.", "wrong_type")
        includes.append({name: value.text or "" for name, value in given.items()})
    levels = {
        name: _levels(value, needed is None or bool(include) or name in needed, mistakes)
        for name, value in read_params(matrix, mistakes).items()
    }
    if not levels and not include:
        text = "expected `params`, a list of names with lists of values, or `include`, a list of combinations."
        mistakes.add(matrix, text, "wrong_type")
    if prod(map(len, levels.values())) > MOST:
        mistakes.add(matrix, f"has more than {MOST} combinations.", "out_of_limits")
        return [], []
    found, dropped = combine(levels, includes)
    return found, [include[number] for number in dropped]


def read_params(item: Item, mistakes: Mistakes) -> dict[str, Item]:
    """Return the values of the `params` of a task, a matrix or a combination by name."""
    found: dict[str, Item] = {}
    for param in item.listed("params"):
        entries = dict(param.items())
        name = str(entries["name"].text) if "name" in entries else ""
        if not name or "value" not in entries:
            mistakes.add(param, "a parameter needs `name` and `value`.", "missing")
        elif name in found:
            mistakes.add(param, f"'{name}' has a value in line {found[name].line} already.", "written_twice")
        else:
            found[name] = entries["value"]
    return found


def _levels(value: Item, needed: bool, mistakes: Mistakes) -> list[str]:
    if _WHOLE_LIST.fullmatch(value.text or ""):
        if needed:
            text = f"{value.text} is a list in another place, so its combinations are unknown. Write the values here."
            mistakes.add(value, text)
        return [str(value.text)]
    levels = value.value if isinstance(value.value, list) else []
    if not levels or any(level.text is None or level.value is None for level in levels):
        mistakes.add(value, "expected a list of one or more texts or numbers.", "wrong_type")
    return [level.text or "" for level in levels]


def combine(
    levels: Mapping[str, Sequence[str]], includes: Sequence[Combination]
) -> tuple[list[Combination], list[int]]:
    """Return all combinations, and the indices of includes that Tekton drops.

    As Tekton does it: an include goes into each combination that has no other value for its parameters. One that goes
    into none, and shares no value with any, is a combination of its own.
    """
    if not levels:
        return [dict(include) for include in includes], []
    found = [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]
    known, fitting, dropped = list(found), set(), []
    for combination in known:
        for number, include in enumerate(includes):
            if all(combination.get(name, value) == value for name, value in include.items()):
                combination |= include
                fitting.add(number)
    for number, include in enumerate(includes):
        if number in fitting:
            continue
        if any(combination.get(name) == value for combination in known for name, value in include.items()):
            dropped.append(number)
        else:
            known.append(include)
        found.append(dict(include))
    return found, dropped


def params_lines(params: Mapping[str, Any]) -> list[str]:
    """Return parameters with their values as lines of YAML."""
    return ["params:", *(f"  - {param}" for param in _written(params))]


def matrix_lines(combinations: Sequence[Combination]) -> list[str]:
    """Return a matrix that has just these combinations, none of them empty: a product, or else an explicit list."""
    names = list(combinations[0])
    if all(list(combination) == names for combination in combinations):
        levels = {name: list(dict.fromkeys(combination[name] for combination in combinations)) for name in names}
        rows = [tuple(combination.values()) for combination in combinations]
        if prod(map(len, levels.values())) == len(rows) and rows == list(product(*levels.values())):
            values = {name: row[0] if _WHOLE_LIST.fullmatch(row[0]) else row for name, row in levels.items()}
            return ["matrix:", *(f"  {line}" for line in params_lines(values))]
    return ["matrix:", "  include:", *(f"    - params: [{', '.join(_written(row))}]" for row in combinations)]


def _written(params: Mapping[str, Any]) -> list[str]:
    return [f"{{name: {word(name)}, value: {flow(value)}}}" for name, value in params.items()]
