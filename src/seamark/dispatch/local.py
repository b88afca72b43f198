"""Dispatch without a batch system: everything runs on this machine, started by the process that wants it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from seamark.dispatch.job import Job, JobResources, JobSpec, Node
from seamark.errors import SiteError
from seamark.model.site import Site
from seamark.model.trial import Plan


class LocalDispatcher:
    """This machine: no queue, no limits, no other nodes."""

    name = "local"
    title = "batch"
    client: str | None = None
    list_command: str | None = None
    cancel_command: str | None = None

    def misfit(self, plan: Plan, site: Site) -> str | None:
        """Return None: a deployment may take as long as it needs."""
        return None

    def executor_resources(self, resources: JobResources, site: Site) -> Mapping[str, str | int]:
        """Return nothing: Snakemake's local executor starts processes."""
        return {}

    def prepare_executor(self, root: Path, site: Site) -> None:
        """Do nothing: Snakemake's local executor is used as it is."""

    def submit(self, job: JobSpec, site: Site) -> str:
        """Raise SiteError: there is no queue."""
        self._refuse()

    def run(self, job: JobSpec, site: Site) -> tuple[str, int]:
        """Raise SiteError: there is no queue."""
        self._refuse()

    def jobs(self, folder: Path | None = None) -> list[Job]:
        """Return nothing: there is no queue."""
        return []

    def cancel(self, ids: Sequence[str]) -> None:
        """Do nothing: there is no job."""

    def losses(self, root: Path, deployments: Iterable[str]) -> list[str]:
        """Return nothing: Snakemake's log says why a process failed."""
        return []

    def forget_losses(self, root: Path) -> None:
        """Do nothing: none are recorded."""

    def nodes(self, count: int) -> tuple[Node, ...]:
        """Raise SiteError: one machine has one node."""
        raise SiteError(
            f"a deployment of {count} nodes needs a batch job of as many, and this process runs in none. Run it on a"
            " site with a batch system, or within such a job; or set 'resources: {nodes: 1}'."
        )

    def address_of(self, node: str) -> str:
        """Return the node's name."""
        return node

    def step(
        self, command: Sequence[str], *, tasks: int, nodes: Sequence[str] = (), count: int | None = None
    ) -> list[str]:
        """Raise SiteError: there are no other nodes."""
        self._refuse()

    def step_environment(self) -> dict[str, str]:
        """Raise SiteError: there are no other nodes."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise SiteError("this machine has no batch system. Name a site that has one, with --site.")
