"""Configuration files as Items: schema version checked, merged over the files that they extend.

Mappings are merged key by key, everything else is replaced. docs/forms.md lists the schema versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seamark import __version__
from seamark.config.yaml_source import Item, Mistakes, load, shown

MOST_FILES = 50
SCHEMA_VERSION_KEY = "schema_version"
SCHEMA_VERSION = 1
"""Schema version of scenarios, recipes and sites that this Seamark reads. A file without the key has version 1."""


def yaml_files(folders: Sequence[Path]) -> Mapping[str, Path]:
    """Return YAML files by name, without .yaml; one in an earlier folder stands for one of the same name later."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def load_versioned(path: Path, mistakes: Mistakes) -> Item | None:
    """Return the mapping in a file without its schema version; None after noting why it cannot be read."""
    tree = load(path, mistakes)
    if tree is None:
        return None
    item = tree.value.get(SCHEMA_VERSION_KEY)
    version = SCHEMA_VERSION if item is None else item.value
    if item is not None and (type(version) is not int or version < 1):
        mistakes.add(item, f"expected a number from 1 to {SCHEMA_VERSION}, but it is {item.shown}.", "wrong_type")
        return None
    if item is not None and version > SCHEMA_VERSION:
        mistakes.add(
            item,
            f"form {version} needs a newer Seamark: this one, {__version__}, reads forms up to {SCHEMA_VERSION}. "
            f"Install the first release whose docs/forms.md lists form {version}, or a later one; or write the file "
            f"in form {SCHEMA_VERSION}.",
            "newer_form",
        )
        return None
    return replace(tree, value={key: entry for key, entry in tree.items() if key != SCHEMA_VERSION_KEY})


def load_merged(path: Path, mistakes: Mistakes) -> Item | None:
    """Return a file merged over the files under its `extends`; None after noting a mistake."""
    return _load(path, (), mistakes)


def _load(path: Path, chain: tuple[Path, ...], mistakes: Mistakes) -> Item | None:
    tree = load_versioned(path, mistakes)
    if tree is None:
        return None
    here = (*chain, path.resolve())
    merged: Item | None = None
    for entry in _entries(tree, mistakes):
        base_path = path.parent / entry.value
        if base_path.resolve() in here:
            files = " -> ".join(shown(file) for file in (*here, base_path.resolve()))
            mistakes.add(
                entry, f"these files extend each other in a circle: {files}. Remove one 'extends'.", "conflict"
            )
            return None
        if len(here) >= MOST_FILES:
            mistakes.add(entry, f"more than {MOST_FILES} files extend each other.", "out_of_limits")
            return None
        if not base_path.is_file():
            text = f"no such file: {shown(base_path)}. The path is relative to the file it stands in."
            mistakes.add(entry, text, "no_such_file")
            return None
        base = _load(base_path, here, mistakes)
        if base is None:
            return None
        merged = base if merged is None else _over(merged, base)
    return tree if merged is None else _scenario_over(merged, tree)


def _entries(tree: Item, mistakes: Mistakes) -> list[Item]:
    item = tree.value.get("extends")
    if item is None:
        return []
    entries = item.value if isinstance(item.value, list) else [item]
    for entry in entries:
        if not isinstance(entry.value, str) or not entry.value.strip():
            mistakes.add(entry, f"expected the path of another file, but it is {entry.shown}.", "wrong_type")
    return [entry for entry in entries if isinstance(entry.value, str) and entry.value.strip()]


def _scenario_over(base: Item, tree: Item) -> Item:
    """Merge without the base's name (two scenarios need two folders), and with one of `workload` and `workloads`."""
    kept = {key: entry for key, entry in base.items() if key not in ("scenario", "extends")}
    if "workload" in tree.value or "workloads" in tree.value:
        other = "workloads" if "workload" in tree.value else "workload"
        kept.pop(other, None)
    return _over(replace(base, value=kept), tree)


def _over(base: Item, top: Item) -> Item:
    if not (isinstance(base.value, dict) and isinstance(top.value, dict)):
        return top
    merged = dict(base.value)
    for key, entry in top.items():
        merged[key] = _over(merged[key], entry) if key in merged else entry
    return replace(top, value=merged)
