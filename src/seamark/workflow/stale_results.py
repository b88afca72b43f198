"""Stale results of killed runs, other versions and other servers: put away before a run begins."""

import os
from pathlib import Path

from seamark.errors import UserError
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.deployment_record import DeploymentRecord, Environment
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.summary import Summary
from seamark.model.results.trial_metrics import Histograms, TrialMetrics
from seamark.model.server_identity import belongs
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.supervisor.deployment import sweep as sweep_servers
from seamark.storage.documents import is_damaged, put_away, read, read_or_none
from seamark.storage.paths import TrialFolder
from seamark.trials.conflicts import CommitMarks, conflicts, refusal
from seamark.trials.trial_files import put_aside, stands


def sweep(study: Study, marks: CommitMarks) -> None:
    """Put away stale endpoints, records of trials without samples, failures on another server, unreadable files,
    metrics of an older version, and scores against another answer key.

    Raises UserError, before any change, when trials were measured on another server or in another configuration than
    planned.
    """
    if found := conflicts(study, marks):
        raise UserError(*refusal(study, found))
    sweep_servers(study.results)
    for record in study.results.glob(".environments/*.json"):
        if not _is_made(record):
            put_away(record)
    folder = study.folder(study.scenario.name)
    for trial in study.plan.trials:
        _sweep_trial(folder.trial(trial.id), trial, marks)
    for deployment in study.plan.deployments:
        own = folder.deployment(deployment.id)
        _sweep_folder(own.root)
        _sweep_damaged(own.record, DeploymentRecord)
    _sweep_damaged(folder.summary, Summary)
    # a plan.json of another plan, as `bench plan` or an older run leaves it, is written again: without one Snakemake
    # would publish every trial again; last, because foreign files in place of a trial's folder are gone now
    if folder.plan.exists():
        study.refresh_plan(study.scenario.name)


def _sweep_trial(folder: TrialFolder, trial: Trial, marks: CommitMarks) -> None:
    """Put away the files of a trial that have to be made again: a load.json that is no result, unreadable figures.
    A failure on another server is kept as an attempt."""
    _sweep_folder(folder.root)
    load = _load_of(folder)
    if load is not None and not stands(folder, load, marks.of(trial)):
        put_away(folder.load)
        put_away(folder.metrics)
    elif load is not None and not load.ok and not belongs(load, trial.config_hash, marks.server(trial)):
        put_aside(folder, probes=True)
    elif is_damaged(folder.metrics, TrialMetrics) or (
        is_damaged(folder.histogram, Histograms) and folder.samples.exists()
    ):
        put_away(folder.metrics)
    elif any(_lacks_figures(folder.party(str(party.party))) for party in trial.parties):
        folder.metrics.unlink(missing_ok=True)
    elif folder.metrics.exists() and any(_can_be_newer(party_folder) for party_folder, _ in folder.measured(trial)):
        folder.metrics.unlink()
    if any(_is_of_another_key(party_folder, party) for party_folder, party in folder.measured(trial)):
        folder.metrics.unlink(missing_ok=True)
        folder.answers_record.unlink(missing_ok=True)


def _lacks_figures(party: TrialFolder) -> bool:
    """Return whether a party of a measured trial has no readable figures; those of the whole are made with them."""
    damaged = is_damaged(party.metrics, TrialMetrics) or is_damaged(party.histogram, Histograms)
    return party.load.exists() and (damaged or not party.metrics.exists())


def _can_be_newer(folder: TrialFolder) -> bool:
    from seamark.trials.derive_trial import can_be_newer  # imports numpy, which a first run does not need

    return can_be_newer(folder)


def _is_of_another_key(folder: TrialFolder, trial: Trial) -> bool:
    """Return whether kept replies of a trial were scored against other references than those of today."""
    from seamark.trials.judge import key_has_changed  # imports pyarrow, which a first run does not need

    record = read_or_none(folder.answers_record, AnswersRecord) if folder.replies.exists() else None
    return record is not None and key_has_changed(trial.settings, folder, record)


def _is_made(record: Path) -> bool:
    """Return whether the environment of a record exists; a damaged record has none."""
    try:
        return Path(read(record, Environment).root).is_dir()
    except (ValueError, OSError):
        return False


def _load_of(folder: TrialFolder) -> LoadRecord | None:
    """Return load.json, None without one; a damaged one as a good load without samples."""
    try:
        return read(folder.load, LoadRecord)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return LoadRecord(status="ok")


def _sweep_folder(folder: Path) -> None:
    """Put away a file that lies in the place of a folder."""
    if os.path.lexists(folder) and not folder.is_dir():
        put_away(folder)


def _sweep_damaged(path: Path, noun: type) -> None:
    """Put away an unreadable document, so that it is made again."""
    if is_damaged(path, noun):
        put_away(path)
