"""Reader of benchmarks: config/benchmarks/<name>.yaml, with every mistake at once, and tasks by their names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

from seamark.config.decode import WRONG, decode, decode_field, known_keys
from seamark.config.extends import yaml_files
from seamark.config.yaml_source import Item, Mistakes, load
from seamark.errors import UserError, did_you_mean
from seamark.model.dotted import is_dotted, resolved
from seamark_evaluate.tasks.benchmark import WHOLE, Benchmark, Subset
from seamark_evaluate.tasks.question_files import places
from seamark_evaluate.tasks.scoring.table import SCORERS

KINDS = ("made_by", "file", "folder", "hub")
"""Keys of a source that say where its rows come from."""
GIVEN = ("random", "number", "length_words")
"""Parameters of a maker that are not settings of a subset."""


SUBSET_KEYS = tuple(field.name for field in fields(Subset) if field.name not in ("benchmark", "name", "settings"))
FILE_KEYS = tuple(field.name for field in fields(Benchmark) if field.name != "subsets")


def read_benchmark(path: Path) -> Benchmark:
    """Return the benchmark of a file, which is read once. Raises UserError with every mistake, each with file and
    line."""
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _read(path: Path, mtime_ns: int, size: int) -> Benchmark:
    mistakes = Mistakes()
    tree = load(path, mistakes)
    benchmark = None if tree is None else benchmark_of(tree, path.stem, mistakes)
    mistakes.raise_any()
    assert benchmark is not None
    return benchmark


def benchmark_of(tree: Item, stem: str, mistakes: Mistakes) -> Benchmark | None:
    """Return the benchmark in a tree, which a file of the name `stem` has, or None after noting every mistake."""
    before = mistakes.count
    entries: dict[str, Item] = dict(tree.value)
    subsets = entries.pop("subsets", None)
    known_keys(tree, (*SUBSET_KEYS, *FILE_KEYS, "settings", "subsets"), mistakes)
    benchmark = decode(_only(tree, FILE_KEYS), Benchmark, mistakes, given={"subsets": {}})
    for key, entry in _only(tree, SUBSET_KEYS).items():
        decode_field(entry, Subset, key, mistakes)
    if benchmark is not WRONG and benchmark.name != stem:
        mistakes.add(entries["name"], f"'{benchmark.name}' is not the name of its file. Write '{stem}'.")
    read = {name: _subset(stem, tree, item, name, mistakes) for name, item in _subset_items(tree, subsets, mistakes)}
    if mistakes.count > before:
        return None
    assert isinstance(benchmark, Benchmark)
    return replace(benchmark, subsets={name: subset for name, subset in read.items() if subset is not None})


def task_of(task: str, folders: Sequence[Path]) -> Subset:
    """Return the subset of a task such as `longbench/qasper`, or `aime2024` without subsets.

    Raises UserError, with the nearest guess, for an unknown name and for a benchmark whose subset is not named.
    """
    benchmark, name = _benchmark_of(task, folders)
    if name == WHOLE and WHOLE not in benchmark.subsets:
        known = ", ".join(benchmark.subsets)
        raise UserError(f"'{task}': name a subset, as in '{task}/{next(iter(benchmark.subsets))}'. It has: {known}.")
    try:
        return subset_of(benchmark, name)
    except ValueError as error:
        raise UserError(f"'{task}': {error}") from None


def subset_of(benchmark: Benchmark, name: str) -> Subset:
    """Return a subset by its name. Raises ValueError, with the nearest guess, for a name that is none."""
    if name in benchmark.subsets:
        return benchmark.subsets[name]
    if WHOLE in benchmark.subsets:
        raise ValueError(f"the benchmark '{benchmark.name}' has no subsets. Write '{benchmark.name}'.")
    guess = did_you_mean(name, benchmark.subsets) or f" It has: {', '.join(benchmark.subsets)}."
    raise ValueError(f"the benchmark '{benchmark.name}' has no subset '{name}'.{guess}")


def tasks_of(task: str, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the tasks that a name stands for: all subsets of a benchmark without one named."""
    benchmark, name = _benchmark_of(task, folders)
    if name == WHOLE:
        return tuple(subset.task for subset in benchmark.subsets.values())
    return (task_of(task, folders).task,)


