"""The life of a deployment: serve, warm up, measure each pending trial, tear down.

Snakemake's rules call the phases one by one; an exported job calls all, each in a process of its own.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from seamark.errors import UserError
from seamark.model.results.load_record import LoadRecord
from seamark.model.server_identity import ServerRecord
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.platform.process_tree import exit_on_signals, signals_put_off
from seamark.services.images.prepare import require_images
from seamark.services.server_identity import server_identity
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import acquire_lock
from seamark.services.supervisor.mps_daemon import end_daemon
from seamark.storage.documents import read
from seamark.storage.paths import DeploymentFolder, TrialFolder
from seamark.storage.redaction import hide_in_log
from seamark.trials import server_start
from seamark.trials.conflicts import conflicts, put_conflicts_aside, refusal
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kinds.table import kind_of
from seamark.trials.load_lock import exclusive_load
from seamark.trials.measure import LoadFailure
from seamark.trials.trial_files import put_aside, republished, settled


def run_deployment(
    study: Study,
    scenario: str,
    deployment_id: str,
    arguments: Sequence[str],
    *,
    failed: bool,
    anew: bool,
    given_up: LoadFailure | None = None,
) -> int:
    """Measure the pending trials of a deployment and return the exit code: 1 when a phase failed.

    `arguments` come before each script's own. With `failed` failed trials are measured again as well, with `anew`
    those of another server or configuration. With `given_up` no server is started: that is the trials' failure.

    On SIGTERM the current phase ends, the server is torn down and the code is 143: the running trial is left for the
    next job. Raises UserError, before anything is started, if a server of the deployment runs, images are missing, or
    conflicting trials exist.
    """
    folder = study.folder(scenario).deployment(deployment_id)
    run = partial(_run_phase, study, scenario, arguments)
    with only_job(folder) as alone, exit_on_signals(signal.SIGTERM):
        if not alone:
            print(f"{deployment_id}: another job is at work on it. Nothing is done here.")
            return 0
        left = pending_trials(study, scenario, deployment_id, failed=failed, anew=anew)
        if study.services[study.deployment(scenario, deployment_id).service].virtual_clock:
            simulated = [run("simulate", trial_id) for trial_id in left]
            return 0 if all(simulated) else 1
        if not left and folder.record.exists():
            print(f"{deployment_id}: all trials are measured.")
            return 0
        try:
            if given_up is not None:
                context = DeploymentContext.of(study, scenario, deployment_id)
                server_start.leave_out(context, given_up.category, given_up.reason)
            elif left and not (run("serve", deployment_id) and run("warmup", deployment_id)):
                return 1
            measured = [run("load", trial_id) for trial_id in left]
            return 0 if all(measured) else 1
        except SystemExit:
            print(f"{deployment_id}: ended early. What is measured is kept; submit again to go on.", file=sys.stderr)
            raise
        finally:
            with signals_put_off(signal.SIGTERM):  # a lane must not go on with its next unit
                run("teardown", deployment_id)
                folder.endpoint.unlink(missing_ok=True)
                folder.warmup.unlink(missing_ok=True)


def pending_trials(
    study: Study, scenario: str, deployment_id: str, *, failed: bool = False, anew: bool = False
) -> list[str]:
    """Return the ids of the trials that need the server, in the order of their positions. Raises UserError as
    `run_deployment` does."""
    if servers.alive(study.folder(scenario).deployment(deployment_id)):
        raise UserError(f"{deployment_id}: another run serves it now. Wait for that, or `bench stop` it.")
    if study.site.in_images:
        require_images(study)
    if anew:
        put_conflicts_aside(study, deployment_id)
    if found := conflicts(study, deployment=deployment_id):
        raise UserError(*refusal(study, found))
    return [trial.id for trial in pending(study, scenario, deployment_id, failed=failed)]


def pending(study: Study, scenario: str, deployment_id: str, *, failed: bool = False) -> tuple[Trial, ...]:
    """Return the trials of a deployment that need its server, in the order of their positions.

    A trial with complete samples and a lost load.json gets that back. A failed trial is a result, as for `bench
    submit`; with `failed` its files are set aside, as by `bench retry`, and it is measured again. Raises UserError if
    the plan has no such deployment.
    """
    folder, deployment = study.folder(scenario), study.deployment(scenario, deployment_id)
    server = server_identity(study, scenario, deployment)
    trials = study.trials_of(scenario, deployment.id)
    return tuple(trial for trial in trials if _needs_server(folder.trial(trial.id), trial, server, failed))


def _needs_server(folder: TrialFolder, trial: Trial, server: ServerRecord, failed: bool) -> bool:
    if not settled(folder, trial, server):
        return not republished(folder, trial, server)
    if failed and not read(folder.load, LoadRecord).ok:
        put_aside(folder)
        return True
    return False


def measure_trial(study: Study, scenario: str, trial_id: str, parent_pid: int) -> None:
    """Measure one trial by its kind, unless its samples are complete; load.json has the outcome. Those of a virtual
    clock may run side by side."""
    trial = study.trial(scenario, trial_id)
    context, retries = DeploymentContext.of(study, scenario, trial.deployment), study.plan_of(scenario).max_retries
    with nullcontext() if context.service.virtual_clock else exclusive_load(context, parent_pid):
        if not republished(context.results.trial(trial.id), trial, context.server):
            kind_of(trial, context.service).measure_trial(context, trial, parent_pid, max_retries=retries)


def tear_down(study: Study, scenario: str, deployment_id: str) -> None:
    """End a deployment's server and write deployment.json; first those of its members. Secrets are then taken out of
    the logs of all."""
    context = DeploymentContext.of(study, scenario, deployment_id)
    for member in context.members:
        _end_server(member)
        member.folder.endpoint.unlink(missing_ok=True)
        member.folder.warmup.unlink(missing_ok=True)
    if context.members:
        end_daemon(context.folder)
    _end_server(context)


def _end_server(context: DeploymentContext) -> None:
    trials = context.study.trials_of(context.scenario, context.deployment.id)
    folders = [context.results.trial(trial.id) for trial in trials]
    loads = [folder.load for folder in folders]
    servers.teardown(context.folder, loads, context.service.gpu_memory, context.secrets)
    names = (context.deployment.id, *(trial.id for trial in trials))
    logs = [path for name in names for path in context.results.root.glob(f"logs/*/{name}.log")]
    logs += [path for folder in folders for path in (folder.log, folder.files / "stdout", folder.files / "stderr")]
    for log in logs:
        hide_in_log(log, context.secrets)


def _run_phase(study: Study, scenario: str, arguments: Sequence[str], name: str, subject: str) -> bool:
    """Run the script of a phase of a deployment or a trial, in a process with its own log, so that its end ends no
    other; return whether it succeeded. SIGTERM ends it too."""
    log = study.folder(scenario).root / "logs" / name / f"{subject}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(study.file(f"scripts/{name}.py")), *arguments, scenario, subject]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait()
        except SystemExit:
            process.terminate()
            process.wait()
            raise
    if code:
        print(f"{subject}: {name} broke off; see {log}", file=sys.stderr, flush=True)
    return code == 0


@contextmanager
def only_job(folder: DeploymentFolder) -> Iterator[bool]:
    """Hold the lock of a deployment's job; yield False while another job holds it."""
    path = folder.root / ".job.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    held = acquire_lock(path)
    try:
        yield held is not None
    finally:
        if held is not None:
            held.close()
