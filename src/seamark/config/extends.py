"""A file merged over those it extends: mappings key by key, everything else replaced. No scenario word but two."""

from dataclasses import replace
from pathlib import Path

from seamark.config.schema_version import load_form
from seamark.config.yaml_source import Item, Mistakes, shown

MOST_FILES = 50


def load_merged(path: Path, mistakes: Mistakes) -> Item | None:
    """Return a file as Items merged over the files under its `extends`; None after noting why that fails."""
    return _load(path, (), mistakes)


def _load(path: Path, chain: tuple[Path, ...], mistakes: Mistakes) -> Item | None:
    tree = load_form(path, mistakes)
    if tree is None:
        return None
    here = (*chain, path.resolve())
    merged: Item | None = None
    for entry in _entries(tree, mistakes):
        base_path = path.parent / entry.value
        if base_path.resolve() in here:
            files = " -> ".join(shown(each) for each in (*here, base_path.resolve()))
            mistakes.add(entry, f"these files extend each other in a circle: {files}. Remove one 'extends'.")
            return None
        if len(here) >= MOST_FILES:
            mistakes.add(entry, f"more than {MOST_FILES} files extend each other.")
            return None
        if not base_path.is_file():
            mistakes.add(entry, f"no such file: {shown(base_path)}. The path is relative to the file it stands in.")
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
            mistakes.add(entry, f"expected the path of another file, but it is {entry.shown}.")
    return [entry for entry in entries if isinstance(entry.value, str) and entry.value.strip()]


def _scenario_over(base: Item, tree: Item) -> Item:
    """Merge, but take no name from the base (two scenarios need two folders), and only one kind of workload."""
    kept = {key: each for key, each in base.items() if key not in ("scenario", "extends")}
    if "workload" in tree.value or "workloads" in tree.value:
        other = "workloads" if "workload" in tree.value else "workload"
        kept.pop(other, None)
    return _over(replace(base, value=kept), tree)


def _over(base: Item, top: Item) -> Item:
    if not (isinstance(base.value, dict) and isinstance(top.value, dict)):
        return top
    merged = dict(base.value)
    for key, each in top.items():
        merged[key] = _over(merged[key], each) if key in merged else each
    return replace(top, value=merged)
