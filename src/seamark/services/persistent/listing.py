"""Every server of a study that lives, standing or of a trial, as a list for people; and whether one answers."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.services.persistent.instance import STANDING, Instance, instances
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import control_files_of, read_control_file, read_heartbeat
from seamark.services.supervisor.events import FailedError
from seamark.services.supervisor.health import answers
from seamark.storage.paths import DeploymentFolder

AGAIN_S = 0.2


@dataclass(frozen=True, kw_only=True)
class ListedServer:
    """One server: `id` is a standing server's, or `scenario/deployment` of one that trials share. `node` is its
    supervisor's, `nodes` are all on which it has processes."""

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
    """Return the servers that live, and with `ended` the standing ones that have ended as well."""
    standing = [_standing(each) for each in instances(results)]
    return [*(row for row in standing if ended or row.state not in ("ended", "failed")), *_of_trials(results)]


def _standing(instance: Instance) -> ListedServer:
    state, why = instance.state()
    known = instance.endpoint() or read_control_file(instance.folder.record) or {}
    beat = read_heartbeat(control_files_of(instance.folder))
    asked = read_control_file(instance.request) or {}
    return ListedServer(
        id=instance.id,
        service=asked.get("service"),
        state=state,
        endpoint=endpoint_text(known) if state == "running" else None,
        node=beat.node if beat else known.get("node"),
        job=instance.job,
        since=known.get("ready_at") or known.get("started_at"),
        nodes=tuple(known.get("server_nodes") or ()),
        why=why,
    )


def _of_trials(results: Path) -> Iterator[ListedServer]:
    for path in sorted(results.glob("*/deployments/*/endpoint.json")):
        folder = DeploymentFolder(root=path.parent)
        endpoint = read_control_file(path)
        if endpoint is None or not servers.alive(folder):
            continue
        beat = read_heartbeat(control_files_of(folder))
        yield ListedServer(
            id=f"{path.parents[2].name}/{path.parent.name}",
            service=endpoint.get("service"),
            state="running",
            endpoint=endpoint_text(endpoint),
            node=endpoint.get("node"),
            job=beat.allocation if beat else None,
            since=endpoint.get("ready_at"),
            nodes=tuple(endpoint.get("server_nodes") or ()),
        )


def endpoint_text(endpoint: Mapping[str, Any]) -> str | None:
    """Return where a server is, as `host:port`, and further ports as `name=port`; None for one without a port."""
    ports = dict(endpoint.get("ports") or {})
    if not ports:
        return None
    first = next(iter(ports))
    more = "".join(f" {name}={port}" for name, port in ports.items() if name != first)
    return f"{endpoint.get('host')}:{ports[first]}{more}"


def tunnel_command(site: Site, endpoint: Mapping[str, Any]) -> str | None:
    """Return the command that brings a server's ports to a machine outside; None where the site has no login node."""
    if site.login is None or not endpoint.get("ports"):
        return None
    where = endpoint["node"] if endpoint["host"] in (None, "", endpoint["node"]) else endpoint["host"]
    return " ".join([site.login, "-N", *(f"-L {port}:{where}:{port}" for port in endpoint["ports"].values())])


def server_folder(results: Path, name: str) -> DeploymentFolder:
    """Return the files of a server by its id as `listed` gives it. UserError names the known ones."""
    known = {each.id: each.folder for each in instances(results)}
    known |= {
        f"{path.parents[1].name}/{path.name}": DeploymentFolder(root=path)
        for path in results.glob("*/deployments/*")
        if (path / "endpoint.json").exists()
    }
    name = name.removeprefix(f"{STANDING}/")
    if name not in known:
        raise UserError(
            f"{name}: no server of that id. Known: {', '.join(known) or 'none'}.{did_you_mean(name, known)}"
            " `bench servers ps --all` lists all."
        )
    return known[name]


def healthy(endpoint: Mapping[str, Any], service: Service, timeout_s: float) -> bool:
    """Return whether the server at an endpoint answers its recipe's probe within some seconds.

    A probe that is a command of the server's own is a TCP connection here.
    """
    assert service.server is not None
    health = service.server.health
    if health.probe == "command":
        health = replace(health, probe="tcp")
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            if answers(
                health,
                host=endpoint["host"],
                ports=endpoint["ports"],
                command=(),
                environment=os.environ,
                folder=Path.cwd(),
            ):
                return True
        except FailedError:
            return False
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(AGAIN_S)
