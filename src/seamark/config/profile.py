"""`profile` of a workload: mixes or traces by name, in the place of `mix`, or of `pattern` and `trace`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seamark.config.forms.table import PACKAGE, PresetFolder, preset_files
from seamark.config.yaml_source import Item, Mistakes, shown
from seamark.errors import did_you_mean

PROFILE = "profile"
DECIDED = ("mix", "pattern", "trace")
"""Settings that a profile stands for."""


def with_profile(item: Item, preset_folder: PresetFolder, mistakes: Mistakes) -> Item:
    """Return a workload with the settings that its `profile` stands for, as levels with the places of its names."""
    if (entry := item.value.get(PROFILE)) is None:
        return item
    rest = {key: part for key, part in item.items() if key != PROFILE}
    names = entry.value if isinstance(entry.value, list) else [entry]
    for key in DECIDED:
        if key in rest:
            mistakes.add(rest[key], f"line {entry.line} has a profile, which decides this. Keep one.", "conflict")
            return replace(item, value=rest)
    mixes, traces = preset_files(preset_folder("mixes")), _traces(preset_folder("traces"))
    for name in names:
        if name.text not in mixes and name.text not in traces:
            known = [*mixes, *traces]
            guess = did_you_mean(name.value, known) or f" Known: {', '.join(known)}."
            mistakes.add(
                name, f"{name.shown} is no mix of config/mixes and no trace of config/traces.{guess}", "unknown_name"
            )
            return replace(item, value=rest)
    if all(name.text in mixes for name in names):
        return replace(item, value={**rest, "mix": entry})
    if any(name.text in mixes for name in names):
        text = "mixes and traces have no pattern of load in common. Write a workload for each kind."
        mistakes.add(entry, text, "conflict")
        return replace(item, value=rest)
    paths = [replace(name, value=path, text=path) for name in names for path in (shown(traces[name.text or ""]),)]
    trace = replace(entry, value=paths) if isinstance(entry.value, list) else paths[0]
    return replace(item, value={**rest, "pattern": replace(entry, value="trace", text="trace"), "trace": trace})


def _traces(folder: Path) -> Mapping[str, Path]:
    """Return the files of traces by name without its endings; one of the study stands for one that ships."""
    found: dict[str, Path] = {}
    for path in (path for place in (folder, PACKAGE / folder.name) for path in sorted(place.glob("[!.]*"))):
        found.setdefault(path.name.partition(".")[0], path.absolute())
    return found
