"""What deployments and loads ask a batch system for: time, GPUs, how many jobs. Pure; none is called."""

import math
from collections.abc import Iterable

from seamark.model.load_profile import load_length_of
from seamark.model.plurals import counted
from seamark.model.service import Service
from seamark.model.site import Partition, Site
from seamark.model.trial import Deployment, Plan, Trial

SERVE_MIN = 10
WARMUP_MIN = 2
TEARDOWN_MIN = 2
TOGETHER_MIN = 1
SPARE = 1.2
LOAD_SPARE_S = 20.0
"""What a load may take beyond its time: a share of it, and what a worker needs to begin and to end."""
ONE_EACH = "Use a site with a smaller 'deployments_per_job', or 1."


def loads_min(trials: Iterable[Trial]) -> int:
    """Return the minutes that the loads of some trials may take, one after another; a search with all its probes."""
    return math.ceil(sum(map(_load_s, trials)) / 60)


def minutes_of(trials: Iterable[Trial]) -> dict[str, int]:
    """Return what each trial of a deployment adds to the minutes of its loads, by id: 0 for most of those that take
    seconds, so that together they do not ask for an hour."""
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
    seconds = load_length_of(trial.settings) + float(trial.settings["timeout_s"] or 0)
    seconds += trial.search.budget_s if trial.search else 0.0
    return seconds * SPARE + LOAD_SPARE_S


def gpus_per_node(deployment: Deployment, service: Service) -> int:
    """Return the GPUs to ask of each node, so that the server's nodes together have those of the deployment.

    Slurm gives every node of a job alike: a node that only sends load then has as many, and uses none.
    """
    return -(-deployment.gpus // service.nodes_served(deployment.nodes))


def gpu_request(deployment: Deployment, service: Service, site: Site, partition: str | None) -> dict[str, str]:
    """Return the option of sbatch that asks for the deployment's GPUs in the site's words; empty when it has none."""
    each = gpus_per_node(deployment, service)
    if not deployment.gpus:
        return {}
    if site.gpu_request == "gpus":
        return {"gpus-per-node": str(each)}
    kind = (site.partitions.get(partition or "") or Partition(nodes=1, cpus=1, mem_gb=1)).gres
    return {"gres": f"{kind}:{each}"}


def submit_limits(site: Site, qos: str | None) -> dict[str | None, int]:
    """Return how many jobs a user may have at the site, waiting and running: of any QoS (None), and of that one."""
    limits = {None: site.max_submit} | ({qos: site.qos_max_submit.get(qos)} if qos else {})
    return {whose: most for whose, most in limits.items() if most is not None}


def most_jobs(site: Site, qos: str | None) -> int | None:
    """Return how many jobs a user may have at the site with that QoS, waiting and running; None: any number."""
    return min(submit_limits(site, qos).values(), default=None)


def overlong(plan: Plan, site: Site) -> str | None:
    """Return why Slurm would never start the plan's longest job, and what to do; None where each has room."""
    partition = site.partitions.get(plan.partition or "")
    limits = {f"qos: '{plan.qos}'": site.qos.get(plan.qos or "")}
    limits[f"partition: '{plan.partition}'"] = partition.time_limit_s if partition else None
    known = {what: limit_s for what, limit_s in limits.items() if limit_s is not None}
    if not known:
        return None
    what, limit_s = min(known.items(), key=lambda each: each[1])
    trials: dict[str, list[Trial]] = {deployment.id: [] for deployment in plan.deployments}
    for trial in plan.trials:
        trials[trial.deployment].append(trial)
    longest, minutes = max(
        ((name, deployment_min(group, site)) for name, group in trials.items()), key=lambda each: each[1]
    )
    if minutes * 60 <= limit_s:
        return None
    longer = [name for name, other_s in site.qos.items() if other_s is None or minutes * 60 <= other_s]
    other = f"Use one with more time ({', '.join(longer)}), " if longer and what.startswith("qos") else "Use "
    return (
        f"{plan.source}: {what} ends a job after {limit_s // 60} min, but the deployment {longest} with"
        f" its {counted(len(trials[longest]), 'trial')} asks for {minutes} min, and would wait for ever. "
        f"{other}fewer levels or repetitions, shorter loads, or"
        " `bench export slurm`, which shares a deployment's trials out over jobs."
    )


def unfit_for_one_job(plan: Plan, site: Site) -> str | None:
    """Return why the plan's deployments cannot go into jobs together as the site says, None where they can."""
    count = site.deployments_per_job
    first, *others = plan.deployments
    if count == 1 or not others:
        return None
    if any((each.nodes, each.gpus) != (first.nodes, first.gpus) for each in others):
        return f"{plan.source}: {count} deployments go into a job, but these differ in nodes or GPUs. {ONE_EACH}"
    node = site.partitions.get(plan.partition or "")
    if site.placement == "isolate" or node is None:
        return None
    for asked, has, noun in (
        (first.nodes, 1, "nodes"),
        (count * first.gpus, node.gpus, "GPUs"),
        (count * max(each.cpus_per_task for each in plan.deployments), node.cpus, "CPUs"),
        (count * max(each.mem_gb for each in plan.deployments), node.mem_gb, "GB"),
    ):
        if asked > has:
            return f"{plan.source}: {count} deployments that share a node ask for {asked} {noun} of {has}. {ONE_EACH}"
    return None
