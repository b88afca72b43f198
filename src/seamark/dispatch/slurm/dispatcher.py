"""Dispatch by Slurm: the Protocol of dispatcher.py in terms of Slurm's commands."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seamark.dispatch.identity import allocation
from seamark.dispatch.job import Job, JobSpec, Node, Resources
from seamark.dispatch.slurm import allocation as allocated
from seamark.dispatch.slurm import commands, limits
from seamark.dispatch.slurm.job_states import record_of, recorded_jobs
from seamark.dispatch.slurm.lost_jobs import lost, refusals, refusals_file, refused
from seamark.errors import SiteError
from seamark.model.site import Site
from seamark.model.trial import Plan


class Slurm:
    """Slurm, by its commands on a login node, and by srun within a job."""

    name = "slurm"
    client: str | None = "sbatch"

    def misfit(self, plan: Plan, site: Site) -> str | None:
        """Return why a job of the plan is longer than its QoS or partition allows, or larger than a node."""
        return limits.overlong(plan, site) or limits.unfit_for_one_job(plan, site)

    def executor_resources(self, resources: Resources, site: Site) -> Mapping[str, str | int]:
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
