"""Decoder of a workload's `search`, checked against its other settings."""

from collections.abc import Mapping
from typing import Any, cast

from seamark.config.decode import WRONG, decoded_fields, is_mapping
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.load_profile import LoadProfile
from seamark.model.scenario import Levels, Search, Workload
from seamark.patterns.table import LOAD_SETTINGS, PATTERNS, has_rate

MORE_IS_MORE = ("throughput", "requests_per_s", "bandwidth_mb_per_s")
"""Metrics that grow with the load: a lower limit on one does not end a search."""


def search_of(item: Item, workload: Workload, mistakes: Mistakes) -> Search | None:
    """Return the search of the workload that is read of `item` but for it; None without one, and after noting at
    least one mistake."""
    written = item.value.get("search")
    if written is None or not is_mapping(written, mistakes):
        return None
    before = mistakes.count
    found = decoded_fields(written, Search, mistakes)
    if found["setting"] is not WRONG:
        _check_range(written, found, mistakes)
        _check_setting(item, str(found["setting"]), workload, mistakes)
    if not workload.slos and "slos" not in item.value:
        mistakes.add(
            written,
            "finds the largest load that meets 'slos', but there are none. Add such as 'slos: [latency_s <= 0.2]'.",
        )
    for slo in workload.slos:
        if slo.op == ">=" and slo.metric in MORE_IS_MORE:
            mistakes.add(
                item.value["slos"],
                f"'{slo.metric} >=' is met by large loads and missed by small ones. Remove it here.",
            )
    return Search(**found) if mistakes.count == before else None


def levels_with(search: Search | None, item: Item, levels: Mapping[str, Levels]) -> dict[str, Levels]:
    """Return the levels with the searched setting at the level where the search begins, or at a placeholder for a
    search that could not be decoded."""
    if search is not None:
        return {**levels, search.setting: (search.level(search.from_level),)}
    return {"rate_rps": (1.0,), **levels} if item.value.get("search") is not None else dict(levels)


def _check_range(written: Item, found: Mapping[str, Any], mistakes: Mistakes) -> None:
    setting = next(setting for setting in LOAD_SETTINGS if setting.name == found["setting"])
    lowest, highest = setting.minimum or 0.0, setting.maximum
    for key in ("from", "to"):
        value = found[f"{key}_level"]
        if value is WRONG:
            continue
        if value < lowest or (highest is not None and value > highest):
            allowed = f"{lowest:g} to {highest:g}" if highest is not None else f"at least {lowest:g}"
            mistakes.add(written.value[key], f"{value:g} is no {setting.name}: {allowed}.")
        elif setting.type == "int" and not float(value).is_integer():
            mistakes.add(
                written.value[key], f"expected a whole number, for {setting.name} is one. Write {value:.0f}."
            )
    first, last = found["from_level"], found["to_level"]
    if first is not WRONG and last is not WRONG and last <= first:
        mistakes.add(written.value["to"], f"{last:g} is not above 'from' ({first:g}). Raise it.")


def _check_setting(item: Item, setting: str, workload: Workload, mistakes: Mistakes) -> None:
    """Note settings of the workload that contradict a search of that setting."""
    if setting in item.value:
        mistakes.add(item.value[setting], "is what 'search' looks for. Remove it: 'search.from' says where to begin.")
    elif any(setting in entry for entry in workload.include):
        mistakes.add(item.value["include"], f"'{setting}' is what 'search' looks for. Remove it here.")
    wanted = [name for name, kind in PATTERNS.items() if kind.rate == "steady"]
    wanted = wanted if setting == "rate_rps" else ["closed"]
    for pattern in dict.fromkeys(map(str, workload.every_level("pattern", LoadProfile.pattern))):
        fits = has_rate(pattern, "steady") if setting == "rate_rps" else pattern == "closed"
        if not fits and ("pattern" not in item.value or "pattern" in workload.levels):
            mistakes.add(
                cast(Item, item.value.get("pattern", item.value["search"])),
                f"{setting} is not searched with the pattern '{pattern}'. Set 'pattern' to {' or '.join(wanted)}"
                + (", or search rate_rps." if setting == "concurrency" else "."),
            )
