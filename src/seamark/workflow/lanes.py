"""Lanes of a run for the DAG: their number and outputs, and which trials wait for them, none with `parallel: 1`; and
its order."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from seamark.config.lanes import lanes_at_once
from seamark.config.yaml_source import value_of
from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.job import most_jobs
from seamark.dispatch.order import ALL, Order, order_of
from seamark.errors import UserError
from seamark.model.dotted import is_dotted
from seamark.model.site import Site
from seamark.planning.study import Study
from seamark.storage.paths import ScenarioFolder
from seamark.trials.conflicts import CommitMarks, pending_trials_of

if TYPE_CHECKING:
    from seamark.planning.plan_order import PlannedOrder

RUN = "SEAMARK_LANES"
"""Environment variable: name of this run's folder of lanes, the same in every process that reads the Snakefile."""


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The lanes of one run. Its trials are found when the DAG is made, before a lane changes any file."""

    study: Study
    marks: Callable[[], CommitMarks]
    """Returns the commit marks of the scenario's trials; not called without lanes."""

    @cached_property
    def run(self) -> str:
        """Name of the folder of this run."""
        return os.environ.setdefault(RUN, uuid4().hex[:12])

    @cached_property
    def deployments(self) -> frozenset[str]:
        """Deployments with trials to measure, if the site has lanes; else none."""
        if self.study.site.parallel == 1:
            return frozenset()
        return frozenset(pending_trials_of(self.study, self.study.scenario.name, self.marks()))

    @cached_property
    def trials(self) -> frozenset[str]:
        """Trials that are published once all lanes have ended: those that a lane measures, and those that were
        measured before, since nothing may run beside a lane."""
        if not self.deployments:
            return frozenset()
        return frozenset(
            trial.id for trial in self.study.plan.trials if not self._folder.trial(trial.id).load.exists()
        )

    @property
    def count(self) -> int:
        """Number of lanes: no more than there are deployments to measure, or places on devices."""
        return min(lanes_at_once(self.study.site), len(self.deployments))

    @cached_property
    def outputs(self) -> tuple[Path, ...]:
        """Files that the lanes write at their end."""
        folder = self._folder.lane(self.run)
        return tuple(folder.outcome(str(number)) for number in range(1, self.count + 1))

    @property
    def arguments(self) -> list[str]:
        """Return the argument of `load` and `teardown` that names the lanes; nothing without lanes."""
        return [self.run] if self.deployments else []

    def slot(self, slots: int) -> int:
        """Return the slots of a lane: all of a machine's are theirs, so that no other job runs beside them."""
        return slots // max(1, self.count)

    def clear(self) -> None:
        """Remove the files of the lanes of this run."""
        if self.study.site.parallel > 1:
            shutil.rmtree(self._folder.lanes, ignore_errors=True)

    @property
    def _folder(self) -> ScenarioFolder:
        return self.study.folder(self.study.scenario.name)


def require_lanes(study: Study) -> None:
    """Raise UserError where lanes of the site cannot run the plan, or its order names what it cannot unroll. A run
    without either imports nothing for it."""
    require_order(study)
    if study.site.parallel > 1:
        from seamark.trials.lane import require_plan_fits_lanes

        require_plan_fits_lanes(study)


def require_order(study: Study) -> None:
    """Raise UserError for an order that the plan, or a site whose deployments are jobs, cannot keep."""
    site = study.site
    if site.order == ALL.name:
        return
    from seamark.planning.plan_order import checked_order, units_of

    where = "--order"
    if "order" not in json.loads(study.lanes or "{}"):
        where = study.scenario.lines.get("order", f"site '{site.name}': order")
    try:
        order = checked_order(site.order, units_of(study.plan, study.services))
    except ValueError as mistake:
        raise UserError(f"{where}: {mistake}") from None
    if leaves_this_machine(site) and (why := _not_of_jobs(order, site)):
        raise UserError(f"{where}: '{order.text}': {why}")


def _not_of_jobs(order: Order, site: Site, *, beside: bool = False) -> str | None:
    """Return why jobs cannot keep an order: each waits for the ends of others, and all have one limit. `beside`: it
    is inside of groups in parallel."""
    if is_dotted(order.name):
        return "a function is asked while lanes are at work, and on this site each deployment is a job."
    if site.deployments_per_job > 1 and order.name not in (ALL.name, "longest_first"):
        return f"a job of this site has {site.deployments_per_job} deployments. Write 'deployments_per_job: 1'."
    if beside and order.name == "window":
        return "jobs have one limit for all groups. Write 'window: N' alone, or 'groups: in_sequence'."
    if order.then is None:
        return None
    return _not_of_jobs(order.then, site, beside=beside or order.groups == "parallel")


def order_planned(study: Study, measured_s: Mapping[str, float]) -> "PlannedOrder":
    """Return what the order of a study makes of its plan: in lanes, as jobs, or one deployment at a time."""
    from seamark.planning.plan_order import planned_order, units_of
    from seamark.planning.plan_time import time_of

    plan, site = study.plan, study.site
    spans = time_of(plan, study.services, measured_s=measured_s).deployments
    units = units_of(plan, study.services, spans)
    lanes = (jobs_at_once(study) or len(units)) if leaves_this_machine(site) else lanes_at_once(site)
    factors = {name for levels in plan.factors.values() for name in levels}
    return planned_order(order_of(site.order), units, max(1, lanes), spans, factors)


def jobs_at_once(study: Study) -> int | None:
    """Return the number of concurrent jobs that profile, site and order allow; None without a limit."""
    path = study.file(f"profiles/{study.site.profile}/config.yaml")
    try:
        profile = value_of(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: this profile of Snakemake cannot be read: {error}.") from None
    limits = [profile.get("jobs") if isinstance(profile, dict) else None, most_jobs(study.site, study.plan.qos)]
    limits.append(order_of(study.site.order).most)
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)
