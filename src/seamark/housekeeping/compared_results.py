"""Results that are compared: named by scenario, file or folder, and read trial by trial. Measures nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median

from seamark.analysis.comparison.compared import UNITS_DIFFER, Question, compared
from seamark.analysis.comparison.contrasts import primaries, sorted_levels
from seamark.analysis.comparison.factors import compared_factors
from seamark.analysis.comparison.matched import Source, matched
from seamark.analysis.comparison.metric_names import table_paths
from seamark.analysis.comparison.observations import Observation, observation
from seamark.analysis.comparison.two_results import ASSUMED_SD, FEWEST_RESULTS, TwoResults, spread_of
from seamark.analysis.summary.repetitions import compared as compared_repetitions
from seamark.analysis.trial_view import TrialView
from seamark.config.forms.table import is_structured, label_of
from seamark.errors import UserError, did_you_mean
from seamark.history.index import Index, open_index
from seamark.history.series import series_of
from seamark.history.trial_row import machine_of
from seamark.model.plurals import counted
from seamark.model.results.comparison import Compared, Comparisons, Difference
from seamark.model.results.trial_meta import Machine, TrialMeta
from seamark.model.scenario import Comparing
from seamark.model.service import Quality, Value
from seamark.model.trial import Plan, levels_of
from seamark.planning.study import Study, results_of, scenario_files, scenarios_named
from seamark.storage.documents import read, replacing
from seamark.storage.paths import ScenarioFolder
from seamark.trials.derive_trial import derive_trial

CHANGED = ("comparison", "metric", "id", "cluster", "base_score", "new_score", "base_answer", "new_answer")


@dataclass(frozen=True, kw_only=True)
class ComparedResults(Source):
    """Results of one scenario: their name on the command line, their plan and their folder."""

    folder: ScenarioFolder
    qualities: Mapping[str, Quality] = field(default_factory=dict)

    @property
    def declared(self) -> Mapping[str, Quality]:
        """The figures that recipes declare: those of the plan, or of the recipes as they are now."""
        return {**self.plan.qualities, **self.qualities}

    @cached_property
    def views(self) -> tuple[TrialView, ...]:
        """All planned trials."""
        return tuple(TrialView.of(trial, self.folder) for trial in self.plan.measured)

    @property
    def lacking(self) -> int:
        """The number of trials without metrics."""
        return sum(not view.folder.metrics.exists() for view in self.views)

    @property
    def notes(self) -> tuple[str, ...]:
        """How many trials have no result yet; nothing where all have one."""
        planned = len(self.views)
        text = f"{self.name}: {self.lacking} of {counted(planned, 'trial')} not measured yet, the others are compared"
        return (text,) if self.lacking else ()


def results_named(root: Path, name: str, site: str | None) -> ComparedResults:
    """Return the results that a word of the command line names: a scenario, its file, or a folder of results. Metrics
    of trials that a run measured and did not come to derive are derived.

    Raises UserError for what is none of them, and without a measured trial.
    """
    path = root / name
    if path.is_dir():
        found = _of_folder(name, path)
    elif path.is_file() or name.endswith((".yaml", ".yml")):
        found = _of_study(name, Study.at(root, scenario=name, site=site))
    else:
        found = _of_name(root, name, site)
    _derive_missing(found)
    if found.lacking == len(found.views):
        raise UserError(f"{name}: no trial of it is measured yet. `bench submit` measures them.")
    return found


def _derive_missing(results: ComparedResults) -> None:
    """Derive the metrics of trials that were measured and have none, as after a run that was stopped."""
    deployments = {deployment.id: deployment for deployment in results.plan.deployments}
    for trial in results.plan.trials:
        folder = results.folder.trial(trial.id)
        if folder.load.exists() and not folder.metrics.exists() and trial.deployment in deployments:
            with suppress(OSError):  # a folder that is not ours to write: the trial is counted as lacking
                derive_trial(results.folder, trial, deployments[trial.deployment])


def _of_folder(name: str, path: Path) -> ComparedResults:
    folder = ScenarioFolder(root=path)
    if not folder.plan.is_file():
        inner = sorted(plan.parent.name for plan in path.glob("*/plan.json"))
        hint = (
            f" It holds those of {', '.join(inner[:5])}: name one, such as {name.rstrip('/')}/{inner[0]}."
            if inner
            else ""
        )
        raise UserError(f"{name}: no results of a scenario, as there is no plan.json in it.{hint}")
    try:
        return ComparedResults(name=name.rstrip("/"), plan=read(folder.plan, Plan), folder=folder)
    except ValueError as damage:
        raise UserError(str(damage)) from None


def _of_study(name: str, study: Study) -> ComparedResults:
    services = {trial.service for trial in study.plan.measured}
    qualities = {key: quality for service in services for key, quality in study.services[service].qualities.items()}
    return ComparedResults(name=name, plan=study.plan, folder=study.folder(study.scenario.name), qualities=qualities)


def _of_name(root: Path, name: str, site: str | None) -> ComparedResults:
    results, files = results_of(root, "local" if site is None else site), scenarios_named(root)
    if name in files:
        return _of_study(name, Study.at(root, scenario=str(files[name]), site=site))
    if (results / name / "plan.json").is_file():
        return _of_folder(name, results / name)
    measured = sorted(plan.parent.name for plan in results.glob("*/plan.json"))
    known = list(dict.fromkeys((*dict(scenario_files(root)), *measured)))
    raise UserError(
        f"{name}: no scenario of that name in config/scenarios, no file and no folder of results."
        f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}."
    )


def baseline_of(plan: Plan, given: Sequence[str]) -> dict[str, Value]:
    """Return the baseline level of each factor in `LEVEL` or `FACTOR=LEVEL`. Raises UserError for an unknown factor
    or level, and for a level that several factors have."""
    factors: dict[str, list[Value]] = {}
    for levels in levels_of(plan).values():
        for name, level in levels.items():
            if level not in factors.setdefault(name, []):
                factors[name].append(level)
    found: dict[str, Value] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if equals and name not in factors:
            known = ", ".join(factors) or "none"
            raise UserError(f"--baseline {word}: no factor '{name}'.{did_you_mean(name, factors)} Factors: {known}.")
        text = text if equals else word
        having = [name for name, levels in factors.items() if any(_is(name, text, level) for level in levels)]
        names = [name] if equals else having
        if len(names) > 1:
            raise UserError(
                f"--baseline {word}: {' and '.join(names)} have this level. Write --baseline {names[0]}={word}."
            )
        if not names or names[0] not in having:
            every = [_shown(name, level) for name in (names or factors) for level in sorted_levels(factors[name])]
            known = ", ".join(every[:12]) or "none"
            raise UserError(f"--baseline {word}: no such level.{did_you_mean(text, every)} Levels: {known}.")
        [name] = names
        found[name] = next(level for level in factors[name] if _is(name, text, level))
    return found


def _is(factor: str, text: str, level: Value) -> bool:
    return text in (_shown(factor, level), str(level))


def _shown(factor: str, level: Value) -> str:
    if is_structured(factor) and level is not None:
        return label_of(factor, str(level))
    if isinstance(level, float) and level.is_integer():
        return f"{level:.0f}"
    return "default" if level is None else str(level).lower() if isinstance(level, bool) else str(level)


def comparing_of(
    plan: Plan,
    metrics: Sequence[str],
    margin: float | None,
    baseline: Mapping[str, Value],
    quality_margin: float | None = None,
) -> Comparing:
    """Return what a plan declares, with the options of the command line in its place; metrics that are named there
    are all of the family."""
    declared = plan.compare or Comparing()
    if metrics:
        factors = {name for levels in levels_of(plan).values() for name in levels}
        family = tuple(name for name in declared.family if name in factors)
        declared = replace(declared, metrics=tuple(metrics), family=family)
    return replace(
        declared,
        margin=declared.margin if margin is None else margin,
        quality_margin=declared.quality_margin if quality_margin is None else quality_margin,
        baseline={**declared.baseline, **baseline},
    )


def compare_levels(results: ComparedResults, comparing: Comparing, *, declared: bool = True) -> Comparisons:
    """Compare the levels of each factor of one scenario, whether the question was `declared` or not. Raises UserError
    where nothing varies."""
    seen = _observations(results, comparing)
    found = compared_factors(results.plan, seen, comparing, results.declared, where="--metric ", declared=declared)
    if found is None:
        raise UserError(
            f"{results.name}: nothing varies in it, so no levels can be compared. Give a setting several levels, or"
            f" name a second result: `bench compare {results.name} OTHER`."
        )
    return replace(found, notes=(*found.notes, *results.notes))


def compare_results(
    base: ComparedResults,
    new: ComparedResults,
    comparing: Comparing,
    history: Path | None = None,
    assumed_sd: float = ASSUMED_SD,
) -> Comparisons:
    """Compare the treatments that two results have in common. Raises UserError without any, and for other units.

    How far results differ by themselves is known from the results folder `history`, else assumed.
    """
    pairs = matched(base, new)
    factors = {name for side in (base, new) for levels in levels_of(side.plan).values() for name in levels}
    comparing = replace(comparing, family=tuple(name for name in comparing.family if name not in factors))
    seen = {f"base: {name}": observations for name, observations in _observations(base, comparing, "base").items()}
    seen |= {f"new: {name}": observations for name, observations in _observations(new, comparing, "new").items()}
    of_workloads = {**primaries(new.plan), **primaries(base.plan)}
    machines = [_machines(side) for side in (base, new)]
    with open_index(history) if history is not None and history.is_dir() else nullcontext() as index:
        if index is not None and history is not None:
            index.update({"present": history})
        earlier = partial(_earlier_values, index, base, new, frozenset().union(*machines))
        question = Question(
            contrasts=pairs.contrasts,
            comparing=comparing,
            primaries=of_workloads,
            apart=TwoResults(
                between=lambda record, path: spread_of(earlier(record, path), assumed_sd),
                can_alternate=machines[0] == machines[1],
            ),
            qualities={**new.declared, **base.declared},
            where="--metric ",
        )
        found = compared(question, seen)
    for record in found.judged:
        if record.reason and record.reason.startswith(UNITS_DIFFER):
            raise UserError(
                f"{base.name} and {new.name}: {record.metric}: {record.reason}. {(record.remedy or '').capitalize()}"
            )
    return replace(
        found,
        base=base.name,
        new=new.name,
        settings=pairs.settings,
        environment=environment_differences(_metas(base), _metas(new)),
        notes=(*pairs.notes, *base.notes, *new.notes),
    )


def _earlier_values(
    index: Index | None,
    base: ComparedResults,
    new: ComparedResults,
    machines: frozenset[str],
    record: Compared,
    path: str,
) -> list[float]:
    """Return the value of each result in the history beside the new one, on the machine of both; where they have
    several, that of each machine of the history. Nothing where there are too few."""
    sides = ((base.plan.scenario, record.base.treatment), (new.plan.scenario, record.new.treatment))
    judged = new.folder.root.resolve()
    for scenario, treatment in dict.fromkeys(sides):
        by_machine: dict[str, list[float]] = {}
        for series in () if index is None else series_of(index, (path,), scenario):
            runs = [run for run in series.runs if not run.lower_bound and Path(run.folder).resolve() != judged]
            if series.treatment == treatment:
                by_machine[series.machine] = [run.value for run in runs]
        values = [median(figures) for figures in by_machine.values() if figures]
        if len(machines) == 1:
            values = by_machine.get(next(iter(machines)), [])
        if len(values) >= FEWEST_RESULTS:
            return values
    return []


def _machines(results: ComparedResults) -> frozenset[str]:
    return frozenset(machine_of(view.meta or TrialMeta(), view.load) for view in results.views if view.load)


def _observations(results: ComparedResults, comparing: Comparing, source: str = "") -> dict[str, list[Observation]]:
    paths = table_paths((*comparing.metrics, *comparing.family, *comparing.costs))
    groups: dict[str, list[TrialView]] = {}
    for view in results.views:
        groups.setdefault(view.treatment, []).append(view)
    compared_views = ((treatment, compared_repetitions(views)) for treatment, views in groups.items())
    return {treatment: [observation(view, paths, source) for view in views] for treatment, views in compared_views}


def write_changed(path: Path, found: Comparisons, sides: tuple[ComparedResults, ComparedResults]) -> None:
    """Write the items that changed as a table, .parquet or .csv; `sides` are the results of baseline and other side.
    Raises UserError where no answers are compared, or the file cannot be written."""
    import pandas as pd

    from seamark.report.page.answers import changed_table

    if not any(comparison.answers for comparison in found.comparisons):
        raise UserError(f"--changed {path}: no answers are compared. Services with a `judge` have scored answers.")

    def trials(results: ComparedResults, treatment: str) -> list[TrialView]:
        return [view for view in results.views if view.treatment == treatment]

    base, new = sides
    rows = changed_table(found, partial(trials, base), partial(trials, new))
    frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(CHANGED))
    try:
        with replacing(path) as temporary:
            if path.suffix == ".parquet":
                frame.to_parquet(temporary)
            else:
                frame.to_csv(temporary, index=False)
    except OSError as error:
        raise UserError(f"--changed {path}: cannot be written: {error.strerror}.") from None


def _metas(results: ComparedResults) -> list[TrialMeta]:
    return [meta for view in results.views if (meta := view.meta) is not None]


def environment_differences(base: Iterable[TrialMeta], new: Iterable[TrialMeta]) -> tuple[Difference, ...]:
    """Return each fact whose values differ between the trials of two results; unknown ones count as no value."""
    one, other = _all_facts(base), _all_facts(new)
    return tuple(
        Difference(fact=fact, base=tuple(one.get(fact, ())), new=tuple(other.get(fact, ())))
        for fact in dict.fromkeys((*one, *other))
        if set(one.get(fact, ())) != set(other.get(fact, ()))
    )


def _all_facts(metas: Iterable[TrialMeta]) -> dict[str, dict[str, None]]:
    facts: dict[str, dict[str, None]] = {}
    for meta in metas:
        for fact, value in _facts(meta):
            if value not in (None, "", ()):
                facts.setdefault(fact, {})[str(value)] = None
    return facts


def _facts(meta: TrialMeta) -> Iterator[tuple[str, object]]:
    """Yield the facts of one trial that may change its speed, and those that say what was measured."""
    server, software = meta.server_identity, meta.software
    yield "site", server.site if server else None
    yield "machine", (server.machine if server else None) or meta.node
    yield "partition", meta.partition
    yield "runtime", meta.runtime
    yield "service version", meta.service_version
    yield "lock of the environment", software.lock_sha256 and software.lock_sha256[:12]
    images = server.image_digests if server else None
    for name, digest in (images or {}).items():
        yield f"image {name}", digest
    yield "container", meta.container_digest
    yield "container of the client", meta.client_container.digest if meta.client_container else None
    yield "server identity", server.digest and server.digest[:12] if server else None
    yield "Seamark", software.seamark
    yield "Python", software.python
    yield "commit of the study", software.git_commit or meta.git_commit
    yield (
        "uncommitted changes",
        {True: "yes", False: "no"}.get(bool(software.git_dirty)) if software.git_commit else None,
    )
    for node in meta.all_nodes().values():
        if node.machine is not None:
            yield from _machine(node.machine)


def _machine(machine: Machine) -> Iterator[tuple[str, object]]:
    yield "host", machine.hostname
    yield "CPU", machine.cpu_model or machine.cpu.model
    yield "CPUs", machine.cpus_logical
    yield "CPUs allowed", len(machine.cpus_allowed) or machine.cpu.allowed
    yield "microcode", machine.cpu.microcode
    yield "governor", machine.governor
    yield "turbo", machine.cpu.turbo
    yield "memory", f"{machine.memory_bytes / 2**30:.1f} GiB" if machine.memory_bytes else None
    yield "transparent huge pages", machine.transparent_hugepages
    yield "kernel", machine.kernel
    yield "operating system", machine.os
    yield "clock source", machine.clock.source
    yield "GPU driver", machine.gpu.driver
    yield "CUDA", machine.gpu.cuda
    names = [str(gpu.name) for gpu in machine.gpu.devices]
    yield "GPUs", ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    for gpu in machine.gpu.devices:
        yield "GPU power cap", f"{gpu.power_cap_w:g} W" if gpu.power_cap_w else None
