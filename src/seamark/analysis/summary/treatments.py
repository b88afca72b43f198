"""Says which treatments belong together, and what varies among them."""

from collections.abc import Mapping

from seamark.model.service import Value
from seamark.model.trial import Plan, Trial

RESOURCES = ("nodes", "gpus", "cpus_per_task", "mem_gb")


def group_of(trial: Trial) -> str:
    """Return the name of what a treatment is compared within: its workload in the scenario."""
    return trial.group


def levels_of(plan: Plan) -> Mapping[str, Mapping[str, Value]]:
    """Return the level of every factor for each treatment. A factor is what varies within a treatment's group."""
    deployments = {deployment.id: deployment for deployment in plan.deployments}
    everything: dict[str, dict[str, Value]] = {}
    groups: dict[str, list[str]] = {}
    for trial in plan.trials:
        if trial.treatment in everything:
            continue
        deployment = deployments.get(trial.deployment)
        asked = {name: getattr(deployment, name) for name in RESOURCES} if deployment else {}
        everything[trial.treatment] = {**trial.settings, **asked}
        groups.setdefault(group_of(trial), []).append(trial.treatment)
    levels: dict[str, Mapping[str, Value]] = {}
    for members in groups.values():
        names = _varying([everything[treatment] for treatment in members])
        levels |= {treatment: {name: everything[treatment].get(name) for name in names} for treatment in members}
    return levels


def _varying(all_settings: list[dict[str, Value]]) -> list[str]:
    names = dict.fromkeys(name for settings in all_settings for name in settings)
    return [name for name in names if len({_level(settings.get(name)) for settings in all_settings}) > 1]


def _level(value: Value) -> tuple[str, Value]:
    """Keeps True apart from 1."""
    return type(value).__name__, value
