"""One function a rule: what a job of the DAG does. Each finds its data in the study and hands them to one room."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamark.planning.study import Study


MEASURE_ANEW = "SEAMARK_MEASURE_ANEW"
"""Environment variable of exported scripts: `yes` measures trials of another server or configuration anew."""


def plan(scenario_file: str, site: str, scenario: str) -> None:
    """Write plan.json, and trial.json of every trial.

    Ends with a message where trials are there from another server, unless they are to be measured anew: exported
    scripts ask here, before a job is submitted.
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
    """Make a service's environment and write where it is."""
    from seamark.errors import UserError
    from seamark.model.results.study import Environment
    from seamark.services.runtimes.environments import prepare_environment
    from seamark.storage.paths import failure_of, write, write_text

    study = _study(scenario_file, site)
    name, digest = name_and_digest.rsplit("-", 1)
    try:
        root = prepare_environment(name, study.locks, study.environments)
    except UserError as mistake:
        write_text(failure_of(Path(record)), str(mistake))
        raise SystemExit(str(mistake)) from None
    failure_of(Path(record)).unlink(missing_ok=True)
    write(Path(record), Environment(name=name, lock_digest=digest, root=str(root)))


def pending(scenario_file: str, site: str, scenario: str, deployment_id: str, failed: str = "no") -> None:
    """Print a deployment's trials that are not measured yet, one a line; with `failed` yes also the failed ones.

    Ends with a message instead where a server of the deployment runs already, images are not there, or trials are
    there from another server or configuration; where those are to be measured anew, they are put aside.
    """
    from seamark.errors import UserError
    from seamark.services.images.prepare import require_images
    from seamark.services.supervisor.deployment import alive
    from seamark.trials.conflicts import conflicts, put_conflicts_aside, refusal
    from seamark.trials.pending import pending

    study = _study(scenario_file, site)
    if alive(study.folder(scenario).deployment(deployment_id)):
        raise SystemExit(f"{deployment_id}: another run serves it now. Wait for that, or `bench stop` it.")
    try:
        if study.site.runtime == "apptainer":
            require_images(study)
        if os.environ.get(MEASURE_ANEW) == "yes":
            put_conflicts_aside(study, deployment_id)
        if found := conflicts(study, deployment=deployment_id):
            raise UserError(*refusal(study, found))
        for trial in pending(study, scenario, deployment_id, failed=failed == "yes"):
            print(trial.id)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None


def serve(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Start a deployment's server under its supervisor."""
    from seamark.trials.deployment_context import Bench
    from seamark.trials.trial import serve

    _require_current_epoch()
    serve(Bench.of(_study(scenario_file, site), scenario, deployment_id))


def warmup(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Send a deployment its first requests."""
    parent_pid = os.getppid()
    from seamark.trials.deployment_context import Bench
    from seamark.trials.trial import warm_up

    _require_current_epoch()
    study = _study(scenario_file, site)
    warm_up(Bench.of(study, scenario, deployment_id), study.trials_of(scenario, deployment_id)[0], parent_pid)


def load(scenario_file: str, site: str, scenario: str, trial_id: str, config_hash: str | None = None) -> None:
    """Measure one trial, which `config_hash` tells from one of an older plan."""
    parent_pid = os.getppid()
    from seamark.trials.deployment_context import Bench

    _require_current_epoch()
    study = _study(scenario_file, site).of_trial(scenario, trial_id, config_hash)
    trial = study.trial(scenario, trial_id)
    retries = study.plan_of(scenario).max_retries
    if trial.search:
        from seamark.trials.search.run import measure_search as measure
    else:
        from seamark.trials.trial import measure
    measure(Bench.of(study, scenario, trial.deployment), trial, parent_pid, max_retries=retries)


def teardown(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """End a deployment's server and record its life."""
    from seamark.services.supervisor.deployment import teardown

    _require_current_epoch()
    study = _study(scenario_file, site)
    folder = study.folder(scenario)
    loads = [folder.trial(trial.id).load for trial in study.trials_of(scenario, deployment_id)]
    teardown(folder.deployment(deployment_id), loads)


def monitor(record: str) -> None:
    """Cut the telemetry to the trial of this load.json. Reads no scenario: it runs once for every trial."""
    from seamark.storage.paths import ScenarioFolder
    from seamark.trials.derive_trial import derive_telemetry

    scenario, trial_id = ScenarioFolder(root=Path(record).parents[1]), Path(record).parent.name
    derive_telemetry(scenario.trial(trial_id), scenario.deployment(trial_id.split("--")[0]))


def metrics(plan_file: str, record: str, exposition: str = "") -> None:
    """Derive the metrics of the trial of this load.json. Reads no scenario: it runs once for every trial.

    `exposition`: the folder that is to have them in Prometheus's text form too.
    """
    from seamark.planning.plan_file import read_plan, trial_for
    from seamark.storage.paths import ScenarioFolder
    from seamark.trials.derive_trial import derive_trial

    scenario = ScenarioFolder(root=Path(record).parents[1])
    folder = scenario.trial(Path(record).parent.name)
    part = trial_for(folder, Path(plan_file))
    (trial,), (deployment,) = part.trials, part.deployments
    derive_trial(scenario, trial, deployment)
    if exposition:
        from seamark.analysis import prometheus_text
        from seamark.analysis.summary.treatments import levels_of

        levels = levels_of(read_plan(Path(plan_file)))[trial.treatment]
        prometheus_text.write_trial(folder, Path(exposition), trial, levels)


def summary(scenario_file: str, site: str, scenario: str) -> None:
    """Sum up a scenario."""
    from seamark.analysis.summary import write_summary

    study = _study(scenario_file, site)
    write_summary(study.plan_of(scenario), study.folder(scenario))


def report(scenario_file: str, site: str, scenario: str) -> None:
    """Draw a scenario's report."""
    from seamark.report.page.render import write_report

    study = _study(scenario_file, site)
    write_report(study.folder(scenario).root, study.reports)


def _require_current_epoch() -> None:
    """Exit when a later run holds the study: two jobs must never measure one deployment."""
    from seamark.dispatch.fencing import is_superseded

    if is_superseded(Path.cwd(), os.environ):
        raise SystemExit("This job belongs to a superseded run; exiting without changes.")


def _study(scenario_file: str, site: str) -> "Study":
    from seamark.errors import UserError
    from seamark.planning.study import Study

    try:
        return Study.at(Path.cwd(), scenario=scenario_file, site=site)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None
