"""A study: the working folder with its scenarios, recipes, site and results. Source of all plans."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os.path import expandvars
from pathlib import Path
from typing import TypeVar

from seamark.config.lanes import unpacked, with_lanes
from seamark.config.read import Recipes, read_scenario, read_site
from seamark.datasets.files import Kind
from seamark.datasets.prepare import named_in, prepared
from seamark.dispatch.identity import allocation
from seamark.dispatch.order import ALL
from seamark.errors import Mistake, SiteError, UserError, did_you_mean
from seamark.model.harness import HARNESS, harness_of, harnesses_of
from seamark.model.parties import PARTIES
from seamark.model.scenario import Scenario
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Plan, Trial
from seamark.planning.plan import plan
from seamark.planning.plan_file import plans_of_trials, read_trial, write_trial, write_trials
from seamark.storage.documents import read, require_folder, write, write_text
from seamark.storage.paths import ScenarioFolder, expanded

SHIPPED = Path(__file__).parents[1] / "shipped"
DEFAULT_SCENARIO = "config/scenarios/quickstart.yaml"
VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
Noun = TypeVar("Noun")
SCENARIO_NAME = re.compile(r"^scenario:\s*['\"]?([^'\"#\s]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Contents of one working folder. `scenario_path` is the scenario of this run."""

    root: Path
    site_name: str
    scenario_path: Path
    scenario: Scenario
    services: Mapping[str, Service]
    part: Plan | None = None
    """The plan of one trial, see `of_trial`; None: everything is planned."""
    lanes: str = ""
    """Options of this run for the lanes and the order of its site: a JSON object of the arguments of `with_lanes`;
    empty: none."""

    @classmethod
    def at(
        cls,
        root: Path,
        *,
        scenario: str | None = None,
        site: str | None = None,
        lanes: str = "",
    ) -> "Study":
        """Read the study in `root` with a scenario, named as in `scenario_file`. Raises UserError with every mistake
        of the scenario, its recipes and its site; a recipe that it does not name is not read."""
        path = scenario_file(root, scenario)
        services = Recipes(config_folder(root, "services"))
        if path.is_absolute() and path.is_relative_to(root):
            path = path.relative_to(root)
        read = read_scenario(
            path if root == Path.cwd() else root / path,
            services,
            lambda named: site_of(root, site if site is not None else named or "local"),
            partial(config_folder, root),
        )
        name = site if site is not None else read.site or "local"
        known = _Known(services, external=not site_of(root, name).starts_servers)
        return cls(
            root=root, site_name=name, scenario_path=path, scenario=read, services=known, lanes=unpacked(lanes)
        )

    @classmethod
    def without_scenario(cls, root: Path, site: str | None) -> "Study":
        """The study in `root` for what concerns its site and not what is measured. Raises UserError."""
        name, none = "local" if site is None else site, Scenario(name="none", path=root, workloads=())
        site_of(root, name)
        recipes = Recipes(config_folder(root, "services"))
        return cls(root=root, site_name=name, scenario_path=root, scenario=none, services=recipes)

    @cached_property
    def site(self) -> Site:
        """The site of this run, with the order of its scenario. Raises UserError for wrong options of its lanes."""
        given = json.loads(self.lanes) if self.lanes else {}
        if self.scenario.order is not None:
            given.setdefault("order", self.scenario.order)
        return with_lanes(site_of(self.root, self.site_name), **given)

    @property
    def ordered(self) -> bool:
        """Whether this run keeps an order on a batch system too: `bench submit` names it, a target alone has none."""
        return "order" in json.loads(self.lanes or "{}") and self.site.order != ALL.name

    @cached_property
    def plan(self) -> Plan:
        """The plan of the scenario of this run."""
        return self.part or plan(self.scenario, self.services, self.site)

    def of_trial(self, scenario: str, trial_id: str, config_hash: str | None = None) -> "Study":
        """Return this study with the plan of one trial from its trial.json, so that a job does not plan all trials.

        A file that is missing, damaged or of another configuration is written again. Raises UserError if the plan has
        no such trial.
        """
        folder = self.folder(scenario).trial(trial_id)
        part = read_trial(folder, config_hash)
        if part is None or (part.scenario, part.trials[0].id) != (scenario, trial_id):
            [part] = plans_of_trials(self.plan_of(scenario), [self.trial(scenario, trial_id)])
            write_trial(part, folder)
        return replace(self, part=part)

    @cached_property
    def whole(self) -> "Study":
        """This study with the plan of all trials."""
        return replace(self, part=None) if self.part else self

    def write_plan(self, name: str) -> None:
        """Write a scenario's plan.json, and a copy of its file beside it."""
        folder, planned = self.folder(name), self.plan_of(name)
        write_text(folder.scenario, (self.root / planned.source).read_text(encoding="utf-8"))
        write(folder.plan, planned)

    def write_trials(self, name: str) -> None:
        """Write trial.json of every trial of a scenario, then its plan.json, which confirms that they belong to this
        plan."""
        write_trials(self.plan_of(name), self.folder(name))
        self.write_plan(name)

    def refresh_plan(self, name: str) -> None:
        """Write plan.json and every trial.json if plan.json is missing or outdated; else only the missing
        trial.json."""
        folder = self.folder(name)
        try:
            stands = read(folder.plan, Plan) == self.plan_of(name)
        except (OSError, ValueError):
            stands = False
        if not stands or not folder.scenario.exists():
            self.write_trials(name)
        else:
            write_trials(self.plan_of(name), folder, only_missing=True)

    @cached_property
    def _plans(self) -> dict[str, Plan]:
        return {}

    def plan_of(self, name: str) -> Plan:
        """Return the plan of the scenario of that name: that of this run, or one in config/scenarios."""
        if self.part is not None and name == self.part.scenario:
            return self.part
        if name == self.scenario.name:
            return self.plan
        if name not in self._plans:
            scenario = read_scenario(
                self._from_here(self._find(name)), self.services, self.site, partial(config_folder, self.root)
            )
            self._plans[name] = plan(scenario, self.services, self.site)
        return self._plans[name]

    def _from_here(self, path: Path) -> Path:
        """Name a file relative to the working folder if that is the study, so that a plan does not depend on the
        spelling."""
        return path.relative_to(self.root) if self.root == Path.cwd() and path.is_relative_to(self.root) else path

    def _find(self, name: str) -> Path:
        named = dict(scenario_files(self.root))
        if name not in named:
            raise UserError(
                f"{name}: no scenario of that name in config/scenarios. Known: {', '.join(sorted(named)) or 'none'}."
                f"{did_you_mean(name, named)} A scenario file elsewhere is named with `bench submit -c FILE`."
            )
        return named[name]

    @cached_property
    def results(self) -> Path:
        """Root of all results."""
        return expanded(self.site.paths.results, self.root)

    @cached_property
    def reports(self) -> Path:
        """Root of all reports."""
        return expanded(self.site.paths.reports, self.root)

    @cached_property
    def metrics(self) -> Path | None:
        """Root of the exported Prometheus files, if the site names one."""
        told = self.site.paths.metrics
        return expanded(told, self.root) if told else None

    @cached_property
    def environments(self) -> Path:
        """Root of the services' environments."""
        return expanded(self.site.paths.environments, self.root)

    @cached_property
    def data(self) -> Path:
        """Root of the data sets in the form that drivers read."""
        return expanded(self.site.paths.data, self.root)

    @cached_property
    def locks(self) -> Path:
        """The folder of the lock files."""
        return self.file("envs")

    def file(self, relative: str) -> Path:
        """Return the study's own copy of a shipped file or folder, else the package's."""
        own = self.root / relative
        return own if own.exists() else SHIPPED / relative

    def require_nodes(self) -> None:
        """Raise SiteError if a deployment needs several nodes and neither the site nor this process has a batch
        job."""
        wanted = max((deployment.nodes for deployment in self.plan.deployments), default=1)
        if wanted == 1 or not self.site.starts_servers or self.site.profile != Site.profile:
            return
        if allocation() is None:
            raise SiteError(
                f"{self.scenario_path}: {wanted} nodes are requested, and site '{self.site_name}' has one: it has no"
                f" batch system. Choose another site with --site, run within a batch job of {wanted} nodes, or set"
                " 'resources: {nodes: 1}'."
            )

    def require_variables(self) -> None:
        """Raise UserError if a path uses a variable that is not set, because a folder would be called `$NAME`."""
        lacking: dict[str, list[str]] = {}
        for label, path in self._told_paths():
            for name in VARIABLE.findall(expandvars(path)):
                lacking.setdefault(name, []).append(label)
        if lacking:
            raise UserError(
                *(
                    f"${name} is not set, but used: {', '.join(places)}. `export {name}=/a/folder/of/yours` first."
                    for name, places in sorted(lacking.items())
                )
            )

    def require_datasets(self) -> None:
        """Make the data sets of the plan in the form that drivers read, those that are not there yet, and not those
        of a `$NAME` that is not set. Raises UserError with file and place of each mistake in them."""
        mistakes: list[Mistake] = []
        for path, kind in self._datasets:
            if "$" in f"{self.data}{expandvars(path)}":
                continue
            try:
                prepared(path, self.data, kind)
            except UserError as error:
                mistakes += error.mistakes
        if mistakes:
            raise UserError(*mistakes)

    @cached_property
    def _datasets(self) -> Mapping[tuple[str, Kind], None]:
        """The data sets of the plan, and what each must have."""
        named = [named_in(self.services[trial.service], trial.settings) for trial in self.plan.measured]
        return dict.fromkeys(entry for sets in named for entry in sets.values())

    def _told_paths(self) -> Iterator[tuple[str, str]]:
        """Yield every path that site and scenario name, each with its place."""
        site, scenario = f"site '{self.site_name}'", str(self.scenario_path)
        images = {"base": self.site.images.base, "wheels": self.site.images.wheels}
        for group, paths in (("paths", vars(self.site.paths)), ("images", images)):
            yield from ((f"{group}.{name} of {site}", path) for name, path in paths.items() if path)
        artifacts = {"container": self.plan.container, "dataset": self.plan.dataset}
        yield from ((f"artifacts.{name} of {scenario}", path) for name, path in artifacts.items() if path)
        yield from ((f"dataset of {scenario}", path) for path, _ in self._datasets if path != self.plan.dataset)
        yield from ((f"binds of {scenario}", bind) for bind in self.plan.binds)
        named = dict.fromkeys(member.container for whole in self.plan.deployments for member in whole.members)
        yield from ((f"container of a party of {scenario}", path) for path in named if path)

    def require_environments(self) -> None:
        """Raise SiteError if a service of the plan cannot be started on this site, or a tool of a load not be run."""
        if self.site.in_images:
            if named := {str(trial.settings[HARNESS]) for trial in self.plan.measured if harness_of(trial.settings)}:
                text = f"loads of another tool ({', '.join(sorted(named))}) run on the machine itself, and site"
                why = "has containers instead. Choose another site with --site, or remove 'harness'."
                raise SiteError(f"{self.scenario_path}: {text} '{self.site_name}' {why}")
            return
        lacks = [name for name in harnesses_of(self.plan.measured) if not (self.locks / f"{name}.lock").is_file()]
        text = "there is no {0}.lock in envs/ for 'harness'. `sh envs/lock.sh {0}` makes it."
        lacking = [f"{self.scenario_path}: {text.format(tool)}" for tool in lacks]
        servers = {(deployment.service, deployment.external is not None) for deployment in self.plan.served}
        for name, elsewhere in sorted(servers):
            service = self.services[name]
            environment = service.load_lock(elsewhere=elsewhere)
            lock = self.locks / f"{environment}.lock"
            if environment is not None and not lock.is_file():
                why = service.not_run_here or f"there is no {lock.name} in envs/"
                lacking.append(
                    f"{self.scenario_path}: service '{name}' cannot run on site '{self.site_name}': {why.strip()}"
                    " Choose a site that runs containers with --site, or another service (`bench servers list`)."
                )
        if lacking:
            raise SiteError(*lacking)

    def require_drivers(self) -> None:
        """Raise UserError if a driver of the plan cannot be loaded, or reads a setting that its recipe lacks, for a
        server that cannot be reached or started, and for objectives that its service can never have."""
        from seamark.planning.driver_check import require_drivers
        from seamark.planning.external_servers import require_servers
        from seamark.planning.objective_check import require_objectives

        site_file = config_folder(self.root, "sites") / f"{self.site_name}.yaml"
        require_servers(self.plan, self.services, self.site, site_file, self.scenario.lines)
        require_drivers(self.plan, self.services, config_folder(self.root, "services"), self.scenario.lines)
        require_objectives(self.scenario, self.plan, self.services)

    def folder(self, scenario: str) -> ScenarioFolder:
        """Return the results folder of a scenario."""
        return ScenarioFolder(root=self.results / scenario)

    def deployment(self, scenario: str, deployment_id: str) -> Deployment:
        """Return one deployment of a scenario. Raises UserError if the plan has none of that id."""
        return _planned("deployment", deployment_id, scenario, self.plan_of(scenario).starts)

    def trial(self, scenario: str, trial_id: str) -> Trial:
        """Return one trial of a scenario, or one party of a trial. Raises UserError if the plan has none of that
        id."""
        return _planned("trial", trial_id, scenario, self.plan_of(scenario).with_folder)

    def trials_of(self, scenario: str, deployment_id: str) -> tuple[Trial, ...]:
        """Return the trials of one deployment, or the parties of one member, in the order of their positions."""
        return self.plan_of(scenario).of_starts.get(deployment_id, ())


