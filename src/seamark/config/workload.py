"""Decoder of a scenario's workloads: settings, levels, inclusions, exclusions, conditions and objectives."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os.path import expandvars
from types import FunctionType

from seamark.config.compared_services import by_service
from seamark.config.datasets import artifact_of, check_used, digest_at, size_levels, with_dataset
from seamark.config.decode import WRONG, decode, is_mapping, known_keys
from seamark.config.expression import conditions_of, objectives_of
from seamark.config.forms.table import LevelReader, PresetFolder, form_names, form_of, qualities_of
from seamark.config.harness import check_harness
from seamark.config.load_profile_checks import check_excluded, check_load_profile, texts_of
from seamark.config.parties import fresh_server, parties_of
from seamark.config.profile import PROFILE, with_profile
from seamark.config.search import levels_with, search_of
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError, did_you_mean
from seamark.model.digest import sha256_of
from seamark.model.dotted import resolved
from seamark.model.parties import OF_THE_WHOLE
from seamark.model.scenario import RESOURCE_SETTINGS, Levels, Resources, Scenario, Workload
from seamark.model.service import Service, Setting, Value, sound_services
from seamark.patterns.table import LOAD_SETTINGS, load_settings_of, own_settings
from seamark.patterns.trace_file import file_of

WorkloadCheck = Callable[[Item, Workload, Service, int, Mistakes], object]
"""Notes what is wrong with the files and settings of a workload, which has this number of repetitions."""


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Settings that a workload has beside those of its recipe and load, by name, and levels of settings that it does
    not write. `service` is another recipe that it is measured by, such as one with the libraries that its files need;
    None: as written."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    levels: Mapping[str, Levels] = field(default_factory=dict)
    service: str | None = None


Derive = Callable[[Item, Mistakes], Derived]
"""Returns what follows from the files that a workload names, after noting what is wrong with them."""
WORKLOAD_KEYS = (
    *("name", "component", "service", "include", "exclude", "where", "slos", "search", "parties"),
    *("fresh_server", "per_service", PROFILE),
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
OPTION = re.compile(r"[A-Za-z_][\w.-]*")
ELSEWHERE = (
    "site",
    "partition",
    "account",
    "qos",
    "repetitions",
    "restarts",
    "replicas",
    "order",
    "max_retries",
    "artifacts",
    "binds",
    "metadata",
    "extends",
)
"""Top-level keys of a scenario: the message for one in a workload names its place."""
NOT_APPLICABLE = "NA"
"""How llm-d-benchmark writes that a method of deployment does not have a setting."""
SINGLE = {
    "container": "'artifacts: {container: FILE.sif}' at the top",
    "external": "'runtime: external' and 'address' in a site",
}
"""Keys of a party, each with what takes its place for one service."""


def workloads_of(
    tree: Item,
    resources: Resources,
    services: Mapping[str, Service],
    mistakes: Mistakes,
    preset_folder: PresetFolder,
    metrics: tuple[str, ...] = (),
) -> tuple[Workload, ...]:
    """Return the workloads under `workload` or `workloads`, without those that could not be decoded.

    `metrics` are names of metrics of the user's own, of which objectives may speak.
    """
    single, several = tree.value.get("workload"), tree.value.get("workloads")
    if single is not None and several is not None:
        text = f"both 'workload' (line {single.line}) and 'workloads' are written. Keep one of them."
        mistakes.add(several, text, "conflict")
        return ()
    if several is not None and not isinstance(several.value, list):
        mistakes.add(
            several, f"expected a list of workloads, but it is {several.shown}. Begin each with '- service:'."
        )
        return ()
    items = [single] if single is not None else several.value if several is not None else []
    if not items:
        at = several or tree
        text = "no workload: write 'workload:' with a service, or a list of them under 'workloads:'."
        mistakes.add(at, text, "missing")
        return ()
    defaults = tree.value.get("defaults")
    if defaults is not None and not is_mapping(defaults, mistakes):
        defaults = None
    each = [by_service(item, services, mistakes) for item in items]
    of_services = [one for workloads in each for one in workloads]
    items = [one.item for one in of_services]
    data = artifact_of(tree)
    made = [_workload(item, defaults, resources, services, mistakes, preset_folder, metrics, data) for item in items]
    _check_defaults(defaults if all(each) else None, made, services, mistakes)
    if all(each) and all(made):
        check_used(data, [workload for workload in made if workload is not None], services, mistakes)
    for item, workload in zip(items, made, strict=True):
        if workload is not None and workload.service in services:  # parties have several recipes
            _check_by_recipe(item, workload, services[workload.service], tree.value.get("repetitions"), mistakes)
    _check_names(items, made, mistakes)
    pairs = zip(made, of_services, strict=True)
    return tuple(replace(workload, own=one.own) for workload, one in pairs if workload is not None)


def _check_by_recipe(
    item: Item, workload: Workload, service: Service, repetitions: Item | None, mistakes: Mistakes
) -> None:
    """Note what is wrong with a workload by the check of its service's recipe."""
    if service.check is None:
        return
    try:
        check: WorkloadCheck = resolved(service.check, FunctionType)
    except ValueError as error:
        mistakes.add(item, f"the check of the recipe '{service.name}': {error}.")
        return
    count = repetitions.value if repetitions and type(repetitions.value) is int else Scenario.repetitions
    check(item, workload, service, count, mistakes)


