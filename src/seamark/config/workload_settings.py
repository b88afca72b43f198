"""All settings of a workload: of its service, leaves of its structures, its load, and the user's own patterns."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

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
    entries = [each["pattern"] for each in workload.include if "pattern" in each]
    return own_settings([*workload.levels.get("pattern", ()), *entries])


def combinations(workload: Workload, settings: Iterable[Setting]) -> Iterator[Mapping[str, Value]]:
    """Yield each combination of the levels of some settings that is not excluded, then those that are included."""
    levels = {each.name: workload.levels.get(each.name, (each.default,)) for each in settings}
    fixed = {name: values[0] for name, values in levels.items()}
    for combination in product(*levels.values()):
        values = dict(zip(levels, combination, strict=True))
        if not any(entry.items() <= values.items() for entry in workload.exclude):
            yield values
    for entry in workload.include:
        yield fixed | {name: value for name, value in entry.items() if name in fixed}
