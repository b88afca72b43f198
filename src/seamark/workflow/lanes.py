"""Lanes of a run for the DAG: their number and outputs, and which trials wait for them. None with `parallel: 1`."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from seamark.model.site import Site
from seamark.planning.study import Study
from seamark.storage.paths import ScenarioFolder
from seamark.trials.conflicts import CommitMarks, pending_trials_of

RUN = "SEAMARK_LANES"
"""Environment variable: name of this run's folder of lanes, the same in every process that reads the Snakefile."""


def lanes_at_once(site: Site) -> int:
    """Return the number of lanes of a site that can be at work: no more than there are places on named devices."""
    ids = None if site.devices is None else site.devices.gpu or site.devices.cpu
    if site.devices is None or ids is None or ids == "auto":
        return site.parallel
    return min(site.parallel, len(ids) * site.devices.per_device)


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
    """Raise UserError where lanes of the site cannot run the plan. A run without lanes imports nothing for it."""
    if study.site.parallel > 1:
        from seamark.trials.lane import require_plan_fits_lanes

        require_plan_fits_lanes(study)
