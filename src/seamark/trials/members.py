"""Members: the servers of a deployment whose trials have several parties. Each has a supervisor of its own."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from seamark.dispatch.identity import allocation, node
from seamark.dispatch.job import gpus_of_party
from seamark.dispatch.placement import (
    PartyMachine,
    Place,
    PlacedParty,
    placement_of,
    places,
    threads_and_cores,
)
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.model.parties import GPU_SHARING, GpuSharing
from seamark.model.plurals import counted
from seamark.model.results.deployment_record import Endpoint, WarmUp
from seamark.model.trial import PARTY, SCHEMA_VERSION, Deployment
from seamark.platform.pinning import cores_here, gpu_variables
from seamark.services.supervisor.events import timestamp
from seamark.services.supervisor.mps_daemon import pipes_of, serve_daemon
from seamark.storage.documents import read_or_none, write
from seamark.telemetry.gpu import chosen_gpus, devices_of
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
    services = context.study.services
    parties = [
        PlacedParty(
            name=_name(member),
            in_client=services[member.service].server is None,
            gpus=gpus_of_party(member.gpus, whole.nodes, services[member.service]),
        )
        for member in whole.members
    ]
    try:
        policy = placement_of(str(whole.placement))
        sharing = GpuSharing.of(whole.settings.get(GPU_SHARING.name))
    except ValueError as error:
        raise UserError(f"placement: {error}") from None
    devices = _devices_here(whole, sharing, sum(party.gpus for party in parties))
    machine = PartyMachine(
        cores=tuple(cpu for core in cores_here() for cpu in core),
        gpus=tuple(devices),
        gpus_in_common=sharing is not None and sharing.in_common,
    )
    found = places(policy, parties, machine)
    if sharing is None:
        return parties, machine, found
    given = [gpu for place in found.values() for gpu in place.gpus]
    if not sharing.in_common and (twice := [gpu for gpu in devices if given.count(gpu) > 1]):
        text = f"placement {whole.placement} gives GPU {twice[0]} to two parties, and gpu_sharing is {sharing.way}."
        raise UserError(text)
    pipes = pipes_of(context.results.deployment(whole.id)) if sharing.way == "mps" else None
    shared = {}
    for name, place in found.items():
        share = replace(sharing, devices=tuple(devices[gpu] for gpu in place.gpus), pipes=pipes)
        shared[name] = replace(place, share=share) if place.gpus else place
    return parties, machine, shared


def start_daemon(context: DeploymentContext) -> None:
    """Start the MPS daemon of a member's deployment for the GPUs of all parties, unless it runs. Raises SiteError as
    `serve_daemon` does."""
    whole = context.study.deployment(context.scenario, context.deployment.whole)
    shares = [place.share for place in _divided(context)[2].values() if place.share]
    devices = tuple(dict.fromkeys(device for share in shares for device in share.devices))
    serve_daemon(whole, devices, context.site, context.results.deployment(whole.id), context.study.locks)


def placed(job: LoadJob, place: Place | None) -> LoadJob:
    """Return the load of a party as its place has it."""
    if place is None:
        return job
    variables = gpu_variables(place.gpus, place.share)
    return replace(job, niceness=place.niceness, threads=place.threads, gpu_variables=variables)


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


def _devices_here(whole: Deployment, sharing: GpuSharing | None, wanted: int) -> Mapping[int, str]:
    """Return what all members together may use on this node: UUIDs by the index of a GPU, or by a number from 0 of a
    MIG slice; "" where no sharing is stated.

    Raises UserError for GPUs by UUID that parties divide by index, SiteError for slices that are not there and where
    NVML cannot tell UUIDs.
    """
    given = chosen_gpus(-(-whole.gpus // whole.nodes))
    by_slice = sharing is not None and sharing.way == "mig"
    if not by_slice and not all(gpu.isdigit() for gpu in given):
        names = ", ".join(given)
        raise UserError(
            f"CUDA_VISIBLE_DEVICES names {names}: parties divide GPUs by index. Set it to indexes, as 0,1."
        )
    if sharing is None:
        return dict.fromkeys(map(int, given), "")
    found = devices_of(given)
    if by_slice:
        slices = [uuid for uuid, profile in found.items() if profile == sharing.profile]
        if len(slices) < wanted:
            profiles = ", ".join(filter(None, found.values())) or "none"
            raise SiteError(
                f"gpu_sharing: the parties need {counted(wanted, 'MIG slice')} {sharing.profile}, and there are"
                f" {len(slices)} (slices of the GPUs here: {profiles}). Seamark divides no GPU: have an administrator"
                f" do it, `nvidia-smi mig -cgi {sharing.profile} -C`, or name a profile that is there."
            )
        return dict(enumerate(slices))
    if any(found.values()) or len(found) != len(given):
        why = "are divided into MIG slices: write {mig: PROFILE}" if found else "have no UUIDs that NVML can tell"
        raise SiteError(f"gpu_sharing: {sharing.way} needs whole GPUs, and those here ({', '.join(given)}) {why}.")
    return dict(zip(map(int, given), found, strict=True))
