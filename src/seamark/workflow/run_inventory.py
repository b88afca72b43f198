"""Inventory of a study: its run, devices of lanes, batch jobs, servers with monitors, the log of its latest run."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seamark.dispatch.dispatcher import dispatcher_of
from seamark.dispatch.job import Job
from seamark.errors import SiteError
from seamark.planning.study import Study
from seamark.services.persistent.instance import STANDING, instances
from seamark.services.persistent.listing import list_servers
from seamark.services.supervisor.device_locks import held_here
from seamark.storage.paths import DeploymentFolder
from seamark.workflow.snakemake_cli import runs_in

YOUNG_S = 30.0
"""A monitor whose last reading is older than this (or than ten of its intervals) is silent."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """One running thing: a run, device, job, server, monitor or log. `where` is an endpoint, a node or a file."""

    kind: str
    name: str
    state: str
    where: str | None = None
    job: str | None = None


def components(study: Study) -> list[Component]:
    """Return everything of a study that runs now, and the log of its latest run."""
    return [*_runs(study), *devices_of(study), *_jobs(study), *_servers(study), *_logs(study)]


def unfinished_jobs(study: Study) -> list[Job]:
    """Return the batch jobs of a study that have not ended, without those of persistent servers.

    Raises SiteError when the batch system does not answer.
    """
    apart = {instance.job for instance in instances(study.results)}
    return [job for job in dispatcher_of(study.site).jobs(study.root) if job.id not in apart]


def _runs(study: Study) -> Iterator[Component]:
    for process in runs_in(study.root):
        yield Component(kind="run", name=f"process {process.pid}", state="running")


def devices_of(study: Study) -> Iterator[Component]:
    """Yield the devices that lanes of the study hold, each with the deployment that it serves."""
    for slot, holder in held_here():
        if holder.study == str(study.root) and holder.folder:
            folder = Path(holder.folder)
            yield Component(kind="device", name=slot, state="busy", where=folder.name)


def _jobs(study: Study) -> Iterator[Component]:
    try:
        for job in unfinished_jobs(study):
            where = job.nodes or job.reason
            yield Component(kind="job", name=job.name, state=job.state.lower(), where=where, job=job.id)
    except SiteError as silent:
        yield Component(kind="job", name=dispatcher_of(study.site).title, state="unknown", where=str(silent))


def _servers(study: Study) -> Iterator[Component]:
    for server in list_servers(study.results):
        scenario, _, deployment = server.id.partition("/")
        if deployment and scenario != study.scenario.name:
            continue
        yield Component(
            kind="server", name=deployment or server.id, state=server.state, where=server.endpoint, job=server.job
        )
        folder = (
            study.folder(scenario).deployment(deployment)
            if deployment
            else DeploymentFolder(root=study.results / STANDING / server.id)
        )
        if (state := _monitor(folder, study.site.telemetry_interval_s)) is not None:
            yield Component(kind="monitor", name=deployment or server.id, state=state, where=str(folder.telemetry))


def _monitor(folder: DeploymentFolder, interval_s: float) -> str | None:
    if not folder.telemetry.exists():
        return None
    age_s = time.time() - folder.telemetry.stat().st_mtime
    return "sampling" if age_s < max(YOUNG_S, 10 * interval_s) else "silent"


def _logs(study: Study) -> Iterator[Component]:
    logs = sorted((study.folder(study.scenario.name).root / "logs").glob("submit-*.log"))
    if logs:
        yield Component(kind="log", name="latest run", state="kept", where=str(logs[-1]))
