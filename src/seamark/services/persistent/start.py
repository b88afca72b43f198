"""Start of a persistent server: under a supervisor on this machine, or in a Slurm job that does the same."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from seamark.dispatch.resources import gpu_request
from seamark.dispatch.slurm import commands
from seamark.errors import UserError
from seamark.model.site import Site
from seamark.services.images.study_images import StudyImages
from seamark.services.persistent.instance import STANDING, Instance
from seamark.services.persistent.request import ValidatedRequest
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import read_control_file

LOOK_S = 1.0


def serve(instance: Instance, wanted: ValidatedRequest, site: Site) -> Mapping[str, Any]:
    """Start the server under a supervisor on this machine; return its endpoint.json."""
    images = StudyImages(study=wanted.study)
    return servers.serve(
        wanted.deployment,
        wanted.service,
        site,
        instance.folder,
        scenario=STANDING,
        seed=wanted.study.plan.seed,
        locks=wanted.study.locks,
        image=images.of_server(wanted.service, wanted.study.plan.container),
        part_images=images.of_parts(wanted.service),
        client=images.of_client(wanted.service),
        binds=wanted.study.plan.binds,
        evict=False,
    )


def start_here(instance: Instance, wanted: ValidatedRequest) -> Mapping[str, Any]:
    """Start the server on this machine. Its lease is its whole life: nobody renews it."""
    try:
        answer = serve(instance, wanted, replace(wanted.study.site, lease_s=wanted.request.time_s))
    except BaseException:
        instance.stop()
        raise
    if answer["status"] != "ok":
        instance.settle()
    return answer


def limit_min(time_s: float) -> int:
    """Return the time limit of a server's job in minutes, which is what Slurm counts in."""
    return math.ceil(time_s / 60)


def submit(instance: Instance, wanted: ValidatedRequest) -> str:
    """Submit the Slurm job that serves it; return the job's number. SiteError when Slurm refuses or is not there,
    UserError for a time that the QoS does not give."""
    deployment, plan = wanted.deployment, wanted.study.plan
    site = wanted.study.site
    limit_s = site.qos.get(plan.qos or "")
    if limit_s is not None and wanted.request.time_s > limit_s:
        instance.forget()
        raise UserError(
            f"--time: {wanted.request.time_s:g} s are more than the QoS '{plan.qos}' gives a job: {limit_s} s. It"
            " would wait for ever. Ask for less, or for another --qos."
        )
    options = {
        "account": plan.account,
        "partition": plan.partition,
        "qos": plan.qos,
        "nodes": deployment.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": deployment.cpus_per_task,
        "mem": f"{deployment.mem_gb}G",
        **gpu_request(deployment, wanted.service, site, plan.partition),
        "time": limit_min(wanted.request.time_s),
    }
    words = [sys.executable, "-m", "seamark.services.persistent.job", str(instance.root.resolve())]
    try:
        number = commands.sbatch(
            commands.Batch(
                words=words,
                name=f"seamark-{instance.id}",
                logs=instance.logs.resolve(),
                folder=wanted.study.root,
                options=options,
                more=site.job_options,
            )
        )
    except BaseException:
        instance.forget()
        raise
    instance.note(job=number)
    return number


def wait(instance: Instance, number: str, say: Callable[[str], None]) -> Mapping[str, Any]:
    """Wait until the job's server answers or has failed; return what became of it. `say` hears what is waited for."""
    while True:
        answer = read_control_file(instance.folder.endpoint)
        if answer is not None and (answer.get("status") != "ok" or servers.alive(instance.folder)):
            return answer
        job = commands.job(number)
        if job is None:
            return read_control_file(instance.folder.record) or _never(instance, number)
        say(
            f"job {number}: {job.state.lower()}" + (f" ({job.why})" if job.state == "PENDING" else f" on {job.nodes}")
        )
        time.sleep(LOOK_S)


def _never(instance: Instance, number: str) -> Mapping[str, Any]:
    log = instance.logs / f"seamark-{instance.id}_{number}.err"
    lines = log.read_text(errors="replace").splitlines()[-20:] if log.is_file() else []
    return {
        "status": "failed",
        "category": "interrupted",
        "reason": f"Its job {number} ended before its server answered; its output is {log}.",
        "log_tail": lines,
    }
