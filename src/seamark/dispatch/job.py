"""Jobs: resources, specification, state in the queue, nodes; and the resources that a deployment requests."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import Deployment, Plan, Trial


@dataclass(frozen=True, kw_only=True)
class JobResources:
    """Resources of one batch job. None: the batch system's default; for `tasks` one a node, for `gres` (the name of a
    GPU) that of the partition."""

    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    nodes: int = 1
    tasks: int | None = None
    gres: str | None = None
    gpus_per_node: int = 0
    cpus_per_task: int | None = None
    mem_gb: int | None = None
    time_min: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job to submit: it runs `command` in `folder`, with its output in `logs` as NAME_ID.out and NAME_ID.err.

    `options` are further options of the batch system, handed on as they are.
    """

    command: Sequence[str]
    name: str
    logs: Path
    folder: Path
    resources: JobResources
    options: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of this user that has not ended. `nodes` is empty until it runs; `reason` is that of a pending one."""

    id: str
    name: str
    state: str
    nodes: str
    folder: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of an allocation: its name, the address at which others reach it, and whether this process is on it."""

    name: str
    host: str
    here: bool


SERVE_MIN = 10
WARMUP_MIN = 2
TEARDOWN_MIN = 2
TOGETHER_MIN = 1
SPARE = 1.2
LOAD_SPARE_S = 20.0
"""Allowance of a load beyond its time: a ratio of it, and the time in which a worker begins and ends."""


def loads_min(trials: Iterable[Trial]) -> int:
    """Return the minutes for the loads of some trials, one after another; a search with all its probes."""
    return math.ceil(sum(map(_load_s, trials)) / 60)


def minutes_of(trials: Iterable[Trial]) -> dict[str, int]:
    """Return the additional minutes of each trial of a deployment, by id: 0 for most trials of seconds, so that
    together they do not request an hour."""
    minutes, seconds = {}, 0.0
    for trial in trials:
        before, seconds = math.ceil(seconds / 60), seconds + _load_s(trial)
        minutes[trial.id] = math.ceil(seconds / 60) - before
    return minutes


def serve_min(site: Site) -> int:
    """Return the minutes until a server may be up, with those in which the site leaves it alone."""
    return SERVE_MIN + math.ceil(site.idle_s / 60)


def deployment_min(trials: Iterable[Trial], site: Site) -> int:
    """Return the minutes of a deployment's whole life: the sum of its phases, one load after another."""
    return serve_min(site) + WARMUP_MIN + loads_min(trials) + TEARDOWN_MIN


def _load_s(trial: Trial) -> float:
    seconds = trial.load.length_s + trial.load.timeout_s
    seconds += trial.search.budget_s if trial.search else 0.0
    return seconds * SPARE + LOAD_SPARE_S


def gpus_per_node(deployment: Deployment, service: Service) -> int:
    """Return the GPUs to request per node, so that the server's nodes together have those of the deployment.

    Slurm gives every node of a job the same number: a node that only sends load then has as many, unused.
    """
    return -(-deployment.gpus // service.nodes_served(deployment.nodes))


def gpus_of_party(gpus: int, nodes: int, service: Service) -> int:
    """Return the GPUs on a node of a party that requests `gpus` in a deployment of so many nodes. One without a
    server computes in its load, on a single node."""
    return gpus if service.server is None else -(-gpus // service.nodes_served(nodes))


def resources_of(
    plan: Plan, deployment: Deployment, service: Service, *, time_min: int | None = None
) -> JobResources:
    """Return the resources of the job of a deployment."""
    return JobResources(
        account=plan.account,
        partition=plan.partition,
        qos=plan.qos,
        nodes=deployment.nodes,
        tasks=plan.ntasks,
        gres=plan.gres,
        gpus_per_node=gpus_per_node(deployment, service) if deployment.gpus else 0,
        cpus_per_task=deployment.cpus_per_task,
        mem_gb=deployment.mem_gb,
        time_min=time_min,
    )


def submit_limits(site: Site, qos: str | None) -> dict[str | None, int]:
    """Return how many jobs a user may have at the site, waiting and running: of any QoS (None), and of that one."""
    limits = {None: site.max_submit} | ({qos: site.qos_max_submit.get(qos)} if qos else {})
    return {whose: most for whose, most in limits.items() if most is not None}


def most_jobs(site: Site, qos: str | None) -> int | None:
    """Return how many jobs a user may have at the site with that QoS, waiting and running; None: any number."""
    return min(submit_limits(site, qos).values(), default=None)