def _workload(
    item: Item,
    defaults: Item | None,
    resources: Resources,
    services: Mapping[str, Service],
    mistakes: Mistakes,
    preset_folder: PresetFolder,
    metrics: tuple[str, ...],
    data: Item | None,
) -> Workload | None:
    if not is_mapping(item, mistakes):
        return None
    if "parties" in item.value:

        def party(each: Item) -> Workload | None:
            return _workload(each, defaults, resources, services, mistakes, preset_folder, metrics, data)

        return parties_of(item, services, resources, mistakes, party)
    service = _service(item, services, mistakes)
    if service is None:
        return None
    if service.load == "requests":
        item = with_profile(item, preset_folder, mistakes)
    elif PROFILE in item.value:
        mistakes.add(item.value[PROFILE], f"{service.name} has no load of requests to choose. Remove it.", "conflict")
    own = _own_settings(item, defaults) if service.load == "requests" else ()
    derived = _derived(item, service, mistakes)
    written_name = service.name
    service = services.get(derived.service or service.name, service)
    known = {setting.name: setting for setting in (*service.settings, *load_settings_of(service), *own)}
    known |= derived.settings
    item = with_dataset(item, {**(defaults.value if defaults else {}), **item.value}, known, data)
    written = {key: entry for key, entry in (defaults.items() if defaults else ()) if key in known}
    written |= {key: entry for key, entry in item.items() if key not in {*WORKLOAD_KEYS} - {"per_service"}}
    reader = LevelReader(service=service, preset_folder=preset_folder)
    found: dict[str, Levels] = {}
    for key, entry in written.items():
        if key not in known:
            mistakes.unknown_key(entry, (*WORKLOAD_KEYS, *known), _hint(key, service))
        elif (values := reader.levels(entry, known[key], mistakes)) is not None:
            found[key] = values
    known |= reader.leaves.settings
    found |= reader.leaves.levels
    found |= {key: values for key, values in derived.levels.items() if key not in written}
    for setting in known.values():
        if setting.required and setting.name not in written:
            mistakes.add(item, f"the setting '{setting.name}' is missing. {setting.help}", "missing")
    treatable = known | {setting.name: setting for setting in RESOURCE_SETTINGS}
    parts = item.value
    name = decode(parts["name"], str, mistakes) if "name" in parts else written_name
    workload = Workload(
        name=name if isinstance(name, str) else written_name,
        component=service.component,
        service=service.name,
        levels=found,
        include=_partial(parts.get("include"), treatable, reader, mistakes),
        exclude=_partial(parts.get("exclude"), treatable, reader, mistakes),
        where=conditions_of(parts.get("where"), treatable, mistakes),
        slos=objectives_of(parts.get("slos"), mistakes, (*metrics, *service.qualities, *qualities_of(found))),
        leaves=(*reader.leaves.settings.values(), *derived.settings.values()),
        path=item.path,
        fresh_server=fresh_server(item, mistakes),
    )
    sizes = size_levels(item, workload, known, mistakes)
    workload, found = replace(workload, levels=found | sizes), found | sizes
    search = None
    if service.load == "requests":
        search = search_of(item, workload, mistakes)
    elif "search" in parts:
        text = f"the load of {service.name} has no rate and no duration to search with. Remove it."
        mistakes.add(parts["search"], text)
    workload = replace(workload, levels=levels_with(search, item, found), search=search)
    check_excluded(item, workload, resources, mistakes)
    for name in (form for form in form_names() if form in found and known[form].type == "structure"):
        form_of(name).check(item, workload, mistakes)
    _check_caches(item, workload, service, mistakes)
    _check_options(item, workload, service, mistakes)
    _check_not_applicable(item, workload, service, mistakes)
    check_harness(item, workload, service, mistakes)
    if service.load == "requests":
        workload = check_load_profile(item, workload, service, mistakes)
    return replace(workload, contents=file_contents(item, workload, known.values(), mistakes))


