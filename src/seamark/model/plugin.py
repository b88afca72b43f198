"""A plugin: what a package adds to `bench`. Its parts are named `module:name`, and imported when they are used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.model.dotted import resolved

GROUP = "seamark.plugins"
"""Entry points that name a `Plugin` of a package."""
OWN = "seamark_"


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command `bench NAME`: its line in `bench --help`, and its click command."""

    summary: str
    command: str
    derives_figures: bool = False
    """Whether it needs the libraries that derive figures, and the memory that they take."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a package adds. Every part is optional.

    Parts of one kind are asked one after another, and one that has nothing to say returns None: see the Protocol or
    the function that each line names.
    """

    name: str
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    """Click commands of `bench export`, by name."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """`config.forms.form.Form` of each structured setting, by the setting's name."""
    config: str | None = None
    """`package/folder`, made like `config` of a study: recipes in `services`, presets in the folders of forms. A file
    of the study comes first."""
    study: str | None = None
    """`package/folder`, whose files `bench init` copies into a new study."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """`trials.kinds.table.TrialKind`, a module, that measures the trials of services with this `origin`."""
    items: str | None = None
    """`model.items.ItemSource`: the items that a trial asks."""
    check_plan: str | None = None
    """`(Study) -> planning.plan_checks.CheckedPlan`, before anything runs; it raises UserError for a plan that cannot
    run."""
    schedule: str | None = None
    """`(Path) -> ScheduleMetrics`: figures of the executions of a trial in executions.parquet."""
    page: str | None = None
    """`report.page.page_part.PagePart`: blocks of workloads and a section of a scenario's page."""
    headline: str | None = None
    """`(Comparisons, Sequence[SummaryRow]) -> Headline | None`: the answer of a declared comparison."""
    self_test: str | None = None
    """`(Study | None) -> trials.self_test.PluginTest`, for `bench doctor --self-test`."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Earlier names of modules and objects, by the names of today: identities of servers and trials keep them."""


def own_folders() -> tuple[Path, ...]:
    """Return the folders of Seamark's own plugins: they lie beside this package."""
    return tuple(sorted(path.parent for path in Path(__file__).parents[2].glob(f"{OWN}*/plugin.py")))


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return all plugins: Seamark's own ones, then those of installed packages. Raises SiteError for an entry point
    that names no Plugin."""
    own = [f"{folder.name}.plugin:PLUGIN" for folder in own_folders()]
    others = [entry.value for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)]
    try:
        return tuple(resolved(path, Plugin) for path in dict.fromkeys((*own, *others)))
    except ValueError as error:
        raise SiteError(f"a plugin of {GROUP}: {error}. Mend its package, or uninstall it.") from None


def config_folders(kind: str) -> list[Path]:
    """Return the folders `config/KIND` of plugins."""
    named = [folder / kind for plugin in plugins() if plugin.config for folder in _folders(plugin.config)]
    return [folder for folder in named if folder.is_dir()]


def study_folders() -> list[Path]:
    """Return the folders whose files plugins give to a new study."""
    return [folder for plugin in plugins() if plugin.study for folder in _folders(plugin.study)]


def _folders(path: str) -> list[Path]:
    """Return the folders of a `package/folder`."""
    package, _, inner = path.partition("/")
    spec = find_spec(package)
    return [Path(place) / inner for place in (spec.submodule_search_locations if spec else None) or ()]


def part(path: str) -> Any:
    """Return the object `module:name` of a plugin."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def parts(kind: str) -> tuple[Any, ...]:
    """Return the parts of one kind, a field of `Plugin` such as `page`, of all plugins that have one."""
    return tuple(part(path) for plugin in plugins() if (path := getattr(plugin, kind)))


def missing_plugin(path: str) -> str | None:
    """Return the plugin of Seamark's to which a dotted path belongs, if it is not here; None for every other path."""
    package = path.partition(".")[0]
    return package if package.startswith(OWN) and find_spec(package) is None else None


def known_as(name: str) -> str:
    """Return the earlier name of a module or an object of a plugin; the same name for all others."""
    return next((plugin.moved[name] for plugin in plugins() if name in plugin.moved), name)
