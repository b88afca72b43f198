"""Start of a persistent server: under a supervisor on this machine, or in a Slurm job that does the same."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from seamark.dispatch.dispatcher import dispatcher_of, job_of
from seamark.dispatch.job import JobSpec, resources_of
from seamark.errors import UserError
from seamark.model.results.deployment_record import DeploymentRecord, Endpoint, ServerRun
from seamark.model.site import Site
from seamark.services.images.study_images import StudyImages
from seamark.services.persistent.instance import STANDING, Instance
from seamark.services.persistent.request import ValidatedRequest
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import read_record

POLL_S = 1.0


def serve(instance: Instance, validated: ValidatedRequest, site: Site) -> Endpoint:
    """Start the server under a supervisor on this machine; return its endpoint.json."""
    images = StudyImages(study=validated.study)
    return servers.serve(
        validated.deployment,
        validated.service,
        site,
        instance.folder,
        scenario=STANDING,
        seed=validated.study.plan.seed,
        locks=validated.study.locks,
        image=images.of_server(validated.service, validated.study.plan.container),
        part_images=images.of_parts(validated.service),
        client=images.of_client(validated.service),
        binds=validated.study.plan.binds,
        evict=False,
    )


def start_here(instance: Instance, validated: ValidatedRequest) -> Endpoint:
    """Start the server on this machine. Its lease is the requested time and is never renewed."""
    try:
        answer = serve(instance, validated, replace(validated.study.site, lease_s=validated.request.time_s))
    except BaseException:
        instance.stop()
        raise
    if not answer.ok:
        instance.settle()
    return answer


def limit_min(time_s: float) -> int:
    """Return the time limit of a server's job in minutes, the unit of Slurm's limits."""
    return math.ceil(time_s / 60)


def submit(instance: Instance, validated: ValidatedRequest) -> str:
    """Submit the Slurm job of a server; return its id.

    Raises SiteError when Slurm refuses or is missing, UserError for a time beyond the limit of the QoS.
    """
    deployment, plan = validated.deployment, validated.study.plan
    site = validated.study.site
    limit_s = site.qos.get(plan.qos or "")
    if limit_s is not None and validated.request.time_s > limit_s:
        instance.remove()
        raise UserError(
            f"--time: {validated.request.time_s:g} s exceed the limit of the QoS '{plan.qos}', {limit_s} s: the"
            " job would never start. Request less, or another --qos."
        )
    command = [sys.executable, "-m", "seamark.services.persistent.job", str(instance.root.resolve())]
    time_min = limit_min(validated.request.time_s)
    try:
        job = JobSpec(
            command=command,
            name=f"seamark-{instance.id}",
            logs=instance.logs.resolve(),
            folder=validated.study.root,
            resources=resources_of(plan, deployment, validated.service, time_min=time_min),
            options=site.job_options,
        )
        dispatcher = dispatcher_of(site)
        number = dispatcher.submit(job, site)
    except BaseException:
        instance.remove()
        raise
    instance.note(job=number, dispatcher=dispatcher.name)
    return number


def wait(instance: Instance, number: str, report: Callable[[str], None]) -> ServerRun:
    """Wait until the server of a job answers or has failed; return its endpoint.json. `report` gets job states."""
    while True:
        answer = read_record(instance.folder.endpoint, Endpoint)
        if answer is not None and (not answer.ok or servers.alive(instance.folder)):
            return answer
        job = job_of(instance.dispatcher, number)
        if job is None:
            return read_record(instance.folder.record, DeploymentRecord) or _unserved(instance, number)
        where = f"({job.reason})" if job.state == "PENDING" else f"on {job.nodes}"
        report(f"job {number}: {job.state.lower()} {where}")
        time.sleep(POLL_S)


def _unserved(instance: Instance, number: str) -> Endpoint:
    log = instance.logs / f"seamark-{instance.id}_{number}.err"
    lines = log.read_text(errors="replace").splitlines()[-20:] if log.is_file() else []
    reason = f"Its job {number} ended before its server answered. Its output: {log}"
    return Endpoint(status="failed", category="interrupted", reason=reason, log_tail=tuple(lines))
