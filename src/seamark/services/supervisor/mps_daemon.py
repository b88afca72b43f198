"""MPS daemon of a deployment, through which processes of several parties compute on a GPU at the same time.

It is a member of the deployment that no scenario names, under a supervisor as every server is. Not run on a GPU here.
"""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from seamark.dispatch.placement import Place
from seamark.errors import SiteError
from seamark.model.parties import GpuSharing
from seamark.model.service import Health, Server, Service
from seamark.model.site import Site
from seamark.model.trial import PARTY, Deployment
from seamark.services.supervisor.control_files import control_files_of
from seamark.services.supervisor.deployment import alive, renew, serve, stop
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.mps_clients import CONTROL
from seamark.services.supervisor.node_locks import node_folder
from seamark.storage.paths import DeploymentFolder

MEMBER = "mps-daemon"
"""Its name among the members: no party can have one with '-'."""
LOGS = "CUDA_MPS_LOG_DIRECTORY"

SERVICE = Service(
    name="mps",
    component="other",
    summary="Control daemon of NVIDIA's Multi-Process Service",
    version="of the driver",
    licence="proprietary",
    driver="seamark.drivers.null:Null",  # without hooks
    workers="processes",
    settings=(),
    server=Server(
        # `quit` ends the MPS servers too; -t forces it for a client that hangs
        command=(
            "sh",
            "-c",
            f"trap 'echo quit -t 5 | {CONTROL}' TERM; {CONTROL} -f & wait $!; wait $!; code=$?; cat '{{data}}'/*.log;"
            ' rm -rf "{settings[pipes]}"; exit $code',
        ),
        setup=(("mkdir", "-p", "{settings[pipes]}"),),
        ports=(),
        environment={LOGS: "{data}"},
        # without a daemon CONTROL says so, and its exit code is not documented
        health=Health(
            probe="command",
            command=("sh", "-c", f"echo get_default_active_thread_percentage | {CONTROL} | grep -q '^[0-9]'"),
            timeout_s=30.0,
        ),
        stop_timeout_s=15.0,
    ),
)


def pipes_of(folder: DeploymentFolder) -> str:
    """Return the folder of the pipes of a deployment's daemon: a short path, since sockets lie in it, and a folder
    that no other user can make."""
    name = hashlib.sha256(os.path.realpath(folder.root).encode()).hexdigest()[:12]
    return str(node_folder() / f"mps-{name}")


def serve_daemon(
    deployment: Deployment, devices: tuple[str, ...], site: Site, folder: DeploymentFolder, locks: Path
) -> None:
    """Start the daemon of a deployment with members for these devices, unless it runs, and renew its lease.

    Raises SiteError where MPS is not installed or the daemon does not come up.
    """
    own = folder.member(MEMBER)
    if alive(own):
        renew(own)
        return
    if shutil.which(CONTROL) is None:
        raise SiteError(f"gpu_sharing: mps needs {CONTROL} on PATH: it comes with the NVIDIA driver.")
    pipes = pipes_of(folder)
    spec = LaunchSpec(
        deployment=replace(
            deployment,
            id=f"{deployment.id}{PARTY}{MEMBER}",
            service=SERVICE.name,
            settings={"pipes": pipes},
            gpus=0,  # the members measure them
            members=(),
        ),
        service=SERVICE,
        site=replace(site, runtime="venv"),
        folder=own,
        scenario=folder.root.parents[1].name,
        seed=0,
        place=Place(share=GpuSharing(way="mps", devices=devices, pipes=pipes)),
    )
    endpoint = serve(spec, locks, evict=False)
    if not endpoint.ok:
        raise SiteError(f"gpu_sharing: the MPS daemon did not start: {endpoint.reason} Its log: {own.server_log}.")


def renew_daemon(folder: DeploymentFolder) -> None:
    """Renew the lease of the daemon of a deployment that has one."""
    if control_files_of(folder.member(MEMBER)).root.exists():
        renew(folder.member(MEMBER))


def end_daemon(folder: DeploymentFolder) -> None:
    """End the daemon of a deployment, after its members."""
    own = folder.member(MEMBER)
    stop(own, "teardown")
    own.endpoint.unlink(missing_ok=True)
