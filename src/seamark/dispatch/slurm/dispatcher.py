"""Dispatch by Slurm: the Protocol of dispatcher.py in terms of Slurm's commands."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seamark.dispatch.identity import allocation
from seamark.dispatch.job import Job, JobResources, JobSpec, Node, deployment_min
from seamark.dispatch.slurm import allocation as allocated
from seamark.dispatch.slurm import commands
from seamark.dispatch.slurm.job_states import record_of, recorded_jobs
from seamark.dispatch.slurm.lost_jobs import lost, refusals, refusals_file, refused
from seamark.errors import SiteError
from seamark.model.plurals import counted
from seamark.model.site import Site
from seamark.model.trial import Plan

ONE_EACH = "Use a site with a smaller 'deployments_per_job', or 1."


class Slurm:
    """Slurm, by its commands on a login node, and by srun within a job."""

    name = "slurm"
    title = "Slurm"
    client: str | None = "sbatch"
    list_command: str | None = "squeue --me"
    cancel_command: str | None = "scancel"

    def misfit(self, plan: Plan, site: Site) -> str | None:
        """Return why a job of the plan is longer than its QoS or partition allows, or larger than a node."""
        return _overlong(plan, site) or _unfit_for_one_job(plan, site)

    def executor_resources(self, resources: JobResources, site: Site) -> Mapping[str, str | int]:
        """Return the resources as Snakemake's Slurm executor plugin names them."""
        return commands.executor_resources(resources, site)

    def prepare_executor(self, root: Path, site: Site) -> None:
        """Replace the plugin's executor by its subclass that waits for no job that will not end."""
        from seamark.dispatch.slurm.executor import install

        install(root, site.queue_deadline_s)

    def submit(self, job: JobSpec, site: Site) -> str:
        """Submit a job by sbatch."""
        return commands.submit(job, commands.sbatch_options(job.resources, site))[0]

    def run(self, job: JobSpec, site: Site) -> tuple[str, int]:
        """Submit a job by `sbatch --wait`."""
        return commands.submit(job, commands.sbatch_options(job.resources, site), wait=True)

    def jobs(self, folder: Path | None = None) -> list[Job]:
        """Return the jobs that squeue lists."""
        return commands.jobs(folder)

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by scancel."""
        if ids:
            commands.run(["scancel", *ids])

    def losses(self, root: Path, deployments: Iterable[str]) -> list[str]:
        """Return a line for each refusal of sbatch and each job that ended without being completed."""
        return [*refused(refusals(root)), *lost(recorded_jobs(root), deployments)]

    def forget_losses(self, root: Path) -> None:
        """Remove the records of an earlier run."""
        for record in (record_of(root), refusals_file(root)):
            record.unlink(missing_ok=True)

    def nodes(self, count: int) -> tuple[Node, ...]:
        """Return nodes of this process's job."""
        return allocated.nodes_of(_own_job(), count)

    def address_of(self, node: str) -> str:
        """Return the address (NodeAddr) of a node."""
        return allocated.address_of(node)

    def step(
        self, command: Sequence[str], *, tasks: int, nodes: Sequence[str] = (), count: int | None = None
    ) -> list[str]:
        """Return the command line of srun for a step of this process's job."""
        return allocated.step(_own_job(), tasks, nodes, command, count)

    def step_environment(self) -> dict[str, str]:
        """Return this process's environment without the variables of its own job step."""
        return allocated.step_environment()


def _own_job() -> str:
    job = allocation()
    if job is None:
        raise SiteError("no Slurm allocation here (SLURM_JOB_ID is not set).")
    return job


def _overlong(plan: Plan, site: Site) -> str | None:
    """Return why the longest job exceeds the time limit of its QoS or partition, None where none does."""
    partition = site.partitions.get(plan.partition or "")
    limits = {f"qos: '{plan.qos}'": site.qos.get(plan.qos or "")}
    limits[f"partition: '{plan.partition}'"] = partition.time_limit_s if partition else None
    known = {what: limit_s for what, limit_s in limits.items() if limit_s is not None}
    if not known:
        return None
    what, limit_s = min(known.items(), key=lambda limit: limit[1])
    trials = plan.by_deployment()
    longest, minutes = max(
        ((name, deployment_min(group, site)) for name, group in trials.items()), key=lambda deployment: deployment[1]
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


def _unfit_for_one_job(plan: Plan, site: Site) -> str | None:
    """Return why the plan's deployments cannot share jobs as configured by the site, None if they can."""
    count = site.deployments_per_job
    first, *others = plan.deployments
    if count == 1 or not others:
        return None
    if any((deployment.nodes, deployment.gpus) != (first.nodes, first.gpus) for deployment in others):
        return f"{plan.source}: {count} deployments go into a job, but these differ in nodes or GPUs. {ONE_EACH}"
    node = site.partitions.get(plan.partition or "")
    if site.placement == "isolate" or node is None:
        return None
    for needs, has, noun in (
        (first.nodes, 1, "nodes"),
        (count * first.gpus, node.gpus, "GPUs"),
        (count * max(deployment.cpus_per_task for deployment in plan.deployments), node.cpus, "CPUs"),
        (count * max(deployment.mem_gb for deployment in plan.deployments), node.mem_gb, "GB"),
    ):
        if needs > has:
            return f"{plan.source}: {count} deployments that share a node ask for {needs} {noun} of {has}. {ONE_EACH}"
    return None
