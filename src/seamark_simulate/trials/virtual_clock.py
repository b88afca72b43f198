"""Kind of trial on a virtual clock: a program that needs no server and no machine to itself, such as a simulation."""

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError
from seamark.load.coordinator.local_launcher import LocalLauncher
from seamark.load.workers.assignment import FILES
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Trial
from seamark.platform.process_tree import exit_on_signals
from seamark.services.runtimes.environments import environment_folder
from seamark.storage.paths import TrialFolder
from seamark.telemetry import provenance
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.measure import LoadFailure, MeasuredLoad, failure_of, measure
from seamark.trials.trial_files import put_aside
from seamark.trials.trial_record import finish, keep_samples, not_kept, record_of, write_config

DATA = "data"
"""Folder of a simulation's own data among its parts, which are removed with them, or by the next one after a kill."""


def measure_trial(context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Run a simulation and write its load.json, whatever the outcome; samples.json last, where it went well.

    The files of an earlier one move to `attempts` first. A simulation that failed would fail again, so it has no
    retries, however many there may be.
    """
    folder = context.results.trial(trial.id)
    shutil.rmtree(folder.parts, ignore_errors=True)
    put_aside(folder)
    write_config(context, trial)
    data = folder.own_parts / DATA
    data.mkdir(parents=True)
    with exit_on_signals(signal.SIGTERM):
        _run(context, trial, folder, Endpoint(data=str(data), environment=_environment(context)), parent_pid)


def _environment(context: DeploymentContext) -> str | None:
    """Return the folder of the service's environment, None for the base environment."""
    name = context.service.environment
    return None if name is None else str(environment_folder(name, context.study.locks, context.study.environments))


def _run(context: DeploymentContext, trial: Trial, folder: TrialFolder, endpoint: Endpoint, parent_pid: int) -> None:
    before, started_at = provenance.survey(), provenance.now()
    ended: MeasuredLoad | LoadFailure
    try:
        ended = measure(
            context.load_job(trial, endpoint),
            folder.own_parts,
            python=context.client_python(endpoint),
            parent_pid=parent_pid,
            launcher=LocalLauncher(parent_pid),
            on_tick=lambda: (
                None if os.getppid() == parent_pid else "interrupted: the run of this simulation has gone"
            ),
        )
    except (LoadError, OSError, ValueError, UserError) as error:
        ended = failure_of(error)
    load = replace(record_of(context, trial, ended, endpoint), started_at=started_at, attempt=1)
    try:
        if isinstance(ended, MeasuredLoad):
            load = _kept(folder, ended, load)
    except OSError as error:
        load = not_kept(load, error)
    finish(context, trial, load, before, endpoint, "simulation")


def _kept(folder: TrialFolder, measured: MeasuredLoad, load: LoadRecord) -> LoadRecord:
    """Keep samples, events, executions and files. Its time axis has no place in real time, and so no telemetry."""
    from seamark.analysis.metrics.samples import open_samples

    executions = TrialFolder(root=folder.own_parts / FILES).executions
    if executions.exists():
        load = replace(load, executions_bytes=executions.stat().st_size)
        executions.replace(folder.executions)
    files: Path = folder.own_parts / FILES
    if files.is_dir() and any(files.iterdir()):
        shutil.rmtree(folder.files, ignore_errors=True)
        shutil.move(files, folder.files)
    measured.outcome.client_csv.unlink(missing_ok=True)
    load = keep_samples(folder, measured.outcome, replace(load, epoch_unix_ns=None))
    load = replace(load, duration_s=(open_samples(folder.samples).latest_ns or 0) / 1e9)
    if load.ok and not load.rows:
        return replace(load, status="failed", category="no_samples", reason="the simulation recorded no sample")
    return load
