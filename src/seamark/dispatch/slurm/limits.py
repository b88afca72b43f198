"""Limits of a Slurm site: jobs that it would never start, and how many a user may have. Pure."""

from seamark.dispatch.resources import deployment_min
from seamark.model.plurals import counted
from seamark.model.site import Site
from seamark.model.trial import Plan, Trial

ONE_EACH = "Use a site with a smaller 'deployments_per_job', or 1."


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
