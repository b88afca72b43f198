"""A workload of several services under one load, `service: [NAME, NAME]`, as a written workload of each of them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from seamark.config.decode import WRONG, decode, is_mapping, known_keys
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service
from seamark.model.trial import SERVICE

LISTS = ("include", "exclude")
Own = Mapping[str, Mapping[str, Item]]
"""What stands under `per_service`, by service and setting."""
SettingNames = Mapping[str, Set[str]]
"""The settings of each service."""


@dataclass(frozen=True, kw_only=True)
class OneService:
    """A workload as written for one service, and the settings that are given to this service alone."""

    item: Item
    own: frozenset[str] = frozenset()


def by_service(item: Item, services: Mapping[str, Service], mistakes: Mistakes) -> list[OneService]:
    """Return a workload of one name for each of several services that are compared under one load: what stands beside
    `service` is shared; what stands under `per_service` is of one, and so is an entry of `include` or `exclude` that
    names one. Any other workload stays as it is. Nothing after a mistake in the list."""
    entry = item.value.get(SERVICE) if isinstance(item.value, dict) else None
    if entry is None or not isinstance(entry.value, list):
        return [OneService(item=item)]
    names, given = decode(entry, tuple[str, ...], mistakes), item.value.get("per_service")
    if names is WRONG or (given is not None and not is_mapping(given, mistakes)):
        return []
    if len({*names}) < max(2, len(names)):
        mistakes.add(entry, "name two services or more, each once. One stands alone: 'service: NAME'.", "wrong_form")
        return []
    try:
        known = {name: services[name] for name in names if name in services}
    except UserError as error:  # a recipe
        mistakes.note(*error.mistakes)
        return []
    components = {service.component: name for name, service in known.items()}
    if len(components) > 1:
        which = " and ".join(f"{name} ({component})" for component, name in components.items())
        mistakes.add(entry, f"only services of one component are compared, not {which}.", "conflict")
    settings = {name: {setting.name for setting in service.settings} for name, service in known.items()}
    own = _own_parts(given, names, settings, mistakes) if given is not None else {}
    title = item.value.get("name", replace(entry, value="-".join(names)[:64], text=None, path=f"{item.path}.name"))
    shared = {key: part for key, part in item.items() if key not in (SERVICE, "per_service", *LISTS)}
    shared["name"] = title
    for key, part in item.items():
        if lacking := _lacking(key, settings):
            knows = next(name for name in settings if key in settings[name])
            text = f"{lacking} has no such setting. Write it under 'per_service: {{{knows}: ...}}'."
            mistakes.add(part, text, "unknown_key")
            del shared[key]
    lists = {key: _sound(item.value[key], names, settings, own, mistakes) for key in LISTS if key in item.value}
    written = []
    for at, name in zip(entry.value, names, strict=True):
        included = _keys_for(name, lists["include"]) if "include" in lists else set()
        alone = {*own.get(name, ()), *(included & settings.get(name, set()) - shared.keys())}
        entries = {key: _entries_for(name, part) for key, part in lists.items()}
        value = {**shared, **own.get(name, {}), **entries, SERVICE: at}
        written.append(OneService(item=replace(item, value=value), own=frozenset(alone)))
    return written


def _own_parts(given: Item, names: Sequence[str], settings: SettingNames, mistakes: Mistakes) -> Own:
    """Return what stands under `per_service`: settings of a service, at one level or several. The load is shared."""
    known_keys(given, names, mistakes)
    found: dict[str, dict[str, Item]] = {}
    for name, part in given.items():
        if name in settings and is_mapping(part, mistakes):
            known_keys(part, settings[name], mistakes)
            found[name] = {key: entry for key, entry in part.items() if key in settings[name]}
    return found


def _lacking(key: str, settings: SettingNames) -> str:
    """Return the services without a setting that others of them have."""
    lacking = [name for name in settings if key not in settings[name]]
    return ", ".join(lacking) if len(lacking) < len(settings) else ""


def _sound(entries: Item, names: Sequence[str], settings: SettingNames, own: Own, mistakes: Mistakes) -> Item:
    """Return the entries of `include` or `exclude` without those that name another service, or none where it has to
    be said which."""
    if not isinstance(entries.value, list):
        return entries
    alone = {key for part in own.values() for key in part}
    sound = []
    for entry in entries.value:
        before, told = mistakes.count, dict(entry.items()).get(SERVICE)
        if told is not None and told.value not in names:
            text = f"{told.shown} is none of {', '.join(names)}.{did_you_mean(told.text or '', names)}"
            mistakes.add(told, text, "unknown_name")
        elif told is not None and len(entry.value) == 1:
            text = "names a service alone. Add a setting, or take the service off the list under 'service'."
            mistakes.add(entry, text, "no_value")
        for key, part in entry.items() if told is None else ():
            if key in alone or _lacking(key, settings):
                text = f"is not set for all services alike. Say for which: '{{service: {names[0]}, {key}: ...}}'."
                mistakes.add(part, text, "missing")
        sound += [entry] if mistakes.count == before else []
    return replace(entries, value=sound)


def _entries_for(name: str, entries: Item) -> Item:
    """Return the entries about one service, without the key `service`, and those about all."""
    if not isinstance(entries.value, list):
        return entries
    kept = [entry for entry in entries.value if _about(entry) in (None, name)]
    return replace(
        entries,
        value=[
            replace(entry, value={key: part for key, part in entry.items() if key != SERVICE})
            if _about(entry)
            else entry
            for entry in kept
        ],
    )


def _keys_for(name: str, entries: Item) -> set[str]:
    """Return the keys of the entries about one service alone."""
    listed = entries.value if isinstance(entries.value, list) else []
    return {key for entry in listed if _about(entry) == name for key, _ in entry.items()}


def _about(entry: Item) -> str | None:
    """Return the service that an entry names, None for all."""
    told = dict(entry.items()).get(SERVICE)
    return None if told is None else str(told.value)
