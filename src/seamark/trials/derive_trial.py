"""Derives telemetry and metrics of one trial from the files of its load: for Snakemake's rules, `bench collect` and
searches. Measures nothing."""

from pathlib import Path
from typing import Any

from seamark.analysis.metrics import is_older
from seamark.analysis.metrics.metric import marks_of, own_marks
from seamark.analysis.summary import write_metrics
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Deployment, Trial
from seamark.storage.paths import DeploymentFolder, ScenarioFolder, TrialFolder, read, read_json
from seamark.telemetry.cut import cut_telemetry
from seamark.trials.calibration import ceiling_of
from seamark.trials.search.record import found_trial


def derive_trial(scenario: ScenarioFolder, trial: Trial, deployment: Deployment) -> dict[str, Any]:
    """Write a trial's metrics, and its telemetry if missing or older than load.json; return metrics.json.

    A damaged load.json gives the metrics of a failed trial.
    """
    own = scenario.trial(trial.id)
    try:
        load = read(own.load, LoadRecord)
    except ValueError:
        load = LoadRecord(status="failed")
    if not _is_newer(own.telemetry, own.load):
        cut_telemetry(scenario.deployment(deployment.id).telemetry, own.client_telemetry, load, own)
    return write_metrics(
        found_trial(trial, load),
        own,
        deployment,
        client_is_server=load.in_client,
        ceiling=ceiling_of(scenario.root.parent, load),
    )


def derive_telemetry(trial: TrialFolder, deployment: DeploymentFolder) -> None:
    """Write the telemetry of one trial: the part of its deployment's, and of its own load's, during its load."""
    cut_telemetry(deployment.telemetry, trial.client_telemetry, read(trial.load, LoadRecord), trial)


def is_derived(folder: TrialFolder, trial: Trial) -> bool:
    """Return whether telemetry and metrics are newer than their sources, of this version, and judged by the trial's
    objectives."""
    newer = _is_newer(folder.telemetry, folder.load) and _is_newer(folder.metrics, folder.telemetry)
    return newer and _is_judged(folder, trial) and not can_be_newer(folder)


def can_be_newer(folder: TrialFolder) -> bool:
    """Return whether a trial's metrics are of an older version and can be derived again from its samples."""
    return folder.metrics.exists() and folder.samples.exists() and is_older_file(folder.metrics)


def is_older_file(path: Path) -> bool:
    """Return whether an older version of the metrics wrote a file; false for a damaged one."""
    try:
        return is_older(read_json(path))
    except ValueError:
        return False


def _is_newer(made: Path, source: Path) -> bool:
    return made.is_file() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns


def _is_judged(folder: TrialFolder, trial: Trial) -> bool:
    """Return whether metrics.json has the trial's current objectives and the user's own metrics and checks."""
    try:
        known = read_json(folder.metrics)
        judged = [(each["metric"], each["op"], each["limit"]) for each in known["slos"]]
    except (ValueError, KeyError, TypeError):
        return False
    if known.get("status") == "ok" and judged != [(slo.metric, slo.op, slo.limit) for slo in trial.slos]:
        return False
    return marks_of(known) == own_marks(trial)
