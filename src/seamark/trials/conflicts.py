"""Conflicts: trials measured on another server or in another configuration than planned, named and put aside."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from seamark.config.yaml_source import value_of
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.results.load_record import Measurement, SamplesRecord
from seamark.model.server_identity import BRIEF, ServerRecord, belongs, differences, same_server
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.server_identity import server_identities
from seamark.storage.documents import read_or_none, regular
from seamark.storage.paths import TrialFolder
from seamark.trials.trial_files import commit_mark, complete, put_aside

MOST_DIFFERENCES = 4
OF_A_TRIAL = ("settings", "search", "slos")
"""Parts of a trial's configuration in effective_config.yaml."""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Trials of one other server or configuration. `differences` are those of the first one."""

    trials: tuple[str, ...]
    measured: str | None
    """Where they were measured; None if that was not recorded."""
    asked: str
    differences: tuple[str, ...]

    def text(self) -> str:
        """Return one sentence for a message."""
        what = f"{counted(len(self.trials), 'trial')} {'was' if len(self.trials) == 1 else 'were'} measured"
        shown = "; ".join(self.differences[:MOST_DIFFERENCES])
        more = len(self.differences) - MOST_DIFFERENCES
        shown = (f": {shown}" if shown else "") + (f"; and {more} more" if more > 0 else "")
        if self.measured is None or self.measured == self.asked:
            return f"{what} with another configuration{'' if self.measured is None else f' on {self.asked}'}{shown}."
        return f"{what} on {self.measured}; this run asks for {self.asked}{shown}."


class CommitMarks:
    """Commit marks of a scenario's trials, each read once."""

    def __init__(self, study: Study, scenario: str) -> None:
        self._folder = study.folder(scenario)
        self._servers = server_identities(study, scenario)
        self._marks: dict[str, SamplesRecord | None] = {}

    def of(self, trial: Trial) -> SamplesRecord | None:
        """Return a trial's mark, None where it has none."""
        if trial.id not in self._marks:
            self._marks[trial.id] = commit_mark(self._folder.trial(trial.id))
        return self._marks[trial.id]

    def server(self, trial: Trial) -> ServerRecord:
        """Return the server that a trial is planned for."""
        return self._servers[trial.deployment]

    def measured(self, trial: Trial) -> bool:
        """Return whether a trial was measured as planned, and its samples are complete or pruned."""
        return complete(self._folder.trial(trial.id), self.of(trial), trial.config_hash, self.server(trial))


def conflicts(study: Study, marks: CommitMarks | None = None, deployment: str | None = None) -> tuple[Conflict, ...]:
    """Return the trials of a study's plan, or of one deployment, that were measured in another way than planned.

    Equal ones come together. A commit mark without a server, of a version before server identities, counts as
    measured if its configuration is the trial's.
    """
    name = study.scenario.name
    marks = CommitMarks(study, name) if marks is None else marks
    groups: dict[tuple[object, ...], list[Trial]] = {}
    for trial in study.plan.trials if deployment is None else study.trials_of(name, deployment):
        mark = marks.of(trial) or _search_mark(study.folder(name).trial(trial.id), trial)
        if mark is not None and not belongs(mark, trial.config_hash, marks.server(trial)):
            known, changed = mark.server_identity, mark.config_hash != trial.config_hash
            key = (trial.service, known and known.digest, repr(known and (known.image_digests or {})), changed)
            groups.setdefault(key, []).append(trial)
    return tuple(_conflict(study, trials, marks.server(trials[0])) for trials in groups.values())


def require_no_conflicts(study: Study, besides: Sequence[str] = ()) -> None:
    """Raise UserError when there are conflicts, except for trials in `besides`."""
    found = [conflict for conflict in conflicts(study) if not set(conflict.trials) <= set(besides)]
    if found:
        raise UserError(*refusal(study, found))


def refusal(study: Study, found: Sequence[Conflict]) -> Iterator[str]:
    """Yield the lines that name conflicts, and how to keep both measurements or measure again."""
    folder, site = study.folder(study.scenario.name).root, study.site_name
    folder = folder.relative_to(study.root) if folder.is_relative_to(study.root) else folder
    paths = f"`paths: {{results: results-{site}, reports: reports-{site}}}` in config/sites/{site}.yaml"
    for conflict in found:
        yield f"{folder}: {conflict.text()}"
    yield (
        f"To keep both, submit a copy of {study.scenario_path} with another name at `scenario:`, or give the site"
        f" folders of its own: {paths}. To measure all trials anew beside the old ones, `bench keep` first sets the"
        " results aside (`bench history` shows both). To measure only these trials anew, `bench submit"
        " --measure-anew`: what is there goes to `attempts` of each trial."
    )


def put_conflicts_aside(study: Study, deployment: str | None = None) -> tuple[str, ...]:
    """Put the files of conflicting trials into `attempts`, so that they are measured again; return their ids."""
    folder = study.folder(study.scenario.name)
    names = [name for conflict in conflicts(study, deployment=deployment) for name in conflict.trials]
    for name in names:
        put_aside(folder.trial(name), probes=True)
    return tuple(names)


def _search_mark(folder: TrialFolder, trial: Trial) -> Measurement | None:
    """Return where the probes of a search without a result were measured; None for other trials."""
    return read_or_none(folder.search, Measurement) if trial.search else None


def _conflict(study: Study, trials: Sequence[Trial], server: ServerRecord) -> Conflict:
    first = trials[0]
    folder = study.folder(study.scenario.name).trial(first.id)
    mark = commit_mark(folder) or _search_mark(folder, first) or Measurement()
    known, meta = mark.server_identity, read_or_none(folder.meta, Measurement)
    whole = known if meta is None or meta.server_identity is None else meta.server_identity
    found = [] if whole is None or same_server(known, server) else _served_otherwise(whole, server)
    if mark.config_hash != first.config_hash:
        found += _configured_otherwise(folder, first)
    return Conflict(
        trials=tuple(trial.id for trial in trials),
        measured=None if known is None else known.place,
        asked=server.place,
        differences=tuple(found),
    )


def _served_otherwise(whole: ServerRecord, server: ServerRecord) -> list[str]:
    """Return the differences of two servers except their places. Recipes of two runtimes are not compared."""
    left_out = BRIEF if whole.runtime == server.runtime else (*BRIEF, "recipe")
    asked = server if whole.service is not None else server.brief()
    old, new = (
        {name: part for name, part in vars(record).items() if name not in left_out} for record in (whole, asked)
    )
    return differences(old, new)


def _configured_otherwise(folder: TrialFolder, trial: Trial) -> list[str]:
    """Return the settings of a trial that have changed since its effective_config.yaml."""
    try:
        document = value_of(regular(folder.config).read_text(encoding="utf-8"))
        old = {name: document["trial"].get(name) for name in OF_A_TRIAL}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    if not isinstance(old["settings"], Mapping):
        return []
    found = differences(dict(old["settings"]), dict(trial.settings))
    return found or ["what a file of its settings holds, or how trials are made, has changed (config_hash)"]


def pending_trials_of(study: Study, scenario: str, marks: CommitMarks) -> dict[str, list[Trial]]:
    """Return the trials to measure, by deployment, in the order of the plan. A failed trial is a result, and a
    simulation needs no lane."""
    folder = study.folder(scenario)
    pending: dict[str, list[Trial]] = {}
    for trial in study.plan_of(scenario).trials:
        if study.services[trial.service].virtual_clock or folder.trial(trial.id).load.exists():
            continue
        if not marks.measured(trial):
            pending.setdefault(trial.deployment, []).append(trial)
    return pending
