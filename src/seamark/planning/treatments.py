"""The treatments of one workload: the product of its levels, minus exclusions, plus inclusions. Pure."""

import math
from collections.abc import Iterator, Mapping
from itertools import product

from seamark.config.expression import Condition, condition
from seamark.config.levels import own_patterns_settings, settings_of
from seamark.config.load_profile_checks import without_effect
from seamark.model.parties import SETS, names_in
from seamark.model.scenario import Resources, Workload
from seamark.model.service import Service, Value

Values = Mapping[str, Value]
MOST_TREATMENTS = 200_000
"""Before `exclude` and `where` leave some of them out."""


def treatments(workload: Workload, resources: Resources, service: Service) -> list[Values]:
    """Return each treatment as the values of all settings and resources, in the order of the written levels.

    With no factor, `include` alone is the list of treatments. A setting that the pattern of a treatment does not read
    has its default; treatments that are then equal are merged. Raises ValueError with the mistake.
    """
    written = {**vars(resources), **workload.levels}
    size = math.prod(len(levels) for levels in written.values())
    if size > MOST_TREATMENTS:
        raise ValueError(f"{size} treatments are more than {MOST_TREATMENTS}. Vary fewer settings, or fewer levels")
    defaults = {setting.name: setting.default for setting in settings_of(service, workload)}
    fixed = defaults | {name: levels[0] for name, levels in written.items()}
    own = {begin: [setting.name for setting in own_patterns_settings(load)] for begin, load in workload.loads.items()}
    conditions = [condition(text) for text in workload.where]
    by_values: dict[tuple[Value, ...], Values] = {}
    if size > 1 or not workload.include:
        for values in _product(written, fixed):
            excluded = any(entry.items() <= values.items() for entry in workload.exclude)
            if not excluded and _allowed(values, conditions):
                values = _as_read(values, defaults, fixed, own, workload)
                by_values.setdefault(tuple(values.values()), values)
        if not by_values:
            raise ValueError("'exclude' and 'where' leave no treatment. Remove one of them")
    for entry in workload.include:
        values = _as_read(fixed | dict(entry), defaults, fixed, own, workload)
        if tuple(values.values()) in by_values:
            shown = ", ".join(f"{name}: {value}" for name, value in entry.items())
            raise ValueError(f"the included treatment {{{shown}}} is among the treatments already. Remove it")
        by_values[tuple(values.values())] = values
    return list(by_values.values())


def factors_of(rows: list[Values]) -> dict[str, tuple[Value, ...]]:
    """Return the factors of treatments, with levels in order of first appearance."""
    levels = {name: tuple(dict.fromkeys(values[name] for values in rows)) for name in (rows[0] if rows else ())}
    return {name: values for name, values in levels.items() if len(values) > 1}


def _product(written: Mapping[str, tuple[Value, ...]], fixed: Values) -> Iterator[dict[str, Value]]:
    varied = {name: levels for name, levels in written.items() if len(levels) > 1}
    for combination in product(*varied.values()):
        yield {**fixed, **dict(zip(varied, combination, strict=True))}


def _allowed(values: Values, conditions: list[Condition]) -> bool:
    for clause in conditions:
        try:
            if not clause.holds(values):
                return False
        except ValueError as error:
            raise ValueError(f"the condition '{clause.text}' {error}") from None
    return True


def _as_read(
    values: dict[str, Value], defaults: Values, fixed: Values, own: Mapping[str, list[str]], workload: Workload
) -> dict[str, Value]:
    """Return values with defaults for what a load does not read, and the first levels for a load that is idle."""
    idle = idle_names(workload, values)
    values = values | {name: fixed[name] for name in idle}
    for begin, names in own.items():
        pattern = values.get(f"{begin}pattern")
        if pattern is not None and f"{begin}pattern" not in idle:
            unread = (begin + name for name in without_effect(str(pattern), values.get(f"{begin}turns"), names))
            values = values | {name: defaults[name] for name in unread if name in values}
    return values


def idle_names(workload: Workload, values: Values) -> frozenset[str]:
    """Return the names of the settings of loads that a treatment leaves out: those of a party in no set."""
    return frozenset(
        setting.name
        for party in workload.parties
        if party.name not in names_in(str(values[SETS.name]))
        for setting in workload.leaves
        if setting.role != "deployment" and setting.name.startswith(f"{party.name}.")
    )
