"""Entry points of config: recipes, sites and scenarios read from YAML, with every mistake of a file at once."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.config.decode import WRONG, decode, is_mapping
from seamark.config.extends import load_merged, load_versioned, yaml_files
from seamark.config.forms.table import PresetFolder, form_names
from seamark.config.lanes import lane_mistakes
from seamark.config.levels import TYPES, level, show, violation
from seamark.config.recipe_checks import check_service
from seamark.config.scenario import lines_of, scenario_of
from seamark.config.site_limits import SiteRequest, limit_violations
from seamark.config.values_file import with_values
from seamark.config.workload import WORKLOAD_KEYS
from seamark.config.yaml_source import Item, Mistakes, shown
from seamark.errors import Mistake, UserError, did_you_mean
from seamark.model.origin import SIMULATED
from seamark.model.plugin import config_folders, missing_plugin
from seamark.model.scenario import RESOURCE_SETTINGS, Scenario
from seamark.model.service import Service, Setting
from seamark.model.site import Pinning, Site, misplaced
from seamark.patterns.table import FINITE_SETTINGS, LOAD_SETTINGS, PROGRAM_SETTINGS
from seamark.platform.pinning import cores_in, shown_cores

SiteOf = Callable[[str | None], Site]
"""Returns the site of the name in a scenario (None: the scenario names none)."""


class Recipes(Mapping[str, Service]):
    """The recipes of a folder, and of plugins, by name, each read when it is asked for. Raises UserError with the
    mistakes of a recipe."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            text = "no such folder; recipes of services are expected there."
            raise UserError(Mistake(code="no_such_file", file=shown(folder), text=text))
        self.paths = yaml_files([folder, *config_folders(folder.name)])
        self._read: dict[str, Service] = {}

    def __getitem__(self, name: str) -> Service:
        if name not in self._read:
            mistakes = Mistakes()
            service = _read_service(self.paths[name], mistakes)
            mistakes.raise_any()
            assert service is not None, "a recipe that cannot be read leaves a mistake"
            self._read[name] = service
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.paths  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def read_services(folder: Path) -> dict[str, Service]:
    """Read every recipe of a folder, by name. Raises UserError with all mistakes of all files."""
    paths = Recipes(folder).paths.values()
    mistakes = Mistakes()
    decoded = [service for path in paths if (service := _read_service(path, mistakes)) is not None]
    mistakes.raise_any()
    return {service.name: service for service in decoded}


def read_site(path: Path) -> Site:
    """Read one site. Raises UserError with all mistakes."""
    mistakes = Mistakes()
    tree = load_versioned(path, mistakes)
    if tree is not None:
        site = decode(tree, Site, mistakes)
        _named_as_file(tree, path, mistakes)
        if site is not WRONG:
            _check_site(tree, site, mistakes)
        mistakes.raise_any()
        return site  # type: ignore[no-any-return]
    mistakes.raise_any()
    raise AssertionError("a file that cannot be read leaves a mistake")


def read_scenario(
    path: Path,
    services: Mapping[str, Service],
    site: Site | SiteOf | None = None,
    preset_folder: PresetFolder = Path("config").joinpath,
) -> Scenario:
    """Read a scenario and what it extends. Raises UserError with all mistakes.

    With a site, or a function that returns one for the name under `site`, site limits are checked too, so that their
    mistakes are reported with the others; `plan` checks them in any case. Presets of structured settings are in
    `preset_folder` of their form.
    """
    mistakes = Mistakes()
    tree = load_merged(path, mistakes)
    scenario = scenario_of(tree, path, services, mistakes, preset_folder) if tree is not None else None
    if site is not None and tree is not None:
        try:
            requested = site if isinstance(site, Site) else site(_word(tree, "site"))
        except UserError as error:
            mistakes.note(*error.mistakes)
        else:
            wrong = limit_violations(_site_request(tree), requested, lines_of(tree))
            mistakes.note(*(Mistake(code="worded", text=line) for line in wrong))
    mistakes.raise_any()
    assert scenario is not None, "a scenario that cannot be read leaves a mistake"
    return scenario


def _site_request(tree: Item) -> SiteRequest:
    """Return the resources that a scenario requests, as far as they can be read."""
    resources = tree.value.get("resources")
    counts: dict[str, tuple[int, ...]] = {}
    bounds = {setting.name: setting for setting in RESOURCE_SETTINGS}
    for key, item in resources.items() if resources is not None else ():
        entries = item.value if isinstance(item.value, list) else [item]
        numbers = [entry.value for entry in entries if type(entry.value) is int]
        counts[key] = tuple(count for count in numbers if key in bounds and violation(count, bounds[key]) is None)
    return SiteRequest(
        partition=_word(tree, "partition"),
        account=_word(tree, "account"),
        qos=_word(tree, "qos"),
        resources={key: levels for key, levels in counts.items() if levels},
    )


def _word(tree: Item, key: str) -> str | None:
    """Return the text under a key, None where there is no text."""
    item = tree.value.get(key)
    return item.value if item is not None and isinstance(item.value, str) else None


def _read_service(path: Path, mistakes: Mistakes) -> Service | None:
    tree = load_merged(path, mistakes)
    if tree is None:
        return None
    extends = tree.value.pop("extends", None) is not None
    before = mistakes.count
    if (plugin := missing_plugin(_word(tree, "driver") or "")) is not None:
        text = f"belongs to the plugin '{plugin}', which is not installed here. Install it, or use another service."
        mistakes.add(tree.value["driver"], text, "missing")
        return None
    given: dict[str, Any] = {}
    if (settings := tree.value.pop("settings", None)) is not None:
        virtual = _word(tree, "origin") == SIMULATED
        given["settings"] = _settings(settings, mistakes, virtual=virtual, extends=extends)
    whole = mistakes.count == before
    service = decode(tree, Service, mistakes, given=given)
    _named_as_file(tree, path, mistakes)
    if service is WRONG or not whole:
        return None
    check_service(tree, service, mistakes)
    return with_values(tree, settings, path, service, mistakes)