class _Known(Mapping[str, Service]):
    """The recipes, and the service that stands for several parties, which has none and is in no listing.

    Beside an `external` server nothing is installed for a service whose loads need nothing of its environment.
    """

    def __init__(self, recipes: Mapping[str, Service], *, external: bool) -> None:
        self._recipes, self._external = recipes, external

    def __getitem__(self, name: str) -> Service:
        if name == PARTIES.name and name not in self._recipes:
            return PARTIES
        service = self._recipes[name]
        lock = service.load_lock(elsewhere=self._external)
        return service if lock == service.environment else replace(service, environment=lock)

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes)

    def __len__(self) -> int:
        return len(self._recipes)


def scenario_file(root: Path, word: str | None) -> Path:
    """Return the file of the scenario that a word names: its file, or its name in config/scenarios of the study.

    Without a word it is the example of Seamark's own repository. Raises UserError elsewhere, for a name that no
    scenario has, and without a study.
    """
    if word is None and (root / "config").resolve() == (SHIPPED / "config").resolve():
        word = DEFAULT_SCENARIO
    if word is not None and (root / word).is_file():
        return Path(word)
    require_study(root)
    named = scenarios_named(root)
    known = f" Known: {', '.join(sorted(dict(scenario_files(root)))) or 'none'}."
    if word is None:
        example = min(dict(scenario_files(root)), default="FILE")
        text = f"name a scenario: `-c {example}`; for `snakemake`, `--config scenario={example}`.{known}"
        raise UserError(Mistake(code="missing", path="--config", text=text))
    if not word.strip():
        raise UserError(
            Mistake(code="no_value", path="--config", text=f"is empty. Name a scenario or its file.{known}")
        )
    if "/" in word or word.endswith((".yaml", ".yml")):
        return Path(word)  # what is said of a file that is not there, is said where it is read
    if word not in named:
        text = f"no scenario of that name in config/scenarios, and no file.{did_you_mean(word, named)}{known}"
        raise UserError(Mistake(code="unknown_name", path=word, text=text))
    return named[word]


