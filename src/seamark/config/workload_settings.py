"""All settings of a workload: of its service, leaves of its structures, its load, and the user's own patterns."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product

from seamark.config.expression import Condition, condition
from seamark.model.scenario import Workload
from seamark.model.service import Service, Setting, Value
from seamark.patterns.table import load_settings_of, own_settings


def settings_of(service: Service, workload: Workload) -> tuple[Setting, ...]:
    """Return every setting of a workload. Of one with parties those of the whole, and of each party under
    `PARTY.SETTING`."""
    if workload.parties:
        return (*service.settings, *workload.leaves)
    return (*service.settings, *workload.leaves, *load_settings_of(service), *own_patterns_settings(workload))


def own_patterns_settings(workload: Workload) -> tuple[Setting, ...]:
    """Return the settings of the user's own patterns of a workload."""
    entries = [entry["pattern"] for entry in workload.include if "pattern" in entry]
    return own_settings([*workload.levels.get("pattern", ()), *entries])


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
