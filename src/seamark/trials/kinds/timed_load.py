"""Kind of trial that is one load: measured once, and again after a failure if retries are allowed.

A finite load that was killed or interrupted goes on with the items that are left.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seamark.config.secrets import secrets_of
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError, LoadJob
from seamark.load.workers.assignment import FILES
from seamark.model.failure_categories import ALL_FAILED, can_pass
from seamark.model.harness import ROOT, harness_of
from seamark.model.plurals import counted
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Trial
from seamark.platform.process_tree import PROGRAM, kill_with_mark
from seamark.services.runtimes.environments import damage_hint, prepare_environment
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder
from seamark.storage.redaction import hidden
from seamark.telemetry import provenance
from seamark.telemetry.energy import idle_power_w
from seamark.telemetry.process import listener, used_by_others
from seamark.trials.address import answer_by_hand
from seamark.trials.caches import reset_caches
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.failure_lines import BY_HAND, SERVER_SAYS
from seamark.trials.measure import LoadFailure, MeasuredLoad, failure_of, measure
from seamark.trials.repeated_failures import (
    NOT_TRIED,
    OF_DATA,
    UNCOUNTED,
    counted_of,
    note_death,
    note_life,
    run_of,
    why_not_tried,
)
from seamark.trials.server_start import living_endpoint
from seamark.trials.trial_files import put_aside
from seamark.trials.trial_record import finish, keep_samples, not_kept, record_of, write_config

if TYPE_CHECKING:
    from seamark.trials.sessions import RecordedSessions  # imports numpy


Attempt = Callable[[DeploymentContext, Trial, int, int], LoadRecord]
"""Measures a trial once and writes its load.json; its numbers are those of the attempt and of the run's process."""


