"""List of the running servers of a study, persistent ones and those of trials; and whether one answers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from seamark.errors import UserError, did_you_mean
from seamark.model.results.deployment_record import DeploymentRecord, Endpoint, ServerRun
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.services.persistent.instance import STANDING, Instance, instances
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import control_files_of, read_heartbeat
from seamark.services.supervisor.events import FailedError
from seamark.services.supervisor.health import Probe
from seamark.storage.documents import read_or_none
from seamark.storage.paths import DEPLOYMENTS, DeploymentFolder

RETRY_S = 0.2


@dataclass(frozen=True, kw_only=True)
class ListedServer:
    """One server. `id` is that of a persistent server, or `scenario/deployment` for a server of trials.

    `node` is the node of its supervisor; `nodes` are all nodes with its processes.
    """

    id: str
    service: str | None
    state: str
    endpoint: str | None
    node: str | None
    job: str | None
    since: str | None
    nodes: tuple[str, ...] = ()
    why: str = ""


def list_servers(results: Path, *, ended: bool = False) -> list[ListedServer]:
    """Return the running servers, and with `ended` the persistent ones that have ended as well."""
    persistent = [_of_instance(instance) for instance in instances(results)]
    return [*(row for row in persistent if ended or row.state not in ("ended", "failed")), *_of_trials(results)]


def _of_instance(instance: Instance) -> ListedServer:
    state, why = instance.state()
    endpoint = instance.endpoint()
    run = endpoint or read_or_none(instance.folder.record, DeploymentRecord) or Endpoint()
    heartbeat = read_heartbeat(control_files_of(instance.folder))
    return ListedServer(
        id=instance.id,
        service=request.service if (request := instance.stored_request()) else None,
        state=state,
        endpoint=endpoint_text(run) if state == "running" else None,
        node=heartbeat.node if heartbeat else run.node,
        job=instance.job,
        since=(endpoint.ready_at if endpoint else None) or run.started_at,
        nodes=run.server_nodes or (),
        why=why,
    )


def _of_trials(results: Path) -> Iterator[ListedServer]:
    for path in sorted(file for pattern in DEPLOYMENTS for file in results.glob(f"{pattern}/endpoint.json")):
        folder = DeploymentFolder(root=path.parent)
        endpoint = read_or_none(path, Endpoint)
        if endpoint is None or folder.members.exists() or not servers.alive(folder):
            continue
        heartbeat = read_heartbeat(control_files_of(folder))
        yield ListedServer(
            id=f"{path.relative_to(results).parts[0]}/{endpoint.deployment or path.parent.name}",
            service=endpoint.service,
            state="running",
            endpoint=endpoint_text(endpoint),
            node=endpoint.node,
            job=heartbeat.allocation if heartbeat else None,
            since=endpoint.ready_at,
            nodes=endpoint.server_nodes or (),
        )


def endpoint_text(endpoint: ServerRun) -> str | None:
    """Return an address as `host:port`, and further ports as `name=port`; None for a server without ports."""
    ports = endpoint.ports
    if not ports:
        return None
    first = next(iter(ports))
    more = "".join(f" {name}={port}" for name, port in ports.items() if name != first)
    return f"{endpoint.host}:{ports[first]}{more}"


def tunnel_command(site: Site, endpoint: ServerRun) -> str | None:
    """Return the command that forwards a server's ports to a machine outside; None for a site without login node."""
    if site.login is None or not endpoint.ports:
        return None
    host = endpoint.node if endpoint.host in (None, "", endpoint.node) else endpoint.host
    return " ".join([site.login, "-N", *(f"-L {port}:{host}:{port}" for port in endpoint.ports.values())])


def server_folder(results: Path, name: str) -> DeploymentFolder:
    """Return the files of a server by its id in `list_servers`. Raises UserError with the existing ids."""
    folders = {instance.id: instance.folder for instance in instances(results)}
    folders |= {
        f"{path.parents[1].name}/{path.name}": DeploymentFolder(root=path)
        for path in results.glob("*/deployments/*")
        if (path / "endpoint.json").exists()
    }
    name = name.removeprefix(f"{STANDING}/")
    if name not in folders:
        raise UserError(
            f"{name}: no server of that id. Known: {', '.join(folders) or 'none'}.{did_you_mean(name, folders)}"
            " `bench servers ps --all` lists all."
        )
    return folders[name]


def is_healthy(endpoint: Endpoint, service: Service, timeout_s: float) -> bool:
    """Return whether a server answers its recipe's probe within `timeout_s`; a command probe becomes a TCP one.

    A probe command is one of the server's own environment, which this process does not have.
    """
    assert service.server is not None
    health = service.server.health
    if health.probe == "command":
        health = replace(health, probe="tcp")
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if Probe(health=health, host=endpoint.host or "", ports=endpoint.ports).answers():
                return True
        except FailedError:
            return False
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(RETRY_S)
