"""Entry of a trial: acquires the node, publishes a finished measurement again, or calls the function of its kind."""

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from seamark.model.trial import Trial
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.load_lock import exclusive_load
from seamark.trials.trial_files import republished

KINDS: Mapping[str, str] = {
    "timed_load": "seamark.trials.kinds.timed_load",
    "search": "seamark.trials.kinds.search",
}
"""Module of each kind of trial. It is imported for a trial of that kind only: a search needs numpy."""


class Kind(Protocol):
    """A module of `kinds`: one way to measure a trial."""

    def measure_trial(
        self, context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0
    ) -> None:
        """Measure a trial and write its load.json, whatever the outcome; samples.json last, on success."""


def kind_of(trial: Trial) -> str:
    """Return the name of a trial's kind."""
    return "search" if trial.search else "timed_load"


def measure_trial(context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Measure one trial, unless its samples exist; load.json records the outcome in every case."""
    with exclusive_load(context, parent_pid):
        if not republished(context.results.trial(trial.id), trial, context.server):
            kind = cast(Kind, import_module(KINDS[kind_of(trial)]))
            kind.measure_trial(context, trial, parent_pid, max_retries=max_retries)
