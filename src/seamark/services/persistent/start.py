"""Start of a persistent server: under a supervisor on this machine, or in a batch job that does the same.

The job runs `python -m seamark.services.persistent.start FOLDER` in the study. It renews the lease of the supervisor:
when the whole job is killed, by whatever means, the server ends with the lease.
"""

import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from seamark.dispatch.dispatcher import dispatcher_here, dispatcher_of, job_of
from seamark.dispatch.identity import node
from seamark.dispatch.job import JobSpec, resources_of
from seamark.errors import UserError
from seamark.model.results.deployment_record import DeploymentRecord, Endpoint, ServerRun
from seamark.model.site import Site
from seamark.platform.ports import LOCAL_HOSTS
from seamark.platform.process_tree import exit_on_signals
from seamark.services.persistent.instance import STANDING, Instance
from seamark.services.persistent.request import ValidatedRequest, validate_request
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.events import log_event, log_tail
from seamark.storage.documents import read_or_none

POLL_S = 1.0
END_EARLY_S = 15.0
"""A job ends its server this long before its own time limit, so that the server shuts down in order."""


def _serve(instance: Instance, validated: ValidatedRequest, site: Site) -> Endpoint:
    """Start the server under a supervisor on this machine; return its endpoint.json."""
    return servers.serve_planned(validated.study, STANDING, validated.deployment, site, instance.folder, evict=False)


def start_here(instance: Instance, validated: ValidatedRequest) -> Endpoint:
    """Start the server on this machine. Its lease is the requested time and is never renewed."""
    try:
        answer = _serve(instance, validated, replace(validated.study.site, lease_s=validated.request.time_s))
    except BaseException:
        instance.stop()
        raise
    if not answer.ok:
        instance.settle()
    return answer


def _limit_min(time_s: float) -> int:
    """Return the time limit of a server's job in minutes, the unit of a batch system's limits."""
    return math.ceil(time_s / 60)


def submit(instance: Instance, validated: ValidatedRequest) -> str:
    """Submit the batch job of a server; return its id.

    Raises SiteError when the batch system refuses it or is missing, UserError for a time beyond the limit of the QoS.
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
    command = [sys.executable, "-m", "seamark.services.persistent.start", str(instance.root.resolve())]
    time_min = _limit_min(validated.request.time_s)
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
    instance.note_job(number, dispatcher.name)
    return number


def wait(instance: Instance, number: str, report: Callable[[str], None]) -> ServerRun:
    """Wait until the server of a job answers or has failed; return its endpoint.json. `report` gets job states."""
    while True:
        answer = read_or_none(instance.folder.endpoint, Endpoint)
        if answer is not None and (not answer.ok or servers.alive(instance.folder)):
            return answer
        job = job_of(instance.dispatcher, number)
        if job is None:
            return read_or_none(instance.folder.record, DeploymentRecord) or _unserved(instance, number)
        where = f"({job.reason})" if job.state == "PENDING" else f"on {job.nodes}"
        report(f"job {number}: {job.state.lower()} {where}")
        time.sleep(POLL_S)


def _unserved(instance: Instance, number: str) -> Endpoint:
    log = instance.logs / f"seamark-{instance.id}_{number}.err"
    reason = f"Its job {number} ended before its server answered. Its output: {log}"
    return Endpoint(status="failed", category="interrupted", reason=reason, log_tail=tuple(log_tail(log)))


def serve_until_end(instance: Instance, root: Path) -> int:
    """Serve until the server ends, the time is over or SIGTERM arrives; return the exit code."""
    with exit_on_signals(signal.SIGTERM):
        validated = validate_request(root, instance)
        time_s = validated.request.time_s
        ends_s = time.monotonic() + min(time_s, _limit_min(time_s) * 60 - END_EARLY_S)
        site = validated.study.site
        if site.address in LOCAL_HOSTS:
            site = replace(site, address=dispatcher_here().address_of(node()))
        why = "sigterm"
        try:
            answer = _serve(instance, validated, site)
            log_event(
                "persistent-server-started",
                id=instance.id,
                status=answer.status,
                host=answer.host,
                ports=dict(answer.ports),
            )
            if not answer.ok:
                return 1
            while servers.alive(instance.folder):
                if time.monotonic() >= ends_s:
                    why = "time-limit"
                    return 0
                servers.renew(instance.folder)
                time.sleep(POLL_S)
            return 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            servers.stop(instance.folder, why)
            instance.close()


def main(argv: list[str]) -> int:
    """Serve the persistent server of a folder; print a mistake on standard error."""
    try:
        return serve_until_end(Instance(root=Path(argv[0])), Path.cwd())
    except UserError as mistake:
        print(mistake, file=sys.stderr)
        return mistake.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