def _named_as_file(tree: Item, path: Path, mistakes: Mistakes) -> None:
    name = tree.value.get("name")
    if name is not None and name.value != path.stem:
        text = f"{name.shown} is not the name of its file. Write '{path.stem}', or rename the file."
        mistakes.add(name, text, "conflict")


def _settings(item: Item, mistakes: Mistakes, *, virtual: bool = False, extends: bool = False) -> tuple[Setting, ...]:
    """Return the settings of a recipe, written as a mapping from name to the other fields. One that `extends` others
    leaves out their setting with null.

    A load on a `virtual` clock has no setting of a load of requests unless its recipe names it, in the same meaning.
    """
    if not is_mapping(item, mistakes):
        return ()
    reserved = {*WORKLOAD_KEYS, *(setting.name for setting in (*LOAD_SETTINGS, *FINITE_SETTINGS, *RESOURCE_SETTINGS))}
    if virtual:
        reserved -= {setting.name for setting in LOAD_SETTINGS} - {setting.name for setting in PROGRAM_SETTINGS}
    decoded: list[Setting] = []
    for name, entry in item.items():
        if entry.value is None and extends:
            continue
        if name in reserved:
            mistakes.add(entry, f"'{name}' has a meaning of its own in a workload. Choose another name.", "conflict")
        elif not name.isidentifier():
            mistakes.add(entry, f"'{name}' is no name of a setting: use letters, digits and '_'.", "wrong_form")
        setting = decode(entry, Setting, mistakes, given={"name": name})
        if setting is not WRONG:
            if setting.type == "float" and type(setting.default) is int:
                setting = replace(setting, default=float(setting.default))
            _check_setting(entry, setting, mistakes)
            decoded.append(setting)
    return tuple(decoded)


def _check_setting(item: Item, setting: Setting, mistakes: Mistakes) -> None:
    entries = item.value
    for key in ("file", "dataset"):
        if getattr(setting, key) and setting.type != "str":
            mistakes.add(entries[key], "only a setting of type str can name a file.")
    if setting.required and setting.default is not None:
        mistakes.add(entries["required"], "has no meaning for a setting with a default. Remove one of them.")
    if setting.type == "structure":
        _check_structure(item, setting, mistakes)
        return
    if setting.minimum is not None and setting.maximum is not None and setting.minimum > setting.maximum:
        mistakes.add(entries["minimum"], f"is above the maximum ({show(setting.maximum)}).", "conflict")
    if setting.default is not None and type(setting.default) is not TYPES[setting.type]:
        mistakes.add(entries["default"], f"{entries['default'].shown} is not of type {setting.type}.", "wrong_type")
    elif setting.default is not None and (wrong := violation(setting.default, setting)):
        mistakes.add(entries["default"], wrong.text, wrong.code)
    for choice in entries["allowed"].value if setting.allowed is not None else ():
        level(choice, Setting(name=setting.name, type=setting.type, role=setting.role, help=""), mistakes)


def _check_structure(item: Item, setting: Setting, mistakes: Mistakes) -> None:
    if setting.name not in form_names():
        known, guess = ", ".join(form_names()), did_you_mean(setting.name, form_names())
        text = f"a structure has the form of its name, and '{setting.name}' is no form. Forms: {known}."
        mistakes.add(item, text + guess, "unknown_name")
    for key in ("default", "allowed", "minimum", "maximum", "words"):
        if item.value.get(key) is not None:
            mistakes.add(item.value[key], "has no meaning for a structure. Remove it.")


def _check_pinning(item: Item, pinning: Pinning, mistakes: Mistakes) -> None:
    cpus: dict[str, tuple[int, ...]] = {}
    for name in {"client", "server"} & set(item.value):
        try:
            cpus[name] = cores_in(getattr(pinning, name) or "")
        except ValueError as error:
            mistakes.add(item.value[name], f"{error}.", "wrong_form")
    if both := set(cpus.get("client", ())) & set(cpus.get("server", ())):
        text = f"load and server would share CPU {shown_cores(both)}. Give each CPU to one of them."
        mistakes.add(item, text, "conflict")


def _check_site(tree: Item, site: Site, mistakes: Mistakes) -> None:
    if site.gpu_memory_gb is not None and site.partitions:
        mistakes.add(tree.value["gpu_memory_gb"], "belongs to each partition on a site that has some. Move it there.")
    if site.placement == "share" and site.pinning == "auto":
        mistakes.add(
            tree.value["placement"], "loads that share a node would be kept to the same CPUs: 'pinning: none'."
        )
    for name in site.qos_max_submit:
        if name not in site.qos:
            text = f"'{name}' is not in `qos` of this site.{did_you_mean(name, site.qos)}"
            mistakes.add(tree.at(("qos_max_submit", name)), text, "unknown_name")
    for path, mistake in lane_mistakes(site):
        mistakes.add(tree.at(path.split(".")), mistake)
    if isinstance(site.pinning, Pinning):
        _check_pinning(tree.value["pinning"], site.pinning, mistakes)
    if wrong := misplaced(site.carrier, site.carrier_address):
        mistakes.add(tree.value.get("carrier_address") or tree.value["carrier"], wrong)
    for need in tree.value["needs"].value if site.needs else ():
        if need.value not in ("partition", "account", "qos"):
            mistakes.add(need, f"{need.shown} is none of partition, account, qos.", "not_a_choice")
