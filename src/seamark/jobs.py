"""One function a rule: what a job of the DAG does. Each finds its data in the study and hands them to one room."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamark.load.standby import Standby
    from seamark.study import Study


def plan(scenario_file: str, site: str, scenario: str) -> None:
    """Write plan.json."""
    from seamark.plan import as_document
    from seamark.store import write_json, write_text

    study = _study(scenario_file, site)
    folder, planned = study.folder(scenario), study.plan_of(scenario)
    write_text(folder.scenario, Path(planned.source).read_text(encoding="utf-8"))
    write_json(folder.plan, as_document(planned))


def environment(scenario_file: str, site: str, name_and_digest: str, record: str) -> None:
    """Make a service's environment and write where it is."""
    from seamark.servers.environments import prepare_environment
    from seamark.store import write_json

    study = _study(scenario_file, site)
    name, digest = name_and_digest.rsplit("-", 1)
    root = prepare_environment(name, study.locks, study.environments)
    write_json(Path(record), {"schema_version": 1, "name": name, "lock_digest": digest, "root": str(root)})


def serve(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Start a deployment's server under its keeper."""
    from seamark.bench import Bench
    from seamark.trial import serve

    serve(Bench.of(_study(scenario_file, site), scenario, deployment_id))


def warmup(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """Send a deployment its first requests."""
    from seamark.bench import Bench
    from seamark.trial import warm_up

    study = _study(scenario_file, site)
    warm_up(Bench.of(study, scenario, deployment_id), study.trials_of(scenario, deployment_id)[0])


def load(scenario_file: str, site: str, scenario: str, trial_id: str, record: str) -> None:
    """Measure one trial. Its workers are started first: they import while this process reads the plan."""
    standby = _stand_by(Path(record))
    from seamark.bench import Bench
    from seamark.trial import measure

    study = _study(scenario_file, site)
    trial = study.trial(scenario, trial_id)
    measure(Bench.of(study, scenario, trial.deployment), trial, study.plan_of(scenario).max_retries, standby)


def teardown(scenario_file: str, site: str, scenario: str, deployment_id: str) -> None:
    """End a deployment's server and record its life."""
    from seamark.servers.deployment import teardown

    study = _study(scenario_file, site)
    folder = study.folder(scenario)
    loads = [folder.trial(trial.id).load for trial in study.trials_of(scenario, deployment_id)]
    teardown(folder.deployment(deployment_id), loads)


def monitor(scenario_file: str, site: str, scenario: str, trial_id: str) -> None:
    """Cut the telemetry to one trial."""
    from seamark.monitors.cut import cut_telemetry
    from seamark.store import read_json

    study = _study(scenario_file, site)
    folder = study.folder(scenario)
    trial = folder.trial(trial_id)
    deployment = folder.deployment(study.trial(scenario, trial_id).deployment)
    cut_telemetry(deployment.telemetry, trial.client_telemetry, read_json(trial.load), trial)


def metrics(scenario_file: str, site: str, scenario: str, trial_id: str) -> None:
    """Derive the metrics of one trial."""
    from seamark.analysis import write_metrics

    study = _study(scenario_file, site)
    trial = study.trial(scenario, trial_id)
    write_metrics(
        trial,
        study.folder(scenario).trial(trial_id),
        study.deployment(scenario, trial.deployment),
        scenario=scenario,
        client_is_server=study.services[trial.service].server is None,
    )


def summary(scenario_file: str, site: str, scenario: str) -> None:
    """Sum up a scenario."""
    from seamark.analysis import write_summary

    study = _study(scenario_file, site)
    write_summary(study.plan_of(scenario), study.folder(scenario))


def report(scenario_file: str, site: str, scenario: str) -> None:
    """Draw a scenario's report."""
    from seamark.report.pages import write_report

    study = _study(scenario_file, site)
    write_report(study.folder(scenario).root, study.reports)


def _stand_by(record: Path) -> "list[Standby]":
    """Start the workers that the trial of this load.json will need, if it needs any and its server says which."""
    import json
    import os
    import shutil

    from seamark.load.standby import stand_by

    trial = record.parent
    endpoint = trial.parent / "deployments" / trial.name.split("--")[0] / "endpoint.json"
    shutil.rmtree(trial / ".parts", ignore_errors=True)
    if (trial / "samples.json").exists() or not endpoint.exists():
        return []
    found = json.loads(endpoint.read_text())
    if found["status"] != "ok":
        return []
    python = Path(found["environment"]) / "bin" / "python" if found["environment"] else None
    many = (os.cpu_count() or 1) if found["workers"] == "processes" else 1
    return stand_by(python, found["driver"], trial / ".parts", many)


def _study(scenario_file: str, site: str) -> "Study":
    from seamark.errors import UserError
    from seamark.study import Study

    try:
        return Study.at(Path.cwd(), scenario=scenario_file, site=site)
    except UserError as mistake:
        raise SystemExit(str(mistake)) from None