def _benchmark_of(task: str, folders: Sequence[Path]) -> tuple[Benchmark, str]:
    name, slash, subset = task.partition("/")
    files = yaml_files(folders)
    if name not in files:
        guess = did_you_mean(name, files) or f" Known: {', '.join(files) or 'none'}."
        raise UserError(f"'{task}': no benchmark has the name '{name}'.{guess}")
    if slash and not subset:
        raise UserError(f"'{task}': the name of a subset is missing behind '/'.")
    return read_benchmark(files[name]), subset


def _only(item: Item, allowed: Sequence[str]) -> Item:
    """Return a mapping with some of its keys. One of a subset without a value is as good as none."""
    entries = {key: entry for key, entry in item.items() if key in allowed}
    empty = [key for key, entry in entries.items() if entry.value is None and key in SUBSET_KEYS]
    return replace(item, value={key: entry for key, entry in entries.items() if key not in empty})


def _subset_items(tree: Item, subsets: Item | None, mistakes: Mistakes) -> Iterator[tuple[str, Item]]:
    """Yield the name and the item of each subset; a benchmark without subsets is one itself."""
    if subsets is None:
        yield WHOLE, replace(tree, value={})
    elif not isinstance(subsets.value, dict) or not subsets.value:
        mistakes.add(subsets, f"expected subsets by name, such as 'qasper: {{}}', but it is {subsets.shown}.")
    else:
        for name, item in subsets.items():
            if "/" in name or not name:
                mistakes.add(item, f"'{name}' is no name of a subset: it has no '/'. Rename it.")
            elif not isinstance(item.value, dict):
                mistakes.add(
                    item, f"expected keys and values, but it is {item.shown}. Write '{{}}' for none of its own."
                )
            else:
                known_keys(item, (*SUBSET_KEYS, "settings"), mistakes)
                yield name, item


def _subset(benchmark: str, tree: Item, item: Item, name: str, mistakes: Mistakes) -> Subset | None:
    """Return a subset of a benchmark: its own keys, and those of the benchmark where it has none.

    Columns and settings are joined key by key, and a source that names no kind of its own.
    """
    before = mistakes.count
    entries = {key: tree.value[key] for key in (*SUBSET_KEYS, "settings") if key in tree.value}
    for key, entry in item.items():
        joined = key in ("source", "columns", "settings") and key in entries
        joined = joined and not (key == "source" and isinstance(entry.value, dict) and set(KINDS) & set(entry.value))
        if joined and isinstance(entry.value, dict) and isinstance(entries[key].value, dict):
            entry = replace(entry, value={**entries[key].value, **entry.value})
        entries[key] = entry
    settings_at = entries.pop("settings", None)
    written = _only(replace(item, value=entries), SUBSET_KEYS)
    subset = decode(written, Subset, mistakes, given={"benchmark": benchmark, "name": name, "settings": {}})
    if subset is WRONG or mistakes.count > before:
        return None
    assert isinstance(subset, Subset)
    _check_source(written.value, subset, mistakes)
    _check_template(written.value, subset, mistakes)
    qualities = _qualities(written.value, subset, mistakes)
    if mistakes.count > before:
        return None
    settings = _settings(item, settings_at, subset, mistakes)
    return None if mistakes.count > before else replace(subset, qualities=qualities, settings=settings)


def _check_source(entries: Mapping[str, Item], subset: Subset, mistakes: Mistakes) -> None:
    source, item = subset.source, entries["source"]
    kinds = [kind for kind in KINDS if getattr(source, kind)]
    if len(kinds) != 1:
        named = " and ".join(kinds) or "none"
        mistakes.add(item, f"expected one of made_by, file, folder and hub, but it has {named}.")
        return
    if source.hub and not source.revision:
        mistakes.add(
            item, "the key 'revision' is missing: a data set of the hub changes. Name a commit, branch or tag."
        )
    for path, at in ((source.made_by, item), (subset.rows, entries.get("rows", item))):
        if path:
            try:
                resolved(path, FunctionType)
            except ValueError as error:
                mistakes.add(at, f"{error}.")
    if kinds != ["made_by"]:
        for key in ("length_words", "questions"):
            if getattr(subset, key) is not None:
                mistakes.add(entries[key], f"'{key}' is for tasks that are made. Remove it, or give 'made_by'.")
    elif subset.questions is None:
        mistakes.add(item, "the key 'questions' is missing: how many are made.")