def require_study(root: Path) -> None:
    """Raise UserError in a folder that has neither `config` nor `results`."""
    if not (root / "config").is_dir() and not (root / "results").is_dir():
        text = "no study here. `bench init FOLDER` makes one; or change into the folder of yours."
        raise UserError(Mistake(code="no_study", file=str(root), text=text))


def results_of(root: Path, site: str) -> Path:
    """Return the root of all results of a study on a site, without reading a scenario. Raises UserError for a file
    there, and without a study."""
    require_study(root)
    results = expanded(site_of(root, site).paths.results, root)
    require_folder(results)
    return results


def config_folder(root: Path, kind: str) -> Path:
    """Return the study's own folder of services or sites, else the package's."""
    own = root / "config" / kind
    return own if own.is_dir() else SHIPPED / "config" / kind


def site_of(root: Path, name: str) -> Site:
    """Read a site by name. Raises UserError with the existing names."""
    folder = config_folder(root, "sites")
    path = folder / f"{name}.yaml"
    if not name.strip() or not path.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        if not name.strip():
            text = f"is empty. Name a file of config/sites. Known: {', '.join(known)}."
            raise UserError(Mistake(code="no_value", path="--site", text=text))
        text = (
            f"no such file in config/sites. Known: {', '.join(known)}.{did_you_mean(name, known)}"
            f" On a login node of Slurm, `bench init --site {name}` writes it."
        )
        raise UserError(Mistake(code="unknown_name", path=f"site '{name}'", text=text))
    return read_site(path)


def scenarios_named(root: Path) -> dict[str, Path]:
    """Return the files in config/scenarios by the names of their scenarios, and by their own without ending."""
    files = list(scenario_files(root))
    return {path.stem: path for _, path in files} | dict(files)


def scenario_name(root: Path, word: str) -> str:
    """Return the name of the scenario whose file a word is, else the word: results may outlive their scenario."""
    path = root / word if (root / word).is_file() else scenarios_named(root).get(word)
    match = SCENARIO_NAME.search(path.read_text(encoding="utf-8", errors="replace")) if path else None
    return match[1] if match else word


def scenario_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and file of every scenario in config/scenarios, reading only its name."""
    folder = root / "config" / "scenarios"
    for path in sorted((folder if folder.is_dir() else SHIPPED / "config" / "scenarios").glob("*.yaml")):
        if match := SCENARIO_NAME.search(path.read_text(encoding="utf-8", errors="replace")):
            yield match[1], path


def _planned(kind: str, name: str, scenario: str, known: Mapping[str, Noun]) -> Noun:
    if name not in known:
        raise UserError(
            f"{scenario}: no {kind} '{name}' in its plan.{did_you_mean(name, known)}"
            f" `bench plan -c FILE --json` lists all of them."
        )
    return known[name]
