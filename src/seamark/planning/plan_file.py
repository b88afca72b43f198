"""trial.json: the plan of one trial, a small file for its jobs, so that none of them reads the whole plan."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from seamark.errors import UserError
from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord
from seamark.model.service import Value
from seamark.model.trial import Plan, Trial, levels_of
from seamark.storage.codec import encode
from seamark.storage.documents import read, replacing
from seamark.storage.paths import ScenarioFolder, TrialFolder

OWN = "trial"
"""Role of the levels of one trial among the factors of its plan."""


def write_trials(plan: Plan, folder: ScenarioFolder, *, only_missing: bool = False) -> None:
    """Write trial.json of every trial, or only the missing ones."""
    wanted = [trial for trial in plan.trials if not (only_missing and folder.trial(trial.id).planned.exists())]
    for part in plans_of_trials(plan, wanted):
        write_trial(part, folder.trial(part.trials[0].id))


def plans_of_trials(plan: Plan, trials: Sequence[Trial]) -> Iterator[Plan]:
    """Yield the plan of each trial alone: its deployment, and its own levels of the factors."""
    levels = levels_of(plan) if trials else {}
    deployments = {deployment.id: deployment for deployment in plan.deployments}
    for trial in trials:
        own = {OWN: {name: (value,) for name, value in levels[trial.treatment].items()}}
        deployment = deployments[trial.deployment]
        yield replace(plan, factors=own, deployments=(deployment,), trials=(trial,), prediction=None)


def levels_in(part: Plan) -> Mapping[str, Value]:
    """Return the levels of the trial that a plan is of."""
    return {name: value for name, (value,) in part.factors.get(OWN, {}).items()}


def write_trial(part: Plan, folder: TrialFolder) -> None:
    """Write trial.json unless it is there: the plan of one trial and its digest.

    It is not synchronised to the disk, which would take longer than the rest of a large plan: a lost or cut
    trial.json is written again. A folder without write permission is left without one.
    """
    document = encode(part)
    text = json.dumps(document | {"digest": digest(document)})
    with suppress(OSError, ValueError):
        if folder.planned.read_text(encoding="utf-8") == text:
            return
    with suppress(OSError), replacing(folder.planned, durable=False) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_trial(folder: TrialFolder, config_hash: str | None) -> Plan | None:
    """Return the plan of one trial from its trial.json.

    None when the file is missing, damaged, of another version, or of another configuration.
    """
    try:
        written = read(folder.planned, Plan)
    except (OSError, ValueError):
        return None
    part = replace(written, digest=None)
    same = config_hash in (None, part.trials[0].config_hash) if part.trials else False
    return part if same and written.digest == digest(encode(part)) else None


def trial_for(folder: TrialFolder, plan_file: Path) -> Plan:
    """Return the plan of the trial of a folder that has a load.json.

    It comes from trial.json if that has the same configuration, else from plan.json, and trial.json is then written
    again. Raises UserError if the plan has no such trial.
    """
    try:
        load = read(folder.load, LoadRecord)
    except ValueError:
        load = LoadRecord(status="failed")
    part = read_trial(folder, None if load.probe else load.config_hash)
    if part is None or part.trials[0].id != folder.root.name:
        plan = read(plan_file, Plan)
        trial = next((trial for trial in plan.trials if trial.id == folder.root.name), None)
        if trial is None:
            raise UserError(f"{plan_file}: no trial '{folder.root.name}' in this plan.")
        [part] = plans_of_trials(plan, [trial])
        write_trial(part, folder)
    return part
