"""Slurm jobs of a scenario's deployments: one array for each set of equal resources. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from seamark.dispatch.job import Resources, deployment_min, gpus_per_node, loads_min, resources_of
from seamark.dispatch.slurm.commands import clock, sbatch_options
from seamark.errors import UserError
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Plan, Trial

LONGEST_ARRAY = 1000
"""Slurm's own limit, unless a site has changed it (MaxArraySize)."""
REPORT_MIN = 30
REPORT_GB = 4
END_S = 120
"""Time before the end of a job at which it receives a signal."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Deployments of equal resources: the tasks of one array, or a plain job for a single one.

    `needs_min` are the minutes of the longest one, `time_min` the requested ones, which are fewer if the QoS ends a
    job earlier. `service` is that of the first; all need the same GPUs per node.
    """

    deployments: tuple[Deployment, ...]
    service: Service
    needs_min: int
    time_min: int

    @property
    def is_array(self) -> bool:
        return len(self.deployments) > 1

    def said(self) -> str:
        """Return the job in words: services, resources and time."""
        first, count = self.deployments[0], len(self.deployments)
        count_gpus = gpus_per_node(first, self.service) if first.gpus else 0
        gpus = f", {count_gpus} GPU{'s' * (count_gpus > 1)} a node" if count_gpus else ""
        what = f"an array of {count} deployments" if self.is_array else "1 deployment"
        return f"{what}, {first.nodes} x {first.cpus_per_task} CPUs{gpus}, {clock(self.time_min)} at most"


def jobs_of(plan: Plan, site: Site, services: Mapping[str, Service]) -> list[Job]:
    """Return the jobs of a plan in the order of its deployments; `services` are the recipes by name.

    Raises UserError when a single trial takes longer than the QoS lets a job run.
    """
    trials: dict[str, list[Trial]] = {deployment.id: [] for deployment in plan.deployments}
    for trial in plan.trials:
        trials[trial.deployment].append(trial)
    limit_s = site.qos.get(plan.qos or "")
    limit_min = None if limit_s is None else limit_s // 60
    if limit_min is not None:
        _require_room(plan, site, limit_min)
    found = []
    for alike in _alike(plan.deployments, services):
        for part in _parts(alike, LONGEST_ARRAY):
            needs_min = max(deployment_min(trials[each.id], site) for each in part)
            time_min = needs_min if limit_min is None else min(needs_min, limit_min)
            service = services[part[0].service]
            found.append(Job(deployments=part, service=service, needs_min=needs_min, time_min=time_min))
    return found


def options(plan: Plan, site: Site, job: Job, name: str, at_once: int | None) -> list[str]:
    """Return the options of sbatch for a job; of an array at most `at_once` tasks run at the same time."""
    resources = resources_of(plan, job.deployments[0], job.service, time_min=job.time_min)
    return [
        f"--job-name={name}",
        *(f"--{key}={value}" for key, value in sbatch_options(resources, site).items()),
        *([f"--array=0-{len(job.deployments) - 1}{f'%{at_once}' if at_once else ''}"] if job.is_array else []),
        *_output("%x_%A_%a" if job.is_array else "%x_%j"),
        f"--signal=B:TERM@{END_S}",
        *site.job_options,
    ]


def report_options(plan: Plan, site: Site, name: str) -> list[str]:
    """Return the sbatch options of the report's job."""
    charged = Resources(account=plan.account, partition=plan.partition, qos=plan.qos)
    resources = replace(charged, cpus_per_task=1, mem_gb=REPORT_GB, time_min=REPORT_MIN)
    options = sbatch_options(resources, site).items()
    return [f"--job-name={name}", *(f"--{key}={value}" for key, value in options), *_output("%x_%j")]


def _output(name: str) -> list[str]:
    return [f"--output=logs/{name}.out", f"--error=logs/{name}.err", "--open-mode=append"]


def _alike(deployments: Sequence[Deployment], services: Mapping[str, Service]) -> Iterator[list[Deployment]]:
    """Yield groups of deployments with equal resources, in the order of their first."""

    def resources(each: Deployment) -> tuple[int, ...]:
        return each.nodes, gpus_per_node(each, services[each.service]), each.cpus_per_task, each.mem_gb

    first = {key: at for at, key in reversed(list(enumerate(map(resources, deployments))))}
    for _, alike in groupby(sorted(deployments, key=lambda each: first[resources(each)]), key=resources):
        yield list(alike)


def _parts(deployments: Sequence[Deployment], longest: int) -> Iterator[tuple[Deployment, ...]]:
    for begin in range(0, len(deployments), longest):
        yield tuple(deployments[begin : begin + longest])


def _require_room(plan: Plan, site: Site, limit_min: int) -> None:
    longest = max(plan.trials, key=lambda trial: loads_min([trial]))
    needs_min = deployment_min([longest], site) + END_S // 60
    if needs_min > limit_min:
        raise UserError(
            f"{plan.source}: qos: '{plan.qos}' ends a job after {limit_min} min, but one trial of {longest.treatment}"
            f" takes {needs_min} min with its server. Choose another QoS, or a shorter duration_s."
        )
