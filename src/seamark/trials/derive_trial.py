"""Derives telemetry and metrics of one trial from the files of its load: for Snakemake's rules, `bench collect` and
searches. Measures nothing."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from seamark.analysis.metrics.metric import own_marks
from seamark.analysis.metrics.samples import open_samples
from seamark.analysis.metrics.table import VERSION
from seamark.analysis.summary import write_metrics, write_metrics_of_whole
from seamark.analysis.trial_view import SAMPLES_MISSING, is_older, read_histograms
from seamark.model.plugin import parts
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.trial import Deployment, Trial, whole_of
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import DeploymentFolder, ScenarioFolder, TrialFolder
from seamark.telemetry.cut import cut_telemetry
from seamark.trials.calibration import ceiling_of
from seamark.trials.search.probe_trial import found_trial
from seamark.trials.trial_files import commit_mark


def derive_trial(scenario: ScenarioFolder, trial: Trial, deployment: Deployment) -> TrialMetrics:
    """Write a trial's metrics, and its telemetry where that is missing or older than load.json; return the metrics.

    A damaged load.json gives the metrics of a failed trial. Of a trial with parties those of each party are written
    too: they have the figures.
    """
    members = {member.id: member for member in deployment.members}
    parties = {str(party.party): derive_trial(scenario, party, members[party.deployment]) for party in trial.parties}
    own = scenario.trial(trial.id)
    try:
        load = read(own.load, LoadRecord)
    except ValueError:
        load = LoadRecord(status="failed")
    if not _is_newer(own.telemetry, own.load):
        cut_telemetry(
            measured_on(scenario, load, deployment.id).telemetry,
            own.client_telemetry,
            load,
            own,
            _beside(scenario, trial, deployment),
        )
    if parties:
        return write_metrics_of_whole(trial, own, deployment, parties)
    return write_metrics(
        found_trial(trial, load),
        own,
        deployment,
        client_is_server=load.in_client,
        ceiling=ceiling_of(scenario.root.parent, load),
        schedule=None if load.executions_bytes is None else _schedule(own.executions),
    )


def _schedule(executions: Path) -> Callable[[], ScheduleMetrics] | None:
    """Return what derives the figures of executions; None without the plugin that wrote them."""
    return next((partial(figures, executions) for figures in parts("schedule")), None)


def _beside(scenario: ScenarioFolder, trial: Trial, deployment: Deployment) -> dict[str, list[Path]]:
    """Return the telemetry of the other members of a party's deployment, and of their loads."""
    if trial.party is None:
        return {}
    folder = scenario.trial(whole_of(trial.id))
    members = scenario.deployment(deployment.whole).members
    return {
        path.name: [DeploymentFolder(root=path).telemetry, folder.party(path.name).client_telemetry]
        for path in sorted(members.glob("*/"))
        if path.name != trial.party
    }


def measured_on(scenario: ScenarioFolder, load: LoadRecord, planned: str) -> DeploymentFolder:
    """Return the folder of the deployment that a load ran on: the plan may divide trials otherwise by now."""
    started = scenario.deployment((load.server_start or "").rpartition(" at ")[0] or planned)
    return started if started.telemetry.exists() else scenario.deployment(planned)


def derive_telemetry(scenario: ScenarioFolder, trial: TrialFolder, planned: str) -> None:
    """Write the telemetry of one trial: the part of its deployment's, and of its own load's, during its load."""
    load = read(trial.load, LoadRecord)
    cut_telemetry(measured_on(scenario, load, planned).telemetry, trial.client_telemetry, load, trial)


def is_derived(folder: TrialFolder, trial: Trial) -> bool:
    """Return whether telemetry and metrics are newer than their sources, of this version or without samples, and have
    the trial's current objectives and the user's own metrics and checks; and, of good ones, whether histograms and
    samples can be read. Samples that were pruned are not missed."""
    newer = _is_newer(folder.telemetry, folder.load) and _is_newer(folder.metrics, folder.telemetry)
    newer &= not folder.answers_record.exists() or _is_newer(folder.metrics, folder.answers_record)
    for party in trial.parties:
        newer = newer and is_derived(folder.party(str(party.party)), party)
    metrics = read_or_none(folder.metrics, TrialMetrics) if newer else None
    if metrics is None or (metrics.metrics_version < VERSION and folder.samples.exists()):
        return False
    if metrics.ok and not trial.parties and not _is_whole(folder, metrics):
        return False
    judged, planned = ([(slo.metric, slo.op, slo.limit) for slo in slos] for slos in (metrics.slos, trial.slos))
    return (judged == planned or not metrics.ok) and metrics.own_marks == own_marks(trial)


def _is_whole(folder: TrialFolder, metrics: TrialMetrics) -> bool:
    """Return whether the histograms and samples of good metrics can be read, or metrics say that samples are missing
    that are not there. Samples that were changed since are read again."""
    said = any(reason.code == SAMPLES_MISSING for reason in metrics.reasons)
    if not folder.samples.exists():
        return said or ((mark := commit_mark(folder)) is not None and mark.pruned_at is not None)
    try:
        read_histograms(folder)
        open_samples(folder.samples)
    except (OSError, ValueError):
        return False
    return not said and _is_newer(folder.metrics, folder.samples)


def can_be_newer(folder: TrialFolder) -> bool:
    """Return whether a trial's metrics are of an older version and can be derived again from its samples."""
    return folder.metrics.exists() and folder.samples.exists() and is_older(folder.metrics, TrialMetrics)


def _is_newer(made: Path, source: Path) -> bool:
    return made.is_file() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns
