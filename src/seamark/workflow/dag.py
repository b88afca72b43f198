"""Values of Snakemake's rules for one study: patterns, inputs, priorities, resources, targets."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import Any, Protocol, TypeVar

from seamark.dispatch.dispatcher import batch_dispatcher, dispatcher_of, is_batch, leaves_this_machine
from seamark.dispatch.job import TEARDOWN_MIN, TOGETHER_MIN, WARMUP_MIN, minutes_of, resources_of, serve_min
from seamark.dispatch.order import ALL, Steps, order_of
from seamark.model.digest import sha256_of
from seamark.model.dotted import mark_of
from seamark.model.harness import harnesses_of
from seamark.model.service import Value
from seamark.model.trial import Deployment, Trial
from seamark.planning.judges import scored_trials, scoring_functions
from seamark.planning.plan_order import begun_in, units_of
from seamark.planning.plan_time import time_of
from seamark.planning.study import Study
from seamark.planning.study_paths import require_paths
from seamark.platform.fork_server.client import LEADER, RUN
from seamark.services.supervisor.deployment import stop_all
from seamark.storage.paths import DeploymentFolder
from seamark.trials.conflicts import CommitMarks
from seamark.trials.trial_files import finite_lengths_s
from seamark.workflow.containerised_jobs import (
    container_command,
    image_of,
    install_apptainer_shim,
    require_jobs_images,
)
from seamark.workflow.lanes import Lanes, require_lanes
from seamark.workflow.stale_results import sweep

PHASE_MIN = {"together": TOGETHER_MIN, "warmup": WARMUP_MIN, "teardown": TEARDOWN_MIN}
SLOTS = 100
Found = TypeVar("Found")


class Wildcards(Protocol):
    """The wildcards of a job."""

    scenario: str
    deployment: str
    workload: str
    repetition: str


@dataclass(frozen=True, kw_only=True)
class Dag:
    """Inputs, parameters and resources of the rules, for one study."""

    study: Study
    contained: bool = False
    """Whether loads run in containers of Snakemake's: its `--software-deployment-method apptainer`."""
    _known: dict[tuple[object, ...], Any] = field(default_factory=dict, init=False, repr=False)
    """What jobs have asked for so far, by function and arguments."""

    def __post_init__(self) -> None:
        require_paths(self.study)
        require_lanes(self.study)
        self.study.require_environments()
        self.study.require_datasets()
        if self.contained:
            require_jobs_images(self.study)
            install_apptainer_shim(self.study)

    @property
    def title(self) -> str:
        """What this run measures, and where."""
        study = self.study
        return f"Scenario {study.scenario.name} ({study.scenario_path}), site {study.site_name}"

    def lead(self) -> None:
        """Name this process, Snakemake, as the leader of its scripts: they end when it has ended. Its fork server
        makes the processes of all jobs."""
        os.environ[LEADER] = os.environ[RUN] = str(os.getpid())

    @property
    def patterns(self) -> tuple[str, str, str]:
        """Folders of a scenario, a deployment and a trial, with Snakemake's wildcards, relative to the study."""
        scenario = f"{self._relative(self.study.results)}/{{scenario}}"
        trial = f"{scenario}/{{deployment}}--{{workload}}--r{{repetition}}"
        return scenario, f"{scenario}/deployments/{{deployment}}", trial

    @property
    def reports(self) -> str:
        """Root of the reports, relative to the study."""
        return self._relative(self.study.reports)

    @property
    def group(self) -> str | Callable[[Wildcards], str] | None:
        """The group of the rules of a deployment: one batch job. None without a batch system, where a group costs
        Snakemake more than the square of its jobs and nothing is submitted."""
        if not leaves_this_machine(self.study.site):
            return None
        own = self._together or self.study.plan.divided
        return self._group_of if own else "dep_{scenario}_{deployment}"

    def _group_of(self, w: Wildcards) -> str:
        first = self._first_together(w) if self._together else self.deployment(w)
        return f"dep_{w.scenario}_{first.id}"

    def together(self, w: Wildcards) -> list[str]:
        """Return the inputs of serve that put several deployments into one group; else nothing."""
        if not self._together:
            return []
        folder = self.study.folder(w.scenario).deployment(self._first_together(w).id)
        return [self._relative(folder.together)]

    def _first_together(self, w: Wildcards) -> Deployment:
        """Return the first of the deployments that share a job with this one."""
        deployments = self.study.plan_of(w.scenario).deployments
        own = self.deployment(w).id
        place = next(i for i, deployment in enumerate(deployments) if deployment.id == own)
        return deployments[place - place % self.study.site.deployments_per_job]

    def script(self, name: str, *wildcards: str) -> str:
        """Return the shell line that runs a script; with `exec` Snakemake is its parent."""
        words = [sys.executable, self.file(f"scripts/{name}.py"), str(self.study.scenario_path), self.study.site_name]
        return _shell_line(words, wildcards)

    def derive(self, name: str, *paths: str) -> str:
        """Return the shell line of a script that reads only the given files, and no scenario."""
        return _shell_line([sys.executable, self.file(f"scripts/{name}.py")], paths)

    @property
    def exposition(self) -> list[str]:
        """Return the folder for the Prometheus files of each trial, if the site names one."""
        return [_literal(self._relative(self.study.metrics))] if self.study.metrics else []

    def objectives(self, w: Wildcards) -> list[str]:
        """Return a trial's objectives, and metrics and checks of the user's own: its metrics are derived again when
        they change, without a measurement."""
        trial = self.trial(w)
        objectives = [f"{slo.metric} {slo.op} {slo.limit!r}" for slo in trial.slos]
        return objectives + [self._mark(path) for path in (*trial.metrics, *trial.checks)]

    def answers(self, w: Wildcards) -> list[str]:
        """Return the record of a trial's scores if its replies are scored, else nothing."""
        trial = self.trial(w)
        if not scored_trials(self.study.services, trial):
            return []
        return [self._relative(self.study.folder(w.scenario).trial(trial.id).answers_record)]

    def quality_version(self, w: Wildcards) -> str:
        """Return the versions of the functions that score replies: a change of one scores them again, and measures
        nothing."""
        return " ".join(map(self._mark, scoring_functions(self.study.services, self.trial(w))))

    def _mark(self, path: str) -> str:
        return self._once(mark_of, path)

    def file(self, relative: str) -> str:
        """Return the path of a shipped file."""
        return str(self.study.file(relative))

    def load_script(self, name: str, *wildcards: str) -> str:
        """Return the shell line of a script that runs a load: inside the image, if Snakemake runs it in one."""
        if not self.contained:
            return self.script(name, *wildcards)
        return _shell_line(
            [*container_command(self.study, name), str(self.study.scenario_path), self.study.site_name], wildcards
        )

    def image(self, w: Wildcards) -> str | None:
        """Return the image that a deployment's loads run in, None outside of containers."""
        return image_of(self.study, w.scenario, self.deployment(w).id) if self.contained else None

    def outside(self, w: Wildcards) -> None:
        """Return no image: a job without load runs in the base environment, a server beside its supervisor."""

    def targets(self) -> list[str]:
        """Return the targets of a run: every trial's metrics, every deployment's record, the report."""
        name = self.study.scenario.name
        return [*self.metrics(name), *self.records(name), f"{self.reports}/{name}/index.html"]

    def metrics(self, scenario: str) -> list[str]:
        """Return the metrics.json of every trial of a scenario."""
        folder = self.study.folder(scenario)
        return [self._relative(folder.trial(t.id).metrics) for t in self.study.plan_of(scenario).trials]

    def records(self, scenario: str) -> list[str]:
        """Return the deployment.json of every deployment of a scenario; a simulation has none."""
        folder, simulated = self.study.folder(scenario), set(self._simulated(scenario))
        deployments = [d.id for d in self.study.plan_of(scenario).deployments if d.name not in simulated]
        return [self._relative(folder.deployment(name).record) for name in deployments]

    @property
    def simulated(self) -> str:
        """Pattern of the deployments whose trials are simulations; it matches nothing where there are none."""
        return "|".join(map(re.escape, self._simulated(self.study.scenario.name))) or "(?!)"

    @property
    def measured(self) -> str:
        """Pattern of all other deployments."""
        return rf"(?!(?:{self.simulated})--)(?:(?!--)[^/])+"

    def _simulated(self, scenario: str) -> list[str]:
        deployments, services = self.study.plan_of(scenario).deployments, self.study.services
        return list(
            dict.fromkeys(deployment.name for deployment in deployments if services[deployment.service].virtual_clock)
        )

    def loads(self, w: Wildcards) -> list[str]:
        """Return the load.json of every trial of a deployment."""
        folder = self.study.folder(w.scenario)
        trials = self.study.trials_of(w.scenario, w.deployment)
        return [self._relative(folder.trial(trial.id).load) for trial in trials]

    @cached_property
    def lanes(self) -> Lanes:
        """The lanes of this run; none without `parallel`."""
        return Lanes(study=self.study, marks=partial(self._once, self._marks_of, self.study.scenario.name))

    @property
    def lane_options(self) -> list[str]:
        """Return the argument of `lane` with the options of this run."""
        return [_literal(self.study.lanes)] if self.study.lanes else []

    def lanes_before(self, w: Wildcards) -> list[str]:
        """Return the outputs of the lanes, for jobs that are not to run beside them; nothing without lanes."""
        return [self._relative(path) for path in self.lanes.outputs] if self.lanes.deployments else []

    def environments(self, w: Wildcards) -> list[str]:
        """Return the records of the environments of all deployments that lanes run."""
        ids = self.lanes.deployments
        return self._environments_of(w.scenario, [self.study.deployment(w.scenario, name) for name in ids])

    def server_for_trial(self, w: Wildcards) -> list[str]:
        """Return the files of a ready server, or nothing when the trial's samples are complete. With lanes: their
        outputs, or nothing for a trial that is published."""
        trial = self.trial(w)
        if self.lanes.deployments:
            waits = trial.id in self.lanes.trials
            return [self._relative(path) for path in self.lanes.outputs] if waits else []
        return [] if self._measured(w.scenario, trial) else self._server_files(w)

    def endpoint_for_teardown(self, w: Wildcards) -> list[str]:
        """Return the endpoint, or nothing if no trial of the deployment needs its server, or if lanes end it."""
        if self.lanes.deployments:
            return []
        trials = self.study.trials_of(w.scenario, w.deployment)
        return [] if all(self._measured(w.scenario, trial) for trial in trials) else self._server_files(w)[:1]

    def deployment(self, w: Wildcards) -> Deployment:
        """Return the deployment a job belongs to: the start that a trial is measured on."""
        return self.study.deployment(w.scenario, self.trial(w).deployment if hasattr(w, "workload") else w.deployment)

    def trial(self, w: Wildcards) -> Trial:
        """Return the trial a job belongs to."""
        return self.study.trial(w.scenario, f"{w.deployment}--{w.workload}--r{w.repetition}")

    def changed(self, w: Wildcards) -> dict[str, Value]:
        """Return what a load's identity is made of: only a change of it runs the load again."""
        trial = self.trial(w)
        return {**trial.changed, "config_hash": trial.config_hash}

    def environment_record(self, environment: str) -> str:
        """Return the record of a ready environment; its name ends in the lock's digest."""
        return f"{self._relative(self.study.results)}/.environments/{environment}.json"

    def environment_for(self, w: Wildcards) -> list[str]:
        """Return the records of the environments of a deployment and its loads, without the base one."""
        return self._environments_of(w.scenario, [self.deployment(w)])

    def _environments_of(self, scenario: str, deployments: Sequence[Deployment]) -> list[str]:
        if self.study.site.in_images:
            return []
        trials = (trial for deployment in deployments for trial in self.study.trials_of(scenario, deployment.id))
        names = {self.study.services[deployment.service].environment for deployment in deployments}
        names |= {*harnesses_of(trials)}
        digests = {name: sha256_of(self.study.locks / f"{name}.lock")[:12] for name in names if name is not None}
        return [self.environment_record(f"{name}-{digest}") for name, digest in sorted(digests.items())]

    def priority(self, phase: str) -> Callable[[Wildcards], int]:
        """Return the priority of a phase: deployments one after another, their trials in block order."""

        def of(w: Wildcards) -> int:
            place, first, last = self._once(self._places, w.scenario)[self.deployment(w).id]
            base = 1 + place * 1_000_000
            steps = {"serve": 0, "warmup": 1, "teardown": last - first + 3}
            return base + (steps[phase] if phase in steps else 2 + last - self.trial(w).position)

        return of

    def _places(self, scenario: str) -> dict[str, tuple[int, int, int]]:
        """Return for each deployment the number of deployments from it on, and its first and last position."""
        ids = self._once(self._begun_in, scenario)
        trials = {name: self.study.trials_of(scenario, name) for name in ids}
        return {
            name: (len(ids) - at, group[0].position, group[-1].position)
            for at, (name, group) in enumerate(trials.items())
        }

    def _begun_in(self, scenario: str) -> list[str]:
        """Return the deployments of a scenario in the order of the run; without one in that of the plan."""
        plan = self.study.plan_of(scenario)
        ids = [deployment.id for deployment in plan.deployments]
        if self.study.site.order == ALL.name:
            return ids
        measured_s = finite_lengths_s(plan, self.study.folder(scenario))
        units = units_of(
            plan, self.study.services, time_of(plan, self.study.services, measured_s=measured_s).deployments
        )
        return list(dict.fromkeys((*begun_in(order_of(self.study.site.order), units), *ids)))

    def waits_for(self, w: Wildcards) -> list[str]:
        """Return the records of the deployments whose end a deployment waits for by the order of this run. On one
        machine none: there deployments run one at a time by their priorities, or in lanes."""
        if not self.study.ordered or not leaves_this_machine(self.study.site):
            return []
        folder = self.study.folder(w.scenario)
        ids, steps = self._once(self._steps, w.scenario)
        after = (ids[at] for at in steps.waits(self._once(self._numbers, w.scenario)[w.deployment]).after)
        return [self._relative(folder.deployment(name).record) for name in after]

    def _steps(self, scenario: str) -> tuple[Sequence[str], Steps]:
        units = units_of(self.study.plan_of(scenario), self.study.services)
        return [unit.id for unit in units], order_of(self.study.site.order).arranged(units)

    def _numbers(self, scenario: str) -> dict[str, int]:
        return {name: at for at, name in enumerate(self._once(self._steps, scenario)[0])}

    def runtime_min(self, phase: str) -> Callable[..., int]:
        """Return the minutes of a phase's job; they grow with the attempt."""

        def of(w: Wildcards, attempt: int = 1) -> int:
            if phase == "serve":
                return serve_min(self.study.site) * attempt
            if phase in PHASE_MIN:
                return PHASE_MIN[phase] * attempt
            return self._once(self._minutes, w.scenario, self.deployment(w).id)[self.trial(w).id] * attempt

        return of

    def _minutes(self, scenario: str, name: str) -> dict[str, int]:
        """Return the minutes of each trial of a deployment."""
        return minutes_of(self.study.trials_of(scenario, name))

    def cpus(self, w: Wildcards) -> int:
        """Return the CPUs per task of a deployment."""
        return self.deployment(w).cpus_per_task

    def mem_mb(self, w: Wildcards) -> int:
        """Return the memory of a deployment in MB."""
        return self.deployment(w).mem_gb * 1024

    def resources(self, phase: str) -> dict[str, Any]:
        """Return the resources of a phase of a deployment; where jobs run on this machine only its slots, since each
        function here costs Snakemake a call for every job."""
        alone = {"together": 1, "simulate": max(1, SLOTS // (os.cpu_count() or 1))}
        slot = alone.get(phase, self.slot)
        if self.lanes.deployments and phase != "simulate":  # every lane has ended: these only publish
            slot = self.analysis_slot
        if not leaves_this_machine(self.study.site):
            return {"slot": slot}
        names = self._site_resources(self.study.scenario.name, self.study.plan.deployments[0].id)
        return {
            **{name: partial(self._site_resource, name) for name in names},
            "slot": slot,
            "mem_mb": 1 if phase == "together" else self.mem_mb,
            "runtime": self.runtime_min(phase),
        }

    def _site_resource(self, name: str, w: Wildcards) -> str | int:
        return self._once(self._site_resources, w.scenario, self.deployment(w).id)[name]

    def _site_resources(self, scenario: str, name: str) -> Mapping[str, str | int]:
        deployment, site = self.study.deployment(scenario, name), self.study.site
        service = self.study.services[deployment.service]
        if self._shares:  # Snakemake adds up numbers only, and GPUs are text to it
            deployment = replace(deployment, gpus=deployment.gpus * site.deployments_per_job)
        resources = resources_of(self.study.plan_of(scenario), deployment, service)
        named = dispatcher_of(site).executor_resources(resources, site)
        added_up = ("nodes", "tasks") if self._shares else ()
        return {name: value for name, value in named.items() if name not in added_up}

    @property
    def slots(self) -> int:
        """Slots of a machine; a load that does not share its node takes all."""
        return SLOTS

    @property
    def slot(self) -> int:
        """Slots that a phase of a deployment takes."""
        return SLOTS // self.study.site.deployments_per_job if self._shares else SLOTS

    @property
    def _shares(self) -> bool:
        return self._together and self.study.site.placement == "share"

    @property
    def _together(self) -> bool:
        return is_batch(self.study.site) and self.study.site.deployments_per_job > 1

    @property
    def analysis_slot(self) -> int:
        """Slots of a job that measures nothing: a load takes all, so the two never overlap."""
        return SLOTS // 2

    def sweep(self) -> None:
        """Put away stale results of earlier runs. Raises UserError when trials were measured on another server, or in
        another configuration than planned."""
        sweep(self.study, self._once(self._marks_of, self.study.scenario.name))
        # a profile may name Snakemake's Slurm executor for any site
        batch_dispatcher(self.study.site).prepare_executor(self.study.root, self.study.site)

    def stop_leftovers(self) -> None:
        """End every server of this study that still runs; remove the files of its lanes."""
        stop_all(self.study.results)
        self.lanes.clear()

    def _measured(self, scenario: str, trial: Trial) -> bool:
        return self._once(self._marks_of, scenario).measured(trial)

    def _marks_of(self, scenario: str) -> CommitMarks:
        """Return the commit marks of a scenario's trials."""
        return CommitMarks(self.study, scenario)

    def _once(self, find: Callable[..., Found], *arguments: str) -> Found:
        """Return what `find` returns of these arguments at the first call."""
        key = (find, *arguments)
        if key not in self._known:
            self._known[key] = find(*arguments)
        found: Found = self._known[key]
        return found

    def _server_files(self, w: Wildcards) -> list[str]:
        folder: DeploymentFolder = self.study.folder(w.scenario).deployment(self.deployment(w).id)
        return [self._relative(folder.endpoint), self._relative(folder.warmup)]

    def _relative(self, path: Path) -> str:
        return str(path.relative_to(self.study.root)) if path.is_relative_to(self.study.root) else str(path)


def _shell_line(words: Sequence[str], fields: Sequence[str]) -> str:
    """Return the shell line that becomes a program, its output in the rule's log. `fields` are Snakemake's own, such
    as `{wildcards.scenario:q}`."""
    return " ".join(["exec", *map(_literal, words), *fields, "> {log:q} 2>&1"])


def _literal(word: str) -> str:
    """Return one word of a rule's shell line, with braces escaped for Snakemake."""
    return quote(word).replace("{", "{{").replace("}", "}}")
