"""The kinds of trials. A new one is a module of this folder and a line of KINDS, or a module of a plugin."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Protocol, cast

from seamark.errors import SiteError
from seamark.model.origin import MEASURED
from seamark.model.plugin import plugins
from seamark.model.service import Service
from seamark.model.trial import Trial
from seamark.trials.deployment_context import DeploymentContext


class TrialKind(Protocol):
    """A module of this folder or of a plugin: one way to measure a trial."""

    def measure_trial(
        self, context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0
    ) -> None:
        """Measure a trial and write its load.json, whatever came of it; samples.json last, where it went well."""


KINDS: Mapping[str, Callable[[Trial], object]] = {
    "parties": lambda trial: trial.parties,
    "search": lambda trial: trial.search,
    "timed_load": lambda trial: True,
}
"""Module of each kind of measured trial, and whether a trial is of it: the first that says so."""


def kind_of(trial: Trial, service: Service) -> TrialKind:
    """Return the kind of a trial. Its module is imported now: a search needs numpy. Raises SiteError if no plugin has
    the kind of a service whose figures are not measured."""
    if service.origin != MEASURED and not trial.parties:
        own = (plugin.kinds[service.origin] for plugin in plugins() if service.origin in plugin.kinds)
        if (module := next(own, None)) is None:
            raise SiteError(f"{service.name}: no plugin has trials of the origin '{service.origin}'.")
    else:
        module = f"{__package__}.{next(name for name, is_of_it in KINDS.items() if is_of_it(trial))}"
    return cast(TrialKind, import_module(module))
