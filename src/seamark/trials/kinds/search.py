"""Kind of trial that searches the largest load that meets its objectives: probes are measured one after another on
one server, and the trial takes the samples of the best one.

All progress is in files, so an interrupted search resumes: its steps are computed again from the beginning, with the
verdicts of the existing probes.
"""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seamark.model.plurals import counted
from seamark.model.results.load_record import LoadRecord, Measurement, ProbeRecord, SamplesRecord, SearchOutcome
from seamark.model.results.search_record import Probe, ProbeResult, RunningProbe, SearchRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.server_identity import ServerRecord, belongs
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.storage.documents import read, read_or_none, replacing, write
from seamark.storage.paths import TrialFolder
from seamark.telemetry import provenance
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.derive_trial import derive_trial, is_derived
from seamark.trials.kinds import timed_load
from seamark.trials.measure import LoadFailure
from seamark.trials.search.largest_load import ProbeObservation, largest_load
from seamark.trials.search.observation import ends_search, observation_of, values_of
from seamark.trials.search.probe_trial import folder_name, probe_trial
from seamark.trials.search.steps import Verdict
from seamark.trials.trial_files import commit_mark, complete, put_aside
from seamark.trials.trial_record import publish, record_of, served_by, write_config, write_meta


def measure_trial(context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Search the largest load that meets the trial's objectives and write load.json, whatever the outcome. The caller
    holds the lock of the node. A finished probe is not measured again."""
    folder = context.results.trial(trial.id)
    before, started_at = provenance.survey(), provenance.now()
    shutil.rmtree(folder.parts, ignore_errors=True)
    if not goes_on(folder, trial, context.server):
        if why := context.withdrawn():
            raise SystemExit(why)
        put_aside(folder, probes=True)
    folder.own_parts.mkdir(parents=True)
    write_config(context, trial)
    load = _search(context, trial, folder, parent_pid, max_retries)
    load = replace(load, started_at=load.started_at or started_at)
    shutil.rmtree(folder.parts, ignore_errors=True)
    write_meta(context, trial, before)
    publish(context, trial, load, "search")


def _search(
    context: DeploymentContext, trial: Trial, folder: TrialFolder, parent_pid: int, max_retries: int
) -> LoadRecord:
    """Measure one probe after another until the search ends; return the record of its load."""
    search = trial.search
    assert search is not None
    probes = _Probes(context, trial, parent_pid, max_retries)
    try:
        load = trial.load
        found = largest_load(search, load.duration_s, probes.measure, probes.note, warmup_s=load.warmup_s)
    except _BrokenOffError as ended:
        return ended.load
    outcome = probes.end(found)
    return replace(_published(context, trial, folder, found, probes.record.probes), search=outcome)


class _BrokenOffError(Exception):
    """A search cannot continue: the end of its trial for load.json."""

    def __init__(self, load: LoadRecord) -> None:
        super().__init__(load.reason)
        self.load = load


class _Probes:
    """Measures the probes of a search, or takes existing ones, and writes search.json after each. Seconds that probes
    of an earlier run took count as spent."""

    def __init__(self, context: DeploymentContext, trial: Trial, parent_pid: int, max_retries: int) -> None:
        assert trial.search is not None
        search, folder = trial.search, context.results.trial(trial.id)
        earlier = read_or_none(folder.search, SearchRecord)
        self._context, self._trial, self._folder = context, trial, folder
        self._parent_pid, self._max_retries = parent_pid, max_retries
        self._took_s = {probe.folder: probe.spent_s for probe in earlier.probes} if earlier else {}
        self._begun = False
        self._last: tuple[LoadRecord, TrialMetrics, float] | None = None
        self.record = SearchRecord(
            schema_version=SCHEMA_VERSION,
            trial=trial.id,
            trial_id=trial.trial_id,
            config_hash=trial.config_hash,
            server_identity=served_by(context).brief(),
            setting=search.setting,
            from_level=search.level(search.from_level),
            to_level=search.level(search.to_level),
            within=search.within,
            confirm=search.confirm,
            slos=trial.slos,
            budget_s=search.budget_s,
        )

    def measure(self, probe: Probe) -> ProbeObservation:
        """Return the observation of a probe. Raises _BrokenOffError if its load failed in a way that would repeat."""
        context, trial = self._context, self._trial
        its = probe_trial(trial, probe, context.scenario)
        own = context.results.trial(its.id)
        began_s, known = time.monotonic(), finished(own, its, context.server)
        if not known:
            self._begin(probe)
            timed_load.measure_trial(context, its, self._parent_pid, max_retries=self._max_retries)
            load = read(own.load, LoadRecord)
            if ends_search(load):
                raise _BrokenOffError(record_of(context, trial, LoadFailure.of(load)))
        load, metrics = read(own.load, LoadRecord), _metrics(context, its, own)
        seen = observation_of(metrics, load, values_of(trial.slos, own, metrics))
        took_s = (load.warmup_s or 0.0) + (load.duration_s or 0.0) if known else time.monotonic() - began_s
        took_s = round(self._took_s.get(self._name(probe), took_s), 3)
        self._last = load, metrics, took_s
        return replace(seen, took_s=took_s)

    def note(self, probe: Probe, verdict: Verdict, why: str) -> None:
        """Record the verdict of the last probe. Raises _BrokenOffError if the run has ended."""
        assert self._last is not None
        load, metrics, took_s = self._last
        result = ProbeResult(
            **vars(probe),
            verdict=verdict,
            why=why,
            slos=metrics.slos,
            requests=metrics.counts.requests,
            achieved_rps=metrics.achieved_rps,
            over_saturated_at_s=load.over_saturated_at_s,
            trial_verdict=metrics.verdict,
            reasons=tuple(reason.code for reason in metrics.reasons),
            spent_s=took_s,
            folder=self._name(probe),
        )
        spent_s = round(self.record.spent_s + took_s, 3)
        self.record = replace(self.record, spent_s=spent_s, running=None, probes=(*self.record.probes, result))
        if self._begun:
            write(self._folder.search, self.record)
        if reason := self._context.abandoned(self._parent_pid):
            failure = LoadFailure(category="interrupted", reason=reason)
            raise _BrokenOffError(record_of(self._context, self._trial, failure))

    def end(self, found: SearchOutcome) -> SearchOutcome:
        """Record the result of the search; return the part that load.json and metrics.json keep."""
        self.record = replace(
            self.record,
            outcome=found.outcome,
            found=found.found,
            confirmed=found.confirmed,
            bracket=found.bracket,
            confidence=found.confidence,
            running=None,
        )
        write(self._folder.search, self.record)
        return replace(found, spent_s=self.record.spent_s, probes=len(self.record.probes))

    def _begin(self, probe: Probe) -> None:
        """Record the running probe. Nothing is written before the first: until then an earlier record is read."""
        self._begun = True
        number, folder = len(self.record.probes) + 1, folder_name(self._trial, probe)
        running = RunningProbe(probe=number, level=probe.level, folder=folder, at=provenance.now())
        self.record = replace(self.record, running=running)
        write(self._folder.search, self.record)

    def _name(self, probe: Probe) -> str:
        """Return the folder of a probe, relative to the trial's."""
        return f"{self._folder.probes.name}/{folder_name(self._trial, probe)}"


def goes_on(folder: TrialFolder, trial: Trial, server: ServerRecord) -> bool:
    """Whether search.json belongs to this search on this server, so that its probes are valid; also without one."""
    try:
        record = read(folder.search, Measurement)
    except (OSError, ValueError):
        return True
    return belongs(record, trial.config_hash, server)


def finished(folder: TrialFolder, trial: Trial, server: ServerRecord) -> bool:
    """Whether a probe was measured to its end, successfully or not, as this trial on this server."""
    try:
        load = read(folder.load, LoadRecord)
    except (OSError, ValueError):
        return False
    if load.ok:
        return complete(folder, commit_mark(folder), trial.config_hash, server)
    return load.config_hash is not None and belongs(load, trial.config_hash, server) and not ends_search(load)


def _metrics(context: DeploymentContext, trial: Trial, folder: TrialFolder) -> TrialMetrics:
    """Return a probe's metrics, made where it is missing or out of date."""
    return (
        read(folder.metrics, TrialMetrics)
        if is_derived(folder, trial)
        else derive_trial(context.results, trial, context.deployment)
    )


def _published(
    context: DeploymentContext, trial: Trial, folder: TrialFolder, found: SearchOutcome, made: Sequence[ProbeResult]
) -> LoadRecord:
    """Use the samples of the last probe at the found level for the trial; return its load's record, without the
    outcome of the search."""
    good = [probe for probe in made if probe.level == found.found and probe.verdict != "void"]
    if not good:
        return record_of(context, trial, _nothing(trial, found, made))
    best = good[-1]  # it was not selected for having passed
    its = probe_trial(trial, best, context.scenario)
    own = context.results.trial(its.id)
    for source, target in (
        (own.samples, folder.samples),
        (own.chunks, folder.chunks),
        (own.replies, folder.replies),
        (own.events, folder.events),
        (own.client_telemetry, folder.client_telemetry),
    ):
        _link(source, target)
    probe = ProbeRecord(
        folder=str(own.root.relative_to(folder.root)),
        level=best.level,
        times=best.times,
        config_hash=its.config_hash,
    )
    record = read(own.record, SamplesRecord)
    return replace(record, trial=trial.id, trial_id=trial.trial_id, config_hash=trial.config_hash, probe=probe)


def _nothing(trial: Trial, found: SearchOutcome, made: Sequence[ProbeResult]) -> LoadFailure:
    """Return why a search found no level."""
    search = trial.search
    assert search is not None
    setting, tried = search.setting, counted(len(made), "probe")
    lowest = min((probe.level for probe in made), default=search.from_level)
    if found.outcome == "budget_spent":
        why = f"the budget of {search.budget_s:g} s was spent before a {setting} met the objectives ({tried})"
        return LoadFailure(category="no_level_met_the_slo", reason=why)
    if found.outcome == "not_judged":
        why = f"at {setting} {lowest:g} no probe could tell whether objectives are met"
        return LoadFailure(category="no_probe_could_tell", reason=why)
    why = f"no {setting} down to {lowest:g} meets the objectives ({tried})"
    return LoadFailure(category="no_level_met_the_slo", reason=why)


def _link(source: Path, target: Path) -> None:
    """Place a file of a probe into the trial's folder, atomically, as a hard link if possible."""
    target.unlink(missing_ok=True)
    if not source.exists():
        return
    with replacing(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