def _check_template(entries: Mapping[str, Item], subset: Subset, mistakes: Mistakes) -> None:
    columns = subset.columns
    if columns.context is None and "{context}" in subset.template:
        mistakes.add(entries["template"], "it has a place '{context}', but 'columns' has no context.")
    known = [name for name in ("context", "question") if getattr(columns, name) is not None]
    if subset.source.kind != "made" and subset.rows is None:
        for key in ("template", "answer_prefix"):
            allowed = [*known, *columns.facts]
            for place in places(getattr(subset, key)):
                if place not in allowed:
                    guess = did_you_mean(place, allowed) or f" It has: {', '.join(allowed)}."
                    text = f"no column for the place '{{{place}}}'.{guess} Name others in 'columns.facts'."
                    mistakes.add(entries[key], text)


def _qualities(entries: Mapping[str, Item], subset: Subset, mistakes: Mistakes) -> tuple[str, ...]:
    at = entries["scorer"]
    given = subset.qualities if "qualities" in entries else None
    if is_dotted(subset.scorer):
        try:
            resolved(subset.scorer, FunctionType)
        except ValueError as error:
            mistakes.add(at, f"{error}.")
        known = given or ("score",)
    elif subset.scorer not in SCORERS:
        guess = did_you_mean(subset.scorer, SCORERS) or f" Known: {', '.join(SCORERS)}."
        mistakes.add(at, f"no scorer has the name '{subset.scorer}'.{guess}")
        return ()
    else:
        known = SCORERS[subset.scorer].qualities
        for fact in SCORERS[subset.scorer].facts:
            if fact not in subset.columns.facts:
                mistakes.add(at, f"the scorer '{subset.scorer}' needs the fact '{fact}'. Add it to 'columns.facts'.")
    if given is None:
        return known
    if given[:1] != ("score",):
        mistakes.add(entries["qualities"], "the first quality is 'score'.")
    for quality in given:
        if quality not in known:
            guess = did_you_mean(quality, known) or f" It has: {', '.join(known)}."
            mistakes.add(entries["qualities"], f"the scorer '{subset.scorer}' gives no '{quality}'.{guess}")
    return given


def _settings(item: Item, at: Item | None, subset: Subset, mistakes: Mistakes) -> dict[str, Any]:
    """Return the settings of a maker, decoded by its annotations, after noting those that it does not take."""
    entries: dict[str, Item] = at.value if at is not None and isinstance(at.value, dict) else {}
    if at is not None and not isinstance(at.value, dict):
        mistakes.add(at, f"expected keys and values, but it is {at.shown}.")
    if subset.source.made_by is None:
        if entries and at is not None:
            mistakes.add(at, "settings are for tasks that are made. Remove them, or give 'made_by'.")
        return {}
    maker = resolved(subset.source.made_by, FunctionType)
    taken, forms = signature(maker).parameters, get_type_hints(maker)
    allowed = [key for key in taken if key not in GIVEN]
    read: dict[str, Any] = {}
    for key, entry in entries.items():
        if key in allowed:
            read[key] = decode(entry, forms.get(key, str), mistakes)
        else:
            guess = did_you_mean(key, allowed) or f" It has: {', '.join(allowed) or 'none'}."
            mistakes.add(entry, f"'{subset.source.made_by}' has no setting '{key}'.{guess}")
    length = taken.get("length_words")
    if length is not None and length.default is Parameter.empty and subset.length_words is None:
        mistakes.add(item, f"the key 'length_words' is missing: '{subset.source.made_by}' needs it.")
    if length is None and subset.length_words is not None:
        mistakes.add(item, f"'{subset.source.made_by}' has contexts of one length. Remove 'length_words'.")
    return read
