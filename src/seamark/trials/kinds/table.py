"""The kinds of trials. A new one is a module of this folder and a line of KINDS."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol, cast

from seamark.model.service import Service
from seamark.model.trial import Trial
from seamark.trials.deployment_context import DeploymentContext


class TrialKind(Protocol):
    """A module of this folder: one way to measure a trial."""

    def measure_trial(
        self, context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0
    ) -> None:
        """Measure a trial and write its load.json, whatever came of it; samples.json last, where it went well."""


KINDS: Mapping[str, Callable[[Trial, Service], object]] = {
    "parties": lambda trial, service: trial.parties,
    "virtual_clock": lambda trial, service: service.virtual_clock,
    "search": lambda trial, service: trial.search,
    "timed_load": lambda trial, service: True,
}
"""Module of each kind, and whether a trial is of it: the first that says so."""


def kind_of(trial: Trial, service: Service) -> TrialKind:
    """Return the kind of a trial. Its module is imported now: a search needs numpy."""
    name = next(name for name, is_of_it in KINDS.items() if is_of_it(trial, service))
    return cast(TrialKind, import_module(f"{__package__}.{name}"))
