"""The values file of a recipe for a whole stack: where settings go in it, and what is rendered of it."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.config.yaml_source import Item, Mistakes, load, value_of
from seamark.errors import did_you_mean
from seamark.model.service import Service, Setting, Value

FORMS: Mapping[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "bool": bool,
    "structure": dict,
}
TEMPLATES = ("settings", "switches", "words", "options")


def with_values(tree: Item, settings: Item | None, path: Path, service: Service, mistakes: Mistakes) -> Service:
    """Return a recipe with the absolute path of its values file. Notes each setting without a place in it, and each
    `goes_to` that is none."""
    server = service.server
    given = dict(settings.items()) if settings is not None else {}
    if server is None or server.values is None:
        for setting in service.settings:
            if setting.goes_to is not None:
                text = "there is no file to go to. Write 'values: FILE.yaml' under 'server', or remove it."
                mistakes.add(given[setting.name].value["goes_to"], text, "missing")
        return service
    at = tree.value["server"].value["values"]
    file = (path.parent / server.values).resolve()
    if not file.is_file():
        mistakes.add(at, f"no such file: {file}. The path is relative to the recipe.", "no_such_file")
        return service
    if (base := load(file, mistakes)) is None:
        return service
    used = repr(server)
    if "{values}" not in used:
        mistakes.add(at, "no command is given this file. Write '{values}' where one reads its path.", "missing")
    places: dict[tuple[str, ...], Item] = {}
    for setting in service.settings:
        item = given[setting.name]
        if setting.goes_to is None and setting.role == "deployment" and not _is_named(setting.name, used, service):
            text = "goes nowhere: no template names it. Write 'goes_to: [a.b]'; [] for one that the driver reads."
            mistakes.add(item, text, "missing")
        if setting.goes_to and setting.role != "deployment":
            mistakes.add(
                item.value["goes_to"], "only a setting with 'role: deployment' goes to a server.", "conflict"
            )
        for number, dotted in enumerate(setting.goes_to or ()):
            _check_place(item.value["goes_to"].value[number], dotted, setting, base, places, mistakes)
    return replace(service, server=replace(server, values=str(file)))


def _is_named(name: str, used: str, service: Service) -> bool:
    """Return whether a template, a part or another field of a recipe names a setting."""
    named = repr([getattr(service, field) for field in ("gpu_memory", "replicas")])
    parts = [part.count for part in service.server.parts] if service.server else []
    return name in parts or f"'{name}'" in named or any(f"{{{word}[{name}]}}" in used for word in TEMPLATES)


def _check_place(
    at: Item, dotted: str, setting: Setting, base: Item, places: dict[tuple[str, ...], Item], mistakes: Mistakes
) -> None:
    """Note what is wrong with one place of a setting, and add it to those of the settings before."""
    keys, part = tuple(dotted.split(".")), base
    for number, key in enumerate(keys):
        inner = _inside(part, key)
        if inner is None:
            above = ".".join(keys[:number]) or "the file"
            has = [name for name, _ in part.items()]
            guess = did_you_mean(key, has) or f" In {above}: {', '.join(has) or 'nothing'}."
            mistakes.add(at, f"{base.file} has no '{dotted}'.{guess}", "unknown_key")
            return
        part = inner
    for other, first in places.items():
        shorter, longer = sorted((keys, other), key=len)
        if longer[: len(shorter)] == shorter:
            text = f"'{dotted}' lies in '{'.'.join(other)}' or holds it, to which line {first.line} goes. Keep one."
            mistakes.add(at, text, "conflict")
            return
    places[keys] = at
    expected = FORMS["structure" if setting.object else setting.type]
    unlike = not isinstance(part.value, expected) or (isinstance(part.value, bool) and setting.type != "bool")
    if part.value is not None and unlike:
        kind = "a mapping" if setting.object else f"of type {setting.type}"
        text = f"{part.where} is {part.shown} there, and the setting '{setting.name}' is {kind}."
        mistakes.add(at, text, "wrong_type")


def _inside(part: Item, key: str) -> Item | None:
    if isinstance(part.value, list):
        return part.value[int(key)] if key.isdecimal() and int(key) < len(part.value) else None
    return dict(part.items()).get(key)


def rendered(service: Service, settings: Mapping[str, Value]) -> dict[str, Any]:
    """Return the values of a deployment: those of the file, with each setting that is not None in its places."""
    assert service.server is not None
    assert service.server.values is not None
    document: dict[str, Any] = deepcopy(value_of(Path(service.server.values).read_text(encoding="utf-8")))
    for setting in service.settings:
        value = settings.get(setting.name)
        for dotted in (setting.goes_to or ()) if value is not None else ():
            *above, last = dotted.split(".")
            part: Any = document
            for key in above:
                part = part[int(key) if isinstance(part, list) else key]
            part[int(last) if isinstance(part, list) else last] = value_of(str(value)) if setting.object else value
    return document
