"""Jobs of the DAG, one function a rule. Each reads its data from the study and calls one room."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamark.planning.study import Study


MEASURE_ANEW = "SEAMARK_MEASURE_ANEW"
"""Environment variable of exported scripts: `yes` measures trials of another server or configuration again."""
RETRY = "SEAMARK_RETRY"
"""Environment variable of exported scripts: `yes` measures failed trials again."""


def plan(scenario_file: str, site: str, scenario: str) -> None:
    """Write plan.json, and trial.json of every trial.

    Exits with a message when trials exist from another server, unless they are to be measured again: exported scripts
    check this before they submit a job.
    """
    from seamark.errors import UserError
    from seamark.trials.conflicts import require_no_conflicts

    study = _study(scenario_file, site)
    try:
        if os.environ.get(MEASURE_ANEW) != "yes":
            require_no_conflicts(study)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None
    study.write_trials(scenario)


def environment(scenario_file: str, site: str, name_and_digest: str, record: str) -> None:
    """Build a service's environment and record its place."""
    from seamark.errors import UserError
    from seamark.model.results.deployment_record import Environment
    from seamark.services.runtimes.environments import prepare_environment
    from seamark.storage.documents import write, write_text
    from seamark.storage.paths import failure_of

    study = _study(scenario_file, site)
    name, digest = name_and_digest.rsplit("-", 1)
    try:
        root = prepare_environment(name, study.locks, study.environments)
    except UserError as mistake:
        write_text(failure_of(Path(record)), str(mistake))
        raise SystemExit(str(mistake)) from None
    failure_of(Path(record)).unlink(missing_ok=True)
    write(Path(record), Environment(name=name, lock_digest=digest, root=str(root)))


def deployment(scenario_file: str, site: str, scenario: str, deployment_id: str) -> int:
    """Run the life of a deployment for an exported job; return the exit code."""
    from seamark.errors import UserError
    from seamark.trials.run_deployment import run_deployment

    failed, anew = (os.environ.get(name) == "yes" for name in (RETRY, MEASURE_ANEW))
    study = _study(scenario_file, site)
    try:
        return run_deployment(study, scenario, deployment_id, (scenario_file, site), failed=failed, anew=anew)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None


def serve(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Start a deployment's server under its supervisor, after a calibration of its gateway if it has one."""
    parent_pid = os.getppid()
    from seamark.trials.deployment_context import DeploymentContext
    from seamark.trials.gateway import calibrate_gateway
    from seamark.trials.server_start import serve

    _require_current_epoch()
    context = DeploymentContext.of(_study(scenario_file, site), scenario, deployment_id)
    calibrate_gateway(context, parent_pid)
    serve(context)


def warmup(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Send a deployment its first requests."""
    parent_pid = os.getppid()
    from seamark.trials.deployment_context import DeploymentContext
    from seamark.trials.server_start import warm_up

    _require_current_epoch()
    warm_up(DeploymentContext.of(_study(scenario_file, site), scenario, deployment_id), parent_pid)


def load(
    scenario_file: str, site: str, scenario: str, trial_id: str, config_hash: str | None = None, run: str = ""
) -> None:
    """Measure one trial; `config_hash` distinguishes it from one of an older plan. With `run` the lanes of that run
    have measured it, and its load.json is only published."""
    parent_pid = os.getppid()
    from seamark.trials.lane import publish
    from seamark.trials.run_deployment import measure_trial

    _require_current_epoch()
    study = _study(scenario_file, site).of_trial(scenario, trial_id, config_hash)
    results = study.folder(scenario)
    if not (run and publish(results.lane(run).load(trial_id), results.trial(trial_id).load)):
        measure_trial(study, scenario, trial_id, parent_pid)


def lane(scenario_file: str, site: str, scenario: str, run: str, number: str, options: str = "") -> None:
    """Run deployments of a scenario side by side with other lanes, each on a device, until all are done."""
    from seamark.errors import UserError
    from seamark.trials.lane import run_lane

    _require_current_epoch()
    try:
        run_lane(_study(scenario_file, site, options), scenario, run, number, (scenario_file, site))
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None


def teardown(scenario_file: str, site: str, scenario: str, deployment_id: str, run: str = "") -> None:
    """End a deployment's server and write deployment.json. With `run` a lane of that run has done so, and the record
    is only published."""
    from seamark.trials.lane import publish
    from seamark.trials.run_deployment import tear_down

    _require_current_epoch()
    study = _study(scenario_file, site)
    results = study.folder(scenario)
    if not (run and publish(results.lane(run).record(deployment_id), results.deployment(deployment_id).record)):
        tear_down(study, scenario, deployment_id)


def judge(scenario_file: str, site: str, scenario: str, trial_id: str) -> None:
    """Score the kept replies of one trial. Measures nothing."""
    from seamark.trials.judge import judge_trial

    study = _study(scenario_file, site).of_trial(scenario, trial_id)
    judge_trial(study, study.trial(scenario, trial_id), study.folder(scenario).trial(trial_id))


def monitor(record: str) -> None:
    """Cut the telemetry to the trial of this load.json. Reads no scenario: it runs once for every trial."""
    from seamark.planning.plan_file import trial_for
    from seamark.storage.paths import ScenarioFolder
    from seamark.trials.derive_trial import derive_telemetry

    scenario = ScenarioFolder(root=Path(record).parents[1])
    folder = scenario.trial(Path(record).parent.name)
    [trial] = trial_for(folder, scenario.plan).trials
    derive_telemetry(scenario, folder, trial.deployment)


def metrics(plan_file: str, record: str, exposition: str = "") -> None:
    """Derive the metrics of the trial of this load.json. Reads no scenario: it runs once for every trial.

    `exposition`: the folder that is to have them in Prometheus's text form too.
    """
    from seamark.model.dotted import search_in
    from seamark.planning.plan_file import levels_in, trial_for
    from seamark.storage.paths import ScenarioFolder
    from seamark.trials.derive_trial import derive_trial

    search_in(Path.cwd())
    scenario = ScenarioFolder(root=Path(record).parents[1])
    folder = scenario.trial(Path(record).parent.name)
    part = trial_for(folder, Path(plan_file))
    (trial,), (deployment,) = part.trials, part.deployments
    derive_trial(scenario, trial, deployment)
    if exposition:
        from seamark.analysis import prometheus_text

        prometheus_text.write_trial(folder, Path(exposition), trial, levels_in(part))


def summary(scenario_file: str, site: str, scenario: str) -> None:
    """Summarise a scenario."""
    from seamark.analysis.summary import write_summary

    study = _study(scenario_file, site)
    write_summary(study.plan_of(scenario), study.folder(scenario))


def report(scenario_file: str, site: str, scenario: str) -> None:
    """Draw a scenario's report."""
    from seamark.report.page.render import write_report

    study = _study(scenario_file, site)
    write_report(study.folder(scenario).root, study.reports, partial(print, flush=True))


def _require_current_epoch() -> None:
    """Exit if this job's run is superseded: two jobs must never measure one deployment."""
    from seamark.dispatch.fencing import is_superseded

    if is_superseded(Path.cwd(), os.environ):
        raise SystemExit("This job belongs to a superseded run; exiting without changes.")


def _study(scenario_file: str, site: str, lanes: str = "") -> "Study":
    from seamark.errors import UserError
    from seamark.model.dotted import search_in
    from seamark.planning.study import Study

    search_in(Path.cwd())  # an exported job has no parent that did this so
    try:
        return Study.at(Path.cwd(), scenario=scenario_file, site=site, lanes=lanes)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None
