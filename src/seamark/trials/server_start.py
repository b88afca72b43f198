"""Start of a deployment's server: serve, warm up, and restart after a death between two trials."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError
from seamark.model.results.deployment_record import Endpoint, WarmUp
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.device_locks import device_of_lane
from seamark.storage.documents import read, write
from seamark.storage.redaction import hidden
from seamark.telemetry.provenance.software import container_around_us
from seamark.trials import sidecar
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.gateway import known_gateway
from seamark.trials.load_lock import exclusive_load
from seamark.trials.measure import measure
from seamark.trials.members import place_of, placed, start_daemon, write_whole_endpoint, write_whole_warm_up
from seamark.trials.repeated_failures import NOT_TRIED, UNCOUNTED, counted_of, note_death, run_of, why_not_tried

WARM_UP_S = 0.3


def serve(context: DeploymentContext) -> None:
    """Start the deployment's server, or those of its members; endpoint.json has the outcome. Never raises for a
    failure of the service."""
    if folder := os.environ.get(sidecar.FOLDER):
        if why := sidecar.ask(Path(folder), context.deployment.id):
            for served in context.deployment.served:
                servers.stop(context.results.deployment(served.id))
            leave_out(context, "server_never_healthy", why)
        return
    if context.deployment.members:
        for member in context.members:
            serve(member)
        write_whole_endpoint(context)
        return
    run = run_of(os.environ)
    counted = counted_of(context.service.name, context.deployment.settings)
    if why := why_not_tried(context.results, counted, run):
        leave_out(context, NOT_TRIED, why)
        return
    try:
        place = place_of(context)
        if place and place.share and place.share.pipes:
            start_daemon(context)
    except UserError as mistake:  # this machine has too little for the placement
        leave_out(context, "setup_failed", str(mistake))
        return
    trials = context.study.whole.trials_of(context.scenario, context.deployment.id)
    answer = servers.serve_planned(
        context.study,
        context.scenario,
        context.deployment,
        context.site,
        context.folder,
        shards=max((trial.load.shards for trial in trials), default=1),  # no set may load a member
        place=place,
        identity=context.server,
        gateway=known_gateway(context),
        evict=device_of_lane() is None,  # servers of other lanes have devices of their own
    )
    if not answer.ok and answer.category not in UNCOUNTED:
        note_death(
            context.results,
            counted,
            run,
            kind="deployment",
            name=context.deployment.id,
            said=f"{answer.category}: {answer.reason}",
            tail=answer.log_tail,
        )


def leave_out(context: DeploymentContext, category: str, reason: str) -> None:
    """Write endpoint.json, and those of members, with the reason why no server is started."""
    if context.deployment.members:
        for member in context.members:
            leave_out(member, category, reason)
        write_whole_endpoint(context)
        return
    servers.leave_out(
        context.deployment, context.service, context.site, context.folder, category=category, reason=reason
    )


def warm_up(context: DeploymentContext, parent_pid: int) -> None:
    """Send a server its first requests, a load like that of its first trial; warmup.json counts them, without times.
    Members get theirs one after another, each like its own first trial."""
    with exclusive_load(context, parent_pid):
        for member in context.members:
            first = next(iter(context.study.whole.trials_of(context.scenario, member.deployment.id)), None)
            if first is not None:
                write(member.folder.warmup, _send_first_requests(member, first, parent_pid))
        if context.members:
            write_whole_warm_up(context)
        else:
            first = context.study.trials_of(context.scenario, context.deployment.id)[0]
            write(context.folder.warmup, _send_first_requests(context, first, parent_pid))


def living_endpoint(context: DeploymentContext, trial: Trial, parent_pid: int) -> tuple[Endpoint, str | None]:
    """Return endpoint.json. A server that died since it answered is restarted and warmed up first; the second value
    is the reason. Raises SystemExit if the server was ended on purpose."""
    if why := context.withdrawn():
        raise SystemExit(why)
    endpoint = read(context.folder.endpoint, Endpoint)
    if not endpoint.ok or servers.alive(context.folder):
        return endpoint, None
    end = servers.why_ended(context.folder)
    why = f"the server had ended before this trial ({end.why if end else 'no trace'})"
    if container_around_us() is not None:
        reason = f"{why}, and a load inside a container cannot start it again. `bench retry` measures it."
        return replace(endpoint, status="failed", category="server_died", reason=reason), None
    serve(context)
    _send_first_requests(context, trial, parent_pid)
    return read(context.folder.endpoint, Endpoint), why


def _send_first_requests(context: DeploymentContext, trial: Trial, parent_pid: int) -> WarmUp:
    endpoint, warm_up = (
        read(context.folder.endpoint, Endpoint),
        WarmUp(schema_version=SCHEMA_VERSION, status="failed"),
    )
    if not endpoint.ok:
        return warm_up
    whole = context.service.server is None and trial.load.until_last_reply
    if context.service.load == "program" or whole:  # it would be built, or run, whole
        return replace(warm_up, status="skipped")
    parts = context.folder.runtime / "warmup"
    python, on_tick = context.client_python(endpoint), context.on_tick(parent_pid)
    try:
        job = placed(context.load_job(trial, endpoint), place_of(context))
        shorter = {"duration_s": WARM_UP_S, "warmup_s": 0.0, "limit_s": None, "caches": None}
        job = replace(job, settings={**job.settings, **shorter}, seed=trial.seed + 1)
        outcome = measure(job, parts, python=python, parent_pid=parent_pid, on_tick=on_tick).outcome
        status = "ok" if outcome.completed else "failed"
        warm_up = replace(warm_up, status=status, requests=outcome.completed)
    except LoadError as error:
        warm_up = replace(warm_up, reason=error.reason, log_tail=tuple(error.log_tail))
        warm_up = hidden(warm_up, context.secrets)
    except UserError as error:  # its data set has gone
        warm_up = replace(warm_up, reason=str(error))
    shutil.rmtree(parts, ignore_errors=True)
    return warm_up