def _check_caches(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    """Note each `caches: reset` that the server of a workload cannot be asked for."""
    calls = service.server.reset_calls if service.server else ()
    for at, text in texts_of(item, workload, "caches"):
        if text == "reset" and not calls:
            why = f"the recipe '{service.name}' states no call that empties the caches of its server."
            mistakes.add(at, f"{why} Write keep or warm, or 'reset_caches: {{path: /PATH}}' under its 'server'.")
        for name in dict.fromkeys(call.setting for call in calls if text == "reset" and call.setting):
            if set(workload.every_level(name, None)) != {True}:
                mistakes.add(
                    at, f"{service.name} can be asked with '{name}: true' alone. Write that as its one level."
                )


def _check_not_applicable(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    """Note each level `NA` of a setting that goes to a values file: it would be rendered as that text."""
    for setting in service.settings:
        for at, text in texts_of(item, workload, setting.name) if setting.goes_to else ():
            if text == NOT_APPLICABLE:
                why = "is no level: another method of deployment is another recipe. Write null for what the file has."
                mistakes.add(at, f"'{NOT_APPLICABLE}' {why}", "wrong_form")


def _check_options(item: Item, workload: Workload, service: Service, mistakes: Mistakes) -> None:
    """Note each entry of a setting that cannot be an option of the server, or that the recipe's command has
    already."""
    if (server := service.server) is None:
        return
    for setting in server.option_settings:
        for at, level in texts_of(item, workload, setting):
            try:
                options = json.loads(level)
            except ValueError:
                options = None
            if not isinstance(options, dict):
                mistakes.add(at, "expected a mapping such as {work_mem: 64MB}.", "wrong_type")
                continue
            for name, value in options.items():
                entry = at.value.get(name, at) if isinstance(at.value, dict) else at
                if not OPTION.fullmatch(name):
                    mistakes.add(entry, f"'{name}' is no option: use letters, digits, '_', '-' and '.'.")
                elif isinstance(value, dict | list) or value is None or not str(value).isprintable():
                    text = "expected a number, true, false or one line of text. Levels are a list of mappings."
                    mistakes.add(entry, text, "wrong_type")
                elif given := next((word for word in server.command if _is_option(word, name)), None):
                    own = re.search(r"\{settings\[(\w+)\]\}", given)
                    remedy = f"Use the setting '{own[1]}'." if own else "Remove it."
                    mistakes.add(entry, f"the recipe sets '{name}' itself. {remedy}", "conflict")


def _is_option(word: str, name: str) -> bool:
    """Return whether a word of a command gives the option of that name."""
    return word.startswith("--") and word[2:].partition("=")[0].replace("-", "_").lower() == name.lower()


def _derived(item: Item, service: Service, mistakes: Mistakes) -> Derived:
    """Return what the function that a recipe names as `derive` says of a workload."""
    if service.derive is None:
        return Derived()
    try:
        derive: Derive = resolved(service.derive, FunctionType)
    except ValueError as error:
        mistakes.add(item, f"the function `derive` of the recipe '{service.name}': {error}.")
        return Derived()
    return derive(item, mistakes)


def _own_settings(item: Item, defaults: Item | None) -> tuple[Setting, ...]:
    """Return the settings that the user's own patterns of a workload define; mistakes are noted later."""
    entries = item.value["include"].value if "include" in item.value else ()
    places = [item, *([defaults] if defaults else []), *(entries if isinstance(entries, list) else ())]
    written = [node.value["pattern"] for node in places if isinstance(node.value, dict) and "pattern" in node.value]
    levels = [level for entry in written for level in (entry.value if isinstance(entry.value, list) else [entry])]
    found: list[Setting] = []
    for level in levels:
        with suppress(ValueError):
            found += own_settings([level.value])
    return tuple(found)


def _hint(key: str, service: Service) -> str:
    if key == "settings":
        return " Settings stand directly beside 'service', without a key of their own."
    if key in (setting.name for setting in RESOURCE_SETTINGS):
        return f" It belongs under 'resources:' at the top: 'resources.{key}'."
    if key == "per_service":
        return " It stands beside a list: 'service: [NAME, NAME]'."
    if key in SINGLE:
        return f" It is a key of a party. For one service write {SINGLE[key]}."
    if key in (setting.name for setting in OF_THE_WHOLE):
        return " It stands beside 'parties', where several services are under load at the same time."
    if service.load != "requests" and key in (setting.name for setting in LOAD_SETTINGS):
        settings = ", ".join(setting.name for setting in load_settings_of(service))
        what = "finite: it sends each item once, and" if service.load == "finite" else "a program: it"
        return f" The load of {service.name} is {what} has {settings}."
    return " It belongs at the top of the file, not in a workload." if key in ELSEWHERE else ""


def _service(item: Item, services: Mapping[str, Service], mistakes: Mistakes) -> Service | None:
    entry = item.value.get("service")
    if entry is None:
        mistakes.add(item, f"the key 'service' is missing. Known services: {', '.join(services)}.", "missing")
        return None
    name = decode(entry, str, mistakes)
    if name is WRONG:
        return None
    if name not in services:
        guess = did_you_mean(name, services)
        text = f"unknown service '{name}'. Known: {', '.join(services) or 'none'}.{guess}"
        mistakes.add(entry, text, "unknown_name")
        return None
    try:
        service = services[name]
    except UserError as error:  # its recipe, which other scenarios do not need
        mistakes.note(*error.mistakes)
        return None
    component = item.value.get("component")
    if component is not None and component.value != service.component:
        alike = [recipe.name for recipe in sound_services(services).values() if recipe.component == component.value]
        others = f" Services that are: {', '.join(alike)}." if alike else ""
        text = f"{component.shown} is not what {name} is. Write '{service.component}'.{others}"
        mistakes.add(component, text, "conflict")
    return service


def _partial(
    item: Item | None, known: Mapping[str, Setting], reader: LevelReader, mistakes: Mistakes
) -> tuple[Mapping[str, Value], ...]:
    if item is None:
        return ()
    if not isinstance(item.value, list):
        text = f"expected a list of mappings such as '- {{batch: 8}}', but it is {item.shown}."
        mistakes.add(item, text, "wrong_type")
        return ()
    found: list[Mapping[str, Value]] = []
    for entry in item.value:
        if not is_mapping(entry, mistakes):
            continue
        if not entry.value:
            mistakes.add(entry, "an empty mapping names no setting. Remove it.", "no_value")
        known_keys(entry, known, mistakes)
        values = {key: reader.level(level, known[key], mistakes) for key, level in entry.items() if key in known}
        if all(value is not WRONG for value in values.values()):
            found.append(values)
    return tuple(found)


def _check_defaults(
    defaults: Item | None, made: Iterable[Workload | None], services: Mapping[str, Service], mistakes: Mistakes
) -> None:
    workloads = list(made)
    if defaults is None or any(workload is None for workload in workloads):
        return
    whole = [workload for workload in workloads if workload is not None]
    used = [services[load.service] for workload in whole for load in workload.loads.values()]
    known = [setting.name for service in used for setting in (*load_settings_of(service), *service.settings)]
    known_keys(defaults, known, mistakes)


def _check_names(items: list[Item], made: list[Workload | None], mistakes: Mistakes) -> None:
    first: dict[str, Item] = {}
    for item, workload in zip(items, made, strict=True):
        if workload is None:
            continue
        at = item.value.get("name", item)
        if not NAME.fullmatch(workload.name):
            text = f"'{workload.name}' is no name: use letters, digits, '.', '_' and '-', at most 64."
            mistakes.add(at, text, "wrong_form")
        if "name" in item.value and first.get(workload.name, at) is not at:
            text = f"'{workload.name}' already names the workload in line {first[workload.name].line}."
            mistakes.add(at, text, "written_twice")
        first.setdefault(workload.name, at)


def file_contents(item: Item, workload: Workload, settings: Iterable[Setting], mistakes: Mistakes) -> dict[str, str]:
    """Return the SHA-256 of each file that a level of a workload names, by its path as written.

    Notes each file that cannot be read. A path whose `$NAME` is not known here is not read.
    """
    digests: dict[str, str] = {}
    for setting in settings:
        for at, text in texts_of(item, workload, setting.name) if setting.file else ():
            if "$" in expandvars(text):
                continue
            if setting.dataset:
                if (sha := digest_at(at, text, setting, mistakes)) is not None:
                    digests[text] = sha
                continue
            try:
                digests[text] = sha256_of(file_of(text))
            except FileNotFoundError:
                where = "Correct the path; it begins in the folder where bench is called."
                mistakes.add(at, f"no such file: {text}. {where}")
            except OSError as error:
                mistakes.add(at, f"{text}: cannot be read: {error.strerror}.")
    return digests
