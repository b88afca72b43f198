"""Whether a workload's settings make sense together: its load pattern has what it needs, its exclusions exist."""

from dataclasses import asdict, replace

from seamark.errors import did_you_mean
from seamark.model.levels import show
from seamark.model.scenario import Resources, Workload
from seamark.model.service import Value
from seamark.model.yaml_lines import Item, Mistakes

NEEDED = {"closed": (), "constant": ("rate_rps",), "poisson": ("rate_rps",), "ramp": ("rate_rps", "ramp_to_rps")}
WITHOUT_EFFECT = {
    "closed": ("rate_rps", "ramp_to_rps"),
    "constant": ("ramp_to_rps", "think_time_s"),
    "poisson": ("ramp_to_rps", "think_time_s"),
    "ramp": ("think_time_s",),
}
"""Settings that a pattern does not read. Where the pattern varies, they fall back to their defaults."""


def check_shape(item: Item, workload: Workload, mistakes: Mistakes) -> Workload:
    """Note what a pattern lacks or does not read. Returns the workload without defaults that have no effect."""
    patterns = [str(each) for each in workload.levels.get("pattern", ("closed",))]
    patterns += [str(each["pattern"]) for each in workload.include if "pattern" in each]
    given = {key for key, values in workload.levels.items() if values != (None,)}
    for pattern in dict.fromkeys(patterns):
        for name in NEEDED.get(pattern, ()):
            if name not in given and not _included(workload, pattern, name):
                at = item.value.get("pattern", item)
                mistakes.add(at, f"the pattern '{pattern}' needs '{name}'. Add a line such as '{name}: 100'.")
    unread = set.intersection(*(set(WITHOUT_EFFECT.get(pattern, ())) for pattern in patterns))
    for name in sorted(unread & given):
        if name in item.value:
            users = [pattern for pattern, names in WITHOUT_EFFECT.items() if name not in names]
            remedy = f"Remove it, or set 'pattern' to {' or '.join(users)}."
            mistakes.add(item.value[name], f"has no effect with the pattern '{patterns[0]}'. {remedy}")
    kept = {key: each for key, each in workload.levels.items() if key not in unread}
    return replace(workload, levels=kept)


def _included(workload: Workload, pattern: str, name: str) -> bool:
    """Whether a pattern appears only in include entries that all bring what it needs."""
    if pattern in workload.levels.get("pattern", ("closed",)):
        return False
    entries = [each for each in workload.include if each.get("pattern") == pattern]
    return all(each.get(name) is not None for each in entries)


def check_excluded(item: Item, workload: Workload, resources: Resources, mistakes: Mistakes) -> None:
    """Note exclusions that can match nothing: a setting that is not written, a level that it does not have."""
    if "exclude" not in item.value or not isinstance(item.value["exclude"].value, list):
        return
    levels: dict[str, tuple[Value, ...]] = {**asdict(resources), **workload.levels}
    for entry in item.value["exclude"].value:
        for key, each in entry.items():
            if key not in levels:
                guess = did_you_mean(key, levels) or f" Written are: {', '.join(levels)}."
                mistakes.add(each, f"can exclude nothing, for the workload does not set '{key}'.{guess}")
            elif not isinstance(each.value, (list, dict)) and each.value not in levels[key]:
                known = ", ".join(show(level) for level in levels[key])
                mistakes.add(each, f"{each.shown} is none of the levels of '{key}': {known}.")
