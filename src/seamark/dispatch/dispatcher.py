"""The seam to batch systems: one Protocol, and which implementation a site has.

Slurm is selected by a site's `partitions`; a site without them runs on this machine. A further batch system is a
class in DISPATCHERS, a clause in `dispatcher_of`, and its environment variables in identity.py.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from seamark.dispatch.identity import allocation
from seamark.dispatch.job import Job, JobResources, JobSpec, Node
from seamark.dispatch.local import LocalDispatcher
from seamark.dispatch.slurm.dispatcher import Slurm
from seamark.model.site import Site
from seamark.model.trial import Plan


class Dispatcher(Protocol):
    """Allocation of machines to jobs. Stateless: the data of a job comes as arguments.

    Every method that calls a batch system raises SiteError if that does not answer.
    """

    name: str
    title: str
    """Its name in messages."""
    client: str | None
    """Program that submits jobs, which must be on PATH; None where jobs wait in no queue and run on this machine."""
    list_command: str | None
    """What a user types to list jobs; for messages."""
    cancel_command: str | None
    """What a user types before the id of a job to cancel it; for messages."""

    def misfit(self, plan: Plan, site: Site) -> str | None:
        """Return why the site would never start a job of the plan, and the remedy; None where each can start."""

    def executor_resources(self, resources: JobResources, site: Site) -> Mapping[str, str | int]:
        """Return a job's resources for Snakemake's executor, beyond memory and run time."""

    def prepare_executor(self, root: Path, site: Site) -> None:
        """Prepare Snakemake's executor for a run of the study at `root`. Only for the process of Snakemake."""

    def submit(self, job: JobSpec, site: Site) -> str:
        """Submit a job; return its id. Raises SiteError when it is refused."""

    def run(self, job: JobSpec, site: Site) -> tuple[str, int]:
        """Submit a job and wait for its end; return its id and exit code."""

    def jobs(self, folder: Path | None = None) -> list[Job]:
        """Return this user's jobs that have not ended, of all folders or of one."""

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs; those that have ended are passed over."""

    def losses(self, root: Path, deployments: Iterable[str]) -> list[str]:
        """Return a line for each job that the latest run of a study lost or could not submit: reason and remedy."""

    def forget_losses(self, root: Path) -> None:
        """Remove the records of an earlier run's jobs."""

    def nodes(self, count: int) -> tuple[Node, ...]:
        """Return `count` nodes of the allocation of this process, its own first. Raises SiteError if there are
        fewer."""

    def address_of(self, node: str) -> str:
        """Return the address by which other nodes reach a node, its name if none is known."""

    def step(
        self, command: Sequence[str], *, tasks: int, nodes: Sequence[str] = (), count: int | None = None
    ) -> list[str]:
        """Return the command line that runs `tasks` processes on nodes of this allocation: on those named, on `count`
        of them, or on all."""

    def step_environment(self) -> dict[str, str]:
        """Return the environment for the command line of a step: this process's, without its own job step."""


DISPATCHERS: Mapping[str, Dispatcher] = {"local": LocalDispatcher(), "slurm": Slurm()}


def dispatcher_of(site: Site) -> Dispatcher:
    """Return how jobs of a site are dispatched."""
    return DISPATCHERS["slurm" if site.partitions else "local"]


def dispatcher_here() -> Dispatcher:
    """Return the dispatcher of the allocation that this process runs in; the local one outside of an allocation."""
    return DISPATCHERS["slurm" if allocation() else "local"]


def batch_dispatcher(site: Site) -> Dispatcher:
    """Return the dispatcher of a site's batch jobs, such as builds of images, even if its trials run without one."""
    return dispatcher_of(site) if is_batch(site) else DISPATCHERS["slurm"]


def is_batch(site: Site) -> bool:
    """Return whether jobs of a site wait in a queue and run on other nodes than the one that submits them."""
    return dispatcher_of(site).client is not None


def leaves_this_machine(site: Site) -> bool:
    """Return whether a site runs its jobs elsewhere: on its batch system, or by an executor of its own profile."""
    return is_batch(site) or site.profile != Site.profile


def job_of(dispatcher: Dispatcher, id: str) -> Job | None:
    """Return a job of this user that has not ended, None otherwise."""
    return next((job for job in dispatcher.jobs() if job.id == id), None)


def end_jobs(dispatcher: Dispatcher, ids: Sequence[str], *, within_s: float) -> list[Job]:
    """Cancel jobs and wait for their end; return those that have not ended after `within_s`."""
    if not ids:
        return []
    dispatcher.cancel(ids)
    limit_s, wait_s = time.monotonic() + within_s, 0.2
    while left := [job for job in dispatcher.jobs() if job.id in ids]:
        if time.monotonic() >= limit_s:
            break
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, 5.0)
    return left
