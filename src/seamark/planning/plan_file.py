"""A plan as plan.json, and each of its trials as trial.json, and back. Nothing is worked out here."""

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord
from seamark.model.scenario import Slo
from seamark.model.search import Search
from seamark.model.trial import SCHEMA_VERSION, Deployment, Plan, Trial
from seamark.storage.paths import ScenarioFolder, TrialFolder, read, read_json, replacing


def as_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data for JSON: the shape of the dataclasses, tuples as lists."""
    document = _fields(plan)
    document["factors"] = {role: {k: list(v) for k, v in each.items()} for role, each in plan.factors.items()}
    document["deployments"] = [_fields(each) | {"settings": dict(each.settings)} for each in plan.deployments]
    document["trials"] = [
        _fields(each)
        | {"settings": dict(each.settings), "changed": dict(each.changed)}
        | {"slos": [_fields(slo) for slo in each.slos], "search": each.search and _fields(each.search)}
        for each in plan.trials
    ]
    for each in document["trials"]:
        if not each["metrics"]:
            del each["metrics"]  # few scenarios have any
    document["binds"] = list(plan.binds)
    return document


def read_plan(path: Path) -> Plan:
    """Read a plan.json. Raises ValueError that names the file and the remedy when it is damaged or old."""
    document = read_json(path)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"{path}: schema version {version}, not {SCHEMA_VERSION}. `bench plan` writes it anew.")
    try:
        return _plan(document)
    except (KeyError, TypeError, AttributeError) as cause:
        raise ValueError(f"{path}: not a plan ({cause!r}). Remove the file; `bench plan` writes it anew.") from cause


def write_trials(plan: Plan, folder: ScenarioFolder, *, only_missing: bool = False) -> None:
    """Write trial.json of every trial, or only of those that have none."""
    deployments = {deployment.id: deployment for deployment in plan.deployments}
    for trial in plan.trials:
        own = folder.trial(trial.id)
        if not (only_missing and own.planned.exists()):
            write_trial(plan_of_trial(plan, trial, deployments[trial.deployment]), own)


def plan_of_trial(plan: Plan, trial: Trial, deployment: Deployment) -> Plan:
    """Return the plan of one trial alone: what the whole plan says, one deployment, one trial, no factors."""
    return dataclasses.replace(plan, factors={}, deployments=(deployment,), trials=(trial,))


def write_trial(part: Plan, folder: TrialFolder) -> None:
    """Write trial.json, where it does not stand already: the plan of one trial and the digest of that.

    It is not synchronised to the disk, which would take longer than all else of a large plan: a trial.json that was
    lost or cut is made again. A folder that cannot be written to is left without one.
    """
    document = json.loads(json.dumps(as_document(part)))
    text = json.dumps(document | {"digest": digest(document)})
    with suppress(OSError, ValueError):
        if folder.planned.read_text(encoding="utf-8") == text:
            return
    with suppress(OSError), replacing(folder.planned, durable=False) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_trial(folder: TrialFolder, config_hash: str | None) -> Plan | None:
    """Return the plan of one trial from its trial.json.

    None where there is none, it is damaged or of another version, or it is not of that configuration.
    """
    try:
        document = read_json(folder.planned)
        if document.pop("digest") != digest(document) or document["schema_version"] != SCHEMA_VERSION:
            return None
        part = _plan(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return part if config_hash in (None, part.trials[0].config_hash) else None


def trial_for(folder: TrialFolder, plan_file: Path) -> Plan:
    """Return the plan of the trial of a folder that has a load.json.

    It comes from trial.json if that is of the same configuration, else from the plan.json of all trials, and
    trial.json is written again. Raises UserError when the trial is not planned.
    """
    try:
        load = read(folder.load, LoadRecord)
    except ValueError:
        load = LoadRecord(status="failed")
    part = read_trial(folder, None if load.probe else load.config_hash)
    if part is None or part.trials[0].id != folder.root.name:
        plan = read_plan(plan_file)
        trial = next((trial for trial in plan.trials if trial.id == folder.root.name), None)
        if trial is None:
            raise UserError(f"{plan_file}: no trial '{folder.root.name}' in this plan.")
        deployment = next(each for each in plan.deployments if each.id == trial.deployment)
        part = plan_of_trial(plan, trial, deployment)
        write_trial(part, folder)
    return part


def _trial(document: Mapping[str, Any]) -> Trial:
    slos, search = tuple(Slo(**slo) for slo in document["slos"]), document.get("search")
    own = tuple(document.get("metrics") or ())
    return Trial(**{**document, "slos": slos, "search": Search(**search) if search else None, "metrics": own})


def _plan(document: Mapping[str, Any]) -> Plan:
    factors = {role: {k: tuple(v) for k, v in each.items()} for role, each in document["factors"].items()}
    trials = tuple(map(_trial, document["trials"]))
    return Plan(
        **{
            **document,
            "factors": factors,
            "deployments": tuple(Deployment(**each) for each in document["deployments"]),
            "trials": trials,
            "binds": tuple(document["binds"]),
        }
    )


def _fields(thing: Any) -> dict[str, Any]:
    return {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing)}
