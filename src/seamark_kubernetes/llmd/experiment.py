"""Experiment files of llm-d-benchmark, in the old and the new form, as treatments with dotted keys. Opens no file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.plurals import counted

NOT_APPLICABLE = "NA"
"""The level of a factor that a treatment does not have, such as replicas of another method of deployment."""
LABELS = ("name", "description", "description.text")
FREE = (*LABELS, "profile", "harness")
"""Keys of a treatment that are no factors."""


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """One combination of levels by dotted key, constants included."""

    name: str
    at: Item
    levels: Mapping[str, Item]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Each deployment of `setup` gets each load of `run`. A kind without treatments has one, of its constants.
    `together` are groups whose members load one server at the same time."""

    root: Item
    setup: Sequence[Treatment]
    run: Sequence[Treatment]
    together: Sequence[Item]


def part(item: Item, *path: str) -> Item:
    """Return what is at a path of keys, or an item without a value."""
    for key in path:
        item = dict(item.items()).get(key, replace(item, value=None, text=None))
    return item


def read_experiment(root: Item, mistakes: Mistakes) -> Experiment:
    """Return the experiment in a file, after noting its mistakes."""
    groups = [(group, part(group, "treatments")) for group in part(root, "groups").listed()]
    together = [group for group, members in groups if len(members.listed()) > 1]
    run = part(root, "run")
    loads = [part(root, "treatments"), run if isinstance(run.value, list) else part(run, "treatments")]
    loads += [members for group, members in groups if group not in together]
    kinds = {"setup": [part(root, "setup", "treatments")], "run": loads}
    if not together and not any(given.value for kind in kinds.values() for given in kind):
        text = "no treatments: expected `treatments`, at the top or in `setup` and `run`, or `groups`."
        mistakes.add(root, text, "missing")
    found = {kind: _treatments(root, kind, given, mistakes) for kind, given in kinds.items()}
    if together and not any(given.value for given in loads):
        found["run"] = []
    members = sum(len(part(group, "treatments").value) for group in together)
    _check_totals(part(root, "design"), len(found["setup"]), len(found["run"]) + members, mistakes)
    return Experiment(root=root, setup=found["setup"], run=found["run"], together=together)


def _treatments(root: Item, kind: str, given: Sequence[Item], mistakes: Mistakes) -> list[Treatment]:
    """Return the treatments of a kind. In the new form they are mappings, whose keys a design may name as factors; in
    the old form texts with a level for each of the section's `factors`, or such texts by name."""
    design, section = part(root, "design"), part(root, kind)
    places = [*([design] if kind == "run" else []), part(design, kind), *([root] if kind == "run" else []), section]
    constants = {key: item for place in places for key, item in _constants(part(place, "constants"))}
    factors = [factor for place in places for factor in part(place, "factors").listed()]
    named = [part(factor, "key").text or part(factor, "name").text or factor.text or "" for factor in factors]
    for key, item in part(section, "levels").items():
        if key not in named:
            _not_named(item, key, named, mistakes)
    found = []
    for item in given:
        if item.value is not None and not isinstance(item.value, (list, dict)):
            mistakes.add(item, f"expected a list of treatments, but it is {item.shown}.", "wrong_type")
        for name, treatment in (*item.items(), *(("", inner) for inner in item.listed())):
            own = dict(_flat(treatment)) or _by_position(treatment, named, mistakes)
            for key, level in own.items():
                if key not in (*FREE, *named) and did_you_mean(key, named):  # designs need not name all that varies
                    _not_named(level, key, named, mistakes)
            levels = {key: level for key, level in (constants | own).items() if key not in LABELS}
            levels = {key: level for key, level in levels.items() if level.text != NOT_APPLICABLE}
            _check_keys(levels, mistakes)
            name = part(treatment, "name").text or name or treatment.text or ""
            found.append(Treatment(name=name, at=treatment, levels=levels))
    if not found and part(section, "factors").listed():
        mistakes.add(section, "has `factors`, but no `treatments`: the combinations that are run.", "missing")
    return found or [Treatment(name="", at=section, levels=constants)]


def _constants(item: Item) -> Iterator[tuple[str, Item]]:
    """Yield constants by key: of a mapping, a list of mappings, or a list of `key` and `value`."""
    for entry in (item, *item.listed()):
        if part(entry, "key").text and "value" in entry.value:
            yield str(entry.value["key"].text), entry.value["value"]
        else:
            yield from _flat(entry)


def _flat(item: Item, begin: str = "") -> Iterator[tuple[str, Item]]:
    """Yield the entries of a mapping, and of mappings in it, by dotted key."""
    for key, inner in item.items():
        if isinstance(inner.value, dict):
            yield from _flat(inner, f"{begin}{key}.")
        else:
            yield f"{begin}{key}", inner


def _not_named(item: Item, key: str, factors: Sequence[str], mistakes: Mistakes) -> None:
    guess = did_you_mean(key, factors) or f" Factors: {', '.join(factors) or 'none'}."
    mistakes.add(item, f"no factor has the key '{key}'.{guess}", "unknown_key")


def _by_position(item: Item, factors: Sequence[str], mistakes: Mistakes) -> dict[str, Item]:
    """Return the levels of a text such as `modelservice,NA,8`, in the order of the factors."""
    levels = [level.strip() for level in (item.text or "").split(",")]
    if len(levels) != len(factors):
        text = f"has {counted(len(levels), 'level')} for {counted(len(factors), 'factor')}: {', '.join(factors)}."
        mistakes.add(item, text, "wrong_form")
        return {}
    parts = zip(factors, levels, strict=True)
    return {key: replace(item, value=level, text=level, path=f"{item.path}.{key}") for key, level in parts}


def _check_keys(levels: Mapping[str, Item], mistakes: Mistakes) -> None:
    """Note each key that lies in another one, as `a.b.c` in `a.b`: that one would be a value and a mapping."""
    for key, level in levels.items():
        for outer in (key[:end] for end, letter in enumerate(key) if letter == "." and key[:end] in levels):
            first, last = sorted((levels[outer], level), key=lambda item: item.line)
            text = f"'{key}' makes a mapping of '{outer}', which has a value. Remove one; see line {first.line}."
            mistakes.add(last, text, "conflict")


def _check_totals(design: Item, setup: int, run: int, mistakes: Mistakes) -> None:
    """Note each total of a design that is not what the treatments of the file come to."""
    totals = {"total_setup_treatments": setup, "total_run_treatments": run, "total_treatments": run}
    for key, count in (totals | {"total_matrix": setup * run}).items():
        total = part(design, key)
        if total.value is not None and total.value != count:
            text = f"{total.shown}, but the file has {count}. Correct it, or add the treatments that are missing."
            mistakes.add(total, text, "conflict")