def measure_trial(context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Measure a trial and write its load.json, whatever the outcome. The caller holds the lock of the node."""
    load = measured_with_retries(context, trial, parent_pid, max_retries, _attempt)
    if load is not None:
        count_failures(context, trial, load)


def measured_with_retries(
    context: DeploymentContext, trial: Trial, parent_pid: int, max_retries: int, attempt_once: Attempt
) -> LoadRecord | None:
    """Measure a trial, again after a failure if retries are allowed, and write its load.json; return that, None for a
    trial that was not tried.

    Files of an earlier measurement move to `attempts` first: no raw sample is ever overwritten.
    """
    folder = context.results.trial(trial.id)
    if why := context.withdrawn():
        raise SystemExit(why)
    shutil.rmtree(folder.parts, ignore_errors=True)
    put_aside(folder)
    run = run_of(os.environ)
    counted = dict.fromkeys(counted_of(party.service, party.settings) for party in trial.measured)
    if why := next(
        (why for subject in counted if (why := why_not_tried(context.results, subject, run, trial.deployment))), None
    ):
        failure = LoadFailure(category=NOT_TRIED, reason=why)
        for node in reversed(trial.tree):  # the whole last
            _leave_out(context, node, failure)
        return None
    for attempt in range(1, max_retries + 2):
        write_config(context, trial)
        load = attempt_once(context, trial, attempt, parent_pid)
        if load.ok or attempt > max_retries or not can_pass(load.category, context.service.failures):
            break
        if not context.endpoint().ok:  # its server did not come up, and no attempt starts one
            break
        put_aside(folder)
        _pause(context, 2 ** (attempt - 1), parent_pid)
    return load


def _leave_out(context: DeploymentContext, trial: Trial, failure: LoadFailure) -> None:
    """Write the load.json of a trial, or of a party, that is not tried."""
    own = context.of(context.study, context.scenario, trial.deployment)
    write_config(own, trial)
    write(own.results.trial(trial.id).load, replace(record_of(own, trial, failure), attempt=0))


def _attempt(context: DeploymentContext, trial: Trial, attempt: int, parent_pid: int) -> LoadRecord:
    """Measure once. A failure is a result, not an exception."""
    before, started_at, folder = provenance.survey(), provenance.now(), context.results.trial(trial.id)
    endpoint, restarted, others = Endpoint(), None, None
    sessions, parts = _begin_session(context, trial, folder)
    ended: MeasuredLoad | LoadFailure
    try:
        endpoint, restarted = living_endpoint(context, trial, parent_pid)
        if endpoint.ok:
            end_strays(context, endpoint, trial)
            job = with_harness(context, trial, context.load_job(trial, endpoint))
            reset_caches(context.service, endpoint, job.settings)
            others = others_before([(context, trial, endpoint)])
            ended = measure(
                job if sessions is None else sessions.rest_of(job),
                parts,
                python=context.client_python(endpoint),
                launcher=context.launcher(parent_pid, endpoint),
                parent_pid=parent_pid,
                server=context,
                on_tick=context.on_tick(parent_pid),
                telemetry=True,
            )
        else:
            ended = LoadFailure.of(endpoint)
    except (LoadError, OSError, ValueError, UserError) as error:
        ended = failure_of(error, context)
        if isinstance(error, LoadError) and ended.category == "client_died" and endpoint.environment:
            hint = damage_hint(Path(endpoint.environment), ended.log_tail)
            ended = replace(ended, reason=ended.reason + hint)
    load = record_of(context, trial, ended, endpoint)
    idle_w = idle_power_w(context.folder.telemetry, endpoint.idle_unix_s)
    load = replace(
        load,
        attempt=attempt,
        started_at=started_at,
        server_restarted=restarted,
        others_before=others,
        energy=replace(load.energy, idle_w=idle_w),
    )
    end_strays(context, endpoint, trial)
    if isinstance(ended, MeasuredLoad):
        load = kept(folder, load, ended, job, parts, sessions)
    if sessions is None or not sessions.keep_for_next(load.category, parts):
        shutil.rmtree(folder.sessions, ignore_errors=True)
    return finish(context, trial, load, before, endpoint)


ANSWERED = ("protocol", "client_error", "server_error", "wrong_reply", "empty_reply")
"""Failures of requests that a server has answered."""
HARNESS_START_S = 300.0
"""Longest time that another tool may take beside the load, to import its libraries and to make its prompts."""
FEW_READINGS = 4
"""Readings of telemetry that a load has to be long enough for: one may lie outside of its window."""
WATCH_S = 0.3


def others_before(loads: Iterable[tuple[DeploymentContext, Trial, Endpoint]]) -> float | None:
    """Return what others use of this machine's processors now, before loads of which one may be too short for
    telemetry to tell, or has a server whose process is not known; else None."""
    needed, own = False, [os.getpid()]
    for context, trial, endpoint in loads:
        load, served = trial.load, endpoint.server_pid
        short = load.finite or load.requests is not None
        short = short or load.duration_s < FEW_READINGS * context.site.telemetry_interval_s
        if not context.site.starts_servers:
            served = listener(endpoint.host, endpoint.ports.values())
            short = short or served is None
        needed = needed or short
        own += [pid for pid in (served, endpoint.keeper_pid) if pid is not None]
    return used_by_others(WATCH_S, own) if needed else None


def _begin_session(
    context: DeploymentContext, trial: Trial, folder: TrialFolder
) -> tuple["RecordedSessions | None", Path]:
    """Return the earlier sessions of a finite load, None for another load; and the folder of the workers' files."""
    if context.service.load != "finite":
        return None, folder.own_parts
    from seamark.trials.sessions import RecordedSessions

    folder.own_parts.mkdir(parents=True)  # the trial is at work
    sessions = RecordedSessions.of(folder, trial, context.server, independent=context.service.judge is not None)
    return sessions, sessions.begin()


def with_harness(context: DeploymentContext, trial: Trial, job: LoadJob) -> LoadJob:
    """Return a trial's load as sent by the tool of its setting `harness`, from that tool's environment; as it is
    without one. Raises UserError for an environment that cannot be made."""
    tool = harness_of(trial.settings)
    if tool is None:
        return job
    root = None
    if tool.environment is not None:
        root = str(prepare_environment(tool.environment, context.study.locks, context.study.environments))
    limit_s = HARNESS_START_S + trial.load.length_s + trial.load.timeout_s
    settings = {**job.settings, ROOT: root, "limit_s": limit_s}
    return replace(job, driver=tool.driver, workers="threads", kind="program", settings=settings, preload=())


def end_strays(context: DeploymentContext, endpoint: Endpoint, trial: Trial) -> None:
    """End what has escaped from a program whose worker was killed, so that it does not run beside the next one."""
    is_program = context.service.load == "program" or harness_of(trial.settings) is not None
    if is_program and endpoint.data:
        kill_with_mark(f"{PROGRAM}={endpoint.data}")


def kept(
    folder: TrialFolder,
    load: LoadRecord,
    measured: MeasuredLoad,
    job: LoadJob,
    parts: Path,
    sessions: "RecordedSessions | None" = None,
) -> LoadRecord:
    """Keep the samples of a load, and the files of a program; return its record with their facts. A file that cannot
    be written fails the load."""
    try:
        if (parts / FILES).is_dir():
            _take_log(parts / FILES / folder.log.name, folder, load.trial_id)
            shutil.rmtree(folder.files, ignore_errors=True)
            shutil.move(parts / FILES, folder.files)
        made = None if sessions is None else sessions.with_outcome(measured.outcome, parts)
        load = without_replies(keep_samples(folder, measured.outcome, load, made), measured, job)
        return hidden(load, secrets_of(job.settings))
    except OSError as error:
        return not_kept(load, error)


def _take_log(own: Path, folder: TrialFolder, trial_id: str | None) -> None:
    """Move the lines of a driver's log into that of the trial."""
    if own.is_file():
        about = {"trial_id": trial_id}
        lines = [json.dumps(json.loads(line) | about) for line in own.read_text(encoding="utf-8").splitlines()]
        with folder.log.open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)
        own.unlink()


def without_replies(load: LoadRecord, measured: MeasuredLoad, job: LoadJob) -> LoadRecord:
    """Return the record as that of a failed load if no request succeeded, with the server's own words."""
    if not load.ok or load.rows != sum(load.failures.values()):
        return load
    worst = load.worst_failure or "none"
    reason = f"none of {counted(load.rows or 0, 'request')} succeeded; most failed with '{worst}'"
    said = load.most_errors(worst)
    if worst in ANSWERED and ": " not in (said or "") and (answer := answer_by_hand(job)):
        reason += f"{BY_HAND}{answer}"
    elif said:
        reason += f"{SERVER_SAYS}{said}"
    return replace(load, status="failed", category=ALL_FAILED, reason=reason, log_tail=measured.outcome.log_tail)


def _pause(context: DeploymentContext, seconds: float, parent_pid: int) -> None:
    """Wait before another attempt, renewing the server's lease."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not context.abandoned(parent_pid):
        time.sleep(0.2)


def count_failures(context: DeploymentContext, trial: Trial, load: LoadRecord) -> None:
    """Record that a load has sent requests, or how it ended before the first although its server was healthy."""
    counted = counted_of(context.service.name, context.deployment.settings)
    if load.ok or load.sent:
        note_life(context.results, counted)
    elif load.category not in (*UNCOUNTED, *OF_DATA) and context.endpoint().ok:
        note_death(
            context.results,
            counted,
            run_of(os.environ),
            kind="trial",
            name=trial.id,
            said=f"{load.category}: {load.reason}",
            tail=load.log_tail,
        )
