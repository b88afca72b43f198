"""Orphan jobs: batch jobs and servers of a killed run, ended before the next measures."""

import re

from seamark.dispatch.dispatcher import dispatcher_of, end_jobs
from seamark.dispatch.job import Job
from seamark.errors import SiteError
from seamark.planning.study import Study
from seamark.services.supervisor.control_files import (
    is_alive,
    read_heartbeat,
    request_stop,
    supervisors_below,
    wait_until_gone,
)

OF_A_RUN = re.compile(r"(?:^|_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""Names that Snakemake's Slurm executor gives the jobs of a run."""

JOBS_S = 120.0
SUPERVISORS_S = 30.0


def end_jobs_left(study: Study) -> list[Job]:
    """End the batch jobs that an earlier run of the study submitted, with their servers; return them.

    Only while no run is active: two jobs must never measure one deployment at once. Jobs of persistent servers and
    exported ones have other names, and stay. Raises SiteError when the batch system does not answer, or when a job
    does not end.
    """
    dispatcher = dispatcher_of(study.site)
    jobs = [job for job in dispatcher.jobs(study.root) if OF_A_RUN.search(job.name)]
    numbers = [job.id for job in jobs]
    if left := end_jobs(dispatcher, numbers, within_s=JOBS_S):
        states = ", ".join(f"{job.id} ({job.state.lower()} on {job.nodes or 'no node'})" for job in left)
        raise SiteError(
            f"{study.root}: jobs of an earlier run do not end: {states}. Nothing is measured beside them. Submit"
            f" again when `{dispatcher.list_command}` does not show them any more; a node that is lost must be given"
            " up by its site first."
        )
    _end_servers(study, numbers)
    return jobs


def _end_servers(study: Study, numbers: list[str]) -> None:
    """End supervisors of these jobs: without cgroups in Slurm they outlive their job for a while."""
    for control in supervisors_below(study.results):
        beat = read_heartbeat(control)
        if beat and beat.allocation in numbers and is_alive(control):
            request_stop(control, "interrupted")
            wait_until_gone(control, SUPERVISORS_S)
