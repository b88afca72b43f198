"""A plan as plan.json and back. Nothing is worked out here."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.model.scenario import Slo
from seamark.model.search import Search
from seamark.model.trial import SCHEMA_VERSION, Deployment, Plan, Trial
from seamark.storage.paths import read_json


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


def planned_trial(path: Path, trial_id: str) -> tuple[Trial, Deployment]:
    """Read one trial and its deployment from a plan.json. Raises UserError when the plan has none of that id."""
    document = read_json(path)
    trial = next((each for each in document["trials"] if each["id"] == trial_id), None)
    if trial is None:
        raise UserError(f"{path}: no trial '{trial_id}' in this plan.")
    deployment = next(each for each in document["deployments"] if each["id"] == trial["deployment"])
    return _trial(trial), Deployment(**deployment)


def _trial(document: Mapping[str, Any]) -> Trial:
    slos, search = tuple(Slo(**slo) for slo in document["slos"]), document.get("search")
    return Trial(**{**document, "slos": slos, "search": Search(**search) if search else None})


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
