"""Progress of a scenario, from the files of its trials, also while a run is active."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from seamark.model.results.deployment_record import Waiting
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.search_record import SearchRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.server_identity import ServerRecord, belongs
from seamark.model.trial import Plan, Trial
from seamark.planning.study import Study
from seamark.services.server_identity import server_identities
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import ScenarioFolder
from seamark.trials.trial_files import commit_mark, complete

WAITING_STALE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class State:
    """State of one trial: planned, running, ok, failed, timeout, damaged or other, with the reason of a failure.

    `detail` is the present activity; `part` the share of a running search's budget that its finished probes took. A
    trial that is `other` was measured on another server or in another configuration than planned.
    """

    trial: str
    deployment: str
    state: str
    category: str | None = None
    reason: str | None = None
    detail: str | None = None
    part: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The states of all trials of a plan, in their order."""

    scenario: str
    states: tuple[State, ...]

    def count(self, *states: str) -> int:
        """Return the number of trials in one of `states`."""
        return sum(state.state in states for state in self.states)

    @property
    def failed(self) -> tuple[State, ...]:
        """Trials that were tried and have no valid measurement."""
        return tuple(state for state in self.states if state.state in ("failed", "timeout", "damaged"))

    @property
    def waiting(self) -> str | None:
        """Reason for which the next load waits, None while none waits."""
        return next((state.detail for state in self.states if state.state == "planned" and state.detail), None)

    @property
    def done(self) -> int:
        """Number of trials that have ended, well or not."""
        return self.count("ok") + len(self.failed)

    @property
    def part(self) -> float:
        """Completed share of the running trials, in trials, so that a search advances the whole."""
        return sum(state.part for state in self.states)

    def document(self) -> Mapping[str, object]:
        """Return what `bench status --json` and `bench submit --json` print of it."""
        return {
            "scenario": self.scenario,
            "trials": len(self.states),
            "ok": self.count("ok"),
            "failed": len(self.failed),
            "running": self.count("running"),
            "planned": self.count("planned"),
            "other": self.count("other"),
            "states": [vars(state) for state in self.states],
        }


Seen = dict[str, tuple[tuple[int, ...], State]]
"""The states of finished trials by id, each with the sizes and times of its source files."""


def progress(
    plan: Plan,
    folder: ScenarioFolder,
    servers: Mapping[str, ServerRecord] | None = None,
    seen: Seen | None = None,
) -> Progress:
    """Return the state of every trial of `plan`. With `servers` of its deployments, results on others are `other`,
    and failures on others are still planned. `seen` caches unchanged files between calls."""
    # of a run that is watched: Snakemake removes a load.json before the job that publishes what a lane has measured
    kept = {path.stem: path for path in folder.lanes.glob("*/loads/*.json")} if seen is not None else {}
    seen = {} if seen is None else seen
    waiting: dict[str, str | None] = {}
    states = []
    for trial in plan.trials:
        files = folder.trial(trial.id)
        server = (servers or {}).get(trial.deployment)
        source = files.load if files.load.exists() else kept.get(trial.id, files.load)
        # of a job that was lost: Snakemake removes every load.json, and the next run makes it again from this record
        if source == files.load and not source.exists():
            source = files.record if complete(files, commit_mark(files), trial.config_hash, server) else source
        if stamp := _stamp(source, files.metrics):
            if trial.id not in seen or seen[trial.id][0] != stamp:
                seen[trial.id] = stamp, _tried(trial, source, files.metrics, server)
            states.append(seen[trial.id][1])
            continue
        detail, part, state = None, 0.0, "running" if _at_work(files.parts) else "planned"
        if state == "running":
            detail, part = _probe(files.search) if trial.search else (None, 0.0)
        else:
            if trial.deployment not in waiting:
                waiting[trial.deployment] = _waiting(folder.deployment(trial.deployment).waiting)
            detail = waiting[trial.deployment]
        states.append(State(trial=trial.id, deployment=trial.deployment, state=state, detail=detail, part=part))
    return Progress(scenario=plan.scenario, states=tuple(states))


def progress_of(study: Study, seen: Seen | None = None) -> Progress:
    """Return the progress of a study's scenario on its planned servers."""
    name = study.scenario.name
    return progress(study.plan, study.folder(name), server_identities(study, name), seen)


def _stamp(*paths: Path) -> tuple[int, ...]:
    """Return sizes and times of load.json and metrics.json; empty without a load.json."""
    found: tuple[int, ...] = ()
    for path in paths:
        try:
            facts = path.stat()
        except OSError:
            return found
        found += (facts.st_ino, facts.st_size, facts.st_mtime_ns)
    return found


def _tried(trial: Trial, source: Path, derived: Path, server: ServerRecord | None) -> State:
    """Return the state of a trial that has a load.json, or a kept copy of it."""
    try:
        load = read(source, LoadRecord)
        status, category, reason = load.status, load.category, load.reason
        if not belongs(load, trial.config_hash, server):
            status, category, reason = "other" if load.ok else "planned", None, None
        elif load.ok and derived.exists():
            metrics = read(derived, TrialMetrics)
            status, category, reason = metrics.status, metrics.category, metrics.reason
    except ValueError as cause:
        status, category, reason = "damaged", "damaged", str(cause)
    return State(trial=trial.id, deployment=trial.deployment, state=status, category=category, reason=reason)


def _waiting(path: Path) -> str | None:
    """Return why a deployment's load waits, from the file that it rewrites every second while it waits."""
    waiting = read_or_none(path, Waiting)
    with suppress(OSError):
        if waiting and time.time() - path.stat().st_mtime <= WAITING_STALE_S:
            return f"waits for another load on its node: {waiting.holder}"
    return None


def _probe(search: Path) -> tuple[str | None, float]:
    """Return the probe of a search that is measured now, `probe 4, 120 requests/s, 18 of 45 s`, and that ratio of
    time."""
    record = read_or_none(search, SearchRecord)
    if record is None or not record.budget_s:
        return None, 0.0
    part, running = min(1.0, record.spent_s / record.budget_s), record.running
    if running is None:
        return None, part
    unit = "users" if record.setting == "concurrency" else "requests/s"
    time = f"{record.spent_s:.0f} of {record.budget_s:.0f} s"
    return f"probe {running.probe}, {running.level:g} {unit}, {time}", part


def _at_work(parts: Path) -> bool:
    """Return whether a process named in `parts` lives; a killed one leaves its folder for a while."""
    return any(path.name.isdigit() and psutil.pid_exists(int(path.name)) for path in parts.glob("*"))
