"""Members: the servers of a deployment whose trials have several parties. Each has a supervisor of its own."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from seamark.dispatch.identity import allocation, node
from seamark.dispatch.placement import (
    PartyMachine,
    Place,
    PlacedParty,
    placement_of,
    places,
    threads_and_cores,
)
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.model.results.deployment_record import Endpoint, WarmUp
from seamark.model.trial import PARTY, SCHEMA_VERSION, Deployment
from seamark.platform.pinning import cores_here
from seamark.services.supervisor.events import timestamp
from seamark.storage.documents import read_or_none, write
from seamark.telemetry.gpu import chosen_gpus
from seamark.trials.deployment_context import DeploymentContext


def place_of(context: DeploymentContext) -> Place | None:
    """Return the place of a member on this machine, None for the server of a deployment without members.

    Raises UserError if the placement cannot be had here, or a user's own policy gives a wrong answer.
    """
    if PARTY not in context.deployment.id:
        return None
    return _divided(context)[2][_name(context.deployment)]


def given_threads(context: DeploymentContext, loaded: Collection[str]) -> tuple[int, int] | None:
    """Return threads and cores of the parties `loaded`, by their names, as `threads_and_cores` does; `context` is
    that of any member. Raises UserError as `place_of` does."""
    parties, machine, found = _divided(context)
    return threads_and_cores([party for party in parties if party.name in loaded], found, machine)


def _divided(context: DeploymentContext) -> tuple[Sequence[PlacedParty], PartyMachine, Mapping[str, Place]]:
    """Return all parties of a member's deployment, this machine, and the place of each party by name."""
    whole = context.study.deployment(context.scenario, context.deployment.whole)
    machine = PartyMachine(cores=tuple(cpu for core in cores_here() for cpu in core), gpus=_gpus_here(whole))
    parties = [
        PlacedParty(
            name=_name(member), in_client=context.study.services[member.service].server is None, gpus=member.gpus
        )
        for member in whole.members
    ]
    try:
        policy = placement_of(str(whole.placement))
    except ValueError as error:
        raise UserError(f"placement: {error}") from None
    return parties, machine, places(policy, parties, machine)


def placed(job: LoadJob, place: Place | None) -> LoadJob:
    """Return the load of a party as its place has it."""
    if place is None:
        return job
    return replace(job, niceness=place.niceness, threads=place.threads, gpus=place.gpus)


def write_whole_endpoint(context: DeploymentContext) -> None:
    """Write the endpoint.json of a deployment with members from theirs: it is up if one of them is."""
    found = {
        _name(member.deployment): read_or_none(member.folder.endpoint, Endpoint) or Endpoint(status="failed")
        for member in context.members
    }
    failed = {name: endpoint for name, endpoint in found.items() if not endpoint.ok}
    first = next(iter(failed.values()), None)
    reasons = "; ".join(f"{name}: {endpoint.reason}" for name, endpoint in failed.items())
    starts = [endpoint.started_at for endpoint in found.values() if endpoint.started_at]
    up = len(failed) < len(found)
    endpoint = Endpoint(
        schema_version=SCHEMA_VERSION,
        status="ok" if up else "failed",
        category=None if up or first is None else first.category,
        reason=reasons or None,
        deployment=context.deployment.id,
        scenario=context.scenario,
        service=context.service.name,
        runtime=context.site.runtime,
        node=node(),
        slurm_job_id=allocation(),
        gpus=context.deployment.gpus,
        started_at=min(starts, default=None),
        ready_at=timestamp(),
        server_identity=context.server,
        phases={f"{name}_s": sum(filter(None, endpoint.phases.values())) for name, endpoint in found.items()},
    )
    write(context.folder.endpoint, endpoint)


def write_whole_warm_up(context: DeploymentContext) -> None:
    """Write the warmup.json of a deployment with members from theirs."""
    found = [read_or_none(member.folder.warmup, WarmUp) for member in context.members]
    status = "ok" if all(warm_up is None or warm_up.status != "failed" for warm_up in found) else "failed"
    requests = sum(warm_up.requests or 0 for warm_up in found if warm_up is not None)
    write(context.folder.warmup, WarmUp(schema_version=SCHEMA_VERSION, status=status, requests=requests))


def _name(member: Deployment) -> str:
    return member.id.partition(PARTY)[2]


def _gpus_here(whole: Deployment) -> tuple[int, ...]:
    """Return the indexes of the GPUs that all members together may use. Raises UserError for GPUs by UUID."""
    given = chosen_gpus(whole.gpus)
    if not all(gpu.isdigit() for gpu in given):
        names = ", ".join(given)
        raise UserError(
            f"CUDA_VISIBLE_DEVICES names {names}: parties divide GPUs by index. Set it to indexes, as 0,1."
        )
    return tuple(map(int, given))
