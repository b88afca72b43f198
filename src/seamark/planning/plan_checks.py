"""Checks of a plan by plugins, before anything runs."""

from dataclasses import dataclass

from seamark.model.plugin import parts
from seamark.planning.study import Study


@dataclass(frozen=True, kw_only=True)
class CheckedPlan:
    """What a plugin found in a plan: `lines` below a `title`, `notes` on what may go wrong, and `facts` of both for
    `bench plan --json`, under `name`."""

    name: str
    title: str
    facts: object
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def checked_by_plugins(study: Study) -> tuple[CheckedPlan, ...]:
    """Return what each plugin found in a study's plan. Raises UserError for a plan that cannot run."""
    return tuple(check(study) for check in parts("check_plan"))
