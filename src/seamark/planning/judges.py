"""Which trials have replies that are scored, and by which functions."""

from collections.abc import Mapping

from seamark.config.forms.table import scored_by
from seamark.model.service import Service
from seamark.model.trial import Trial


def scored_trials(services: Mapping[str, Service], trial: Trial) -> tuple[Trial, ...]:
    """Return the trials whose replies are scored: some of the parties, or this one, or none."""
    return tuple(
        part for part in trial.measured if services[part.service].judge is not None and part.load.keep_replies
    )


def scoring_functions(services: Mapping[str, Service], trial: Trial) -> tuple[str, ...]:
    """Return the dotted paths of the functions that score a trial's replies, each followed by those of the functions
    and packages that it scores by, such as the scorer of a task."""
    judged = scored_trials(services, trial)
    return tuple(
        dict.fromkeys(
            path for part in judged for path in (str(services[part.service].judge), *scored_by(part.settings))
        )
    )
