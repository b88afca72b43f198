"""Runtime external: address and ports of a server that Seamark does not run, or of a persistent server by its id."""

from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.model.results.deployment_record import Endpoint
from seamark.model.service import Server
from seamark.services.supervisor.control_files import control_files_of, is_alive, read_record
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.paths import DeploymentFolder

PERSISTENT_PREFIX = "standing/"
"""First part of the address of a persistent server, and its folder in the results."""


def external_ports(spec: LaunchSpec, server: Server) -> tuple[str, dict[str, int]]:
    """Return host and ports of a server that Seamark does not run.

    The setting `address`, else the site's, is `host` or `host:port`; that port is the recipe's first. Every other
    port is the setting `<name>_port`. `standing/ID` is the address of a persistent server, with all its ports.
    SiteError names a missing port.
    """
    address = str(spec.deployment.settings.get("address") or spec.site.address)
    if address.startswith(PERSISTENT_PREFIX):
        endpoint = persistent_endpoint(spec.folder.root.resolve().parents[2], address)
        return endpoint.host or "", {name: endpoint.ports[name] for name in server.ports}
    if "://" in address:
        raise SiteError(
            f"service '{spec.service.name}' at '{address}': not an address. Write it as host:port; for https set"
            " tls: verified in the workload, where the service has that setting."
        )
    host, _, first = address.rpartition(":") if address.count(":") == 1 else (address, "", "")
    names = [name for name in server.ports if name not in server.inner_ports]
    ports: dict[str, Any] = {name: spec.deployment.settings.get(f"{name}_port") for name in names}
    if first and names:
        ports[names[0]] = first
    missing = [name for name, port in ports.items() if not str(port or "").isdigit()]
    if missing:
        raise SiteError(
            f"service '{spec.service.name}' at '{address}': no port for {', '.join(missing)}. Write the address as"
            " host:port, and further ports as settings <name>_port."
        )
    return host, {name: int(port) for name, port in ports.items()}


def persistent_endpoint(results: Path, address: str) -> Endpoint:
    """Return the endpoint of the persistent server at `standing/ID`. SiteError when it does not run."""
    name = address.removeprefix(PERSISTENT_PREFIX)
    folder = DeploymentFolder(root=results / PERSISTENT_PREFIX / name)
    endpoint = read_record(folder.endpoint, Endpoint)
    if endpoint is None or not endpoint.ok or not is_alive(control_files_of(folder)):
        raise SiteError(
            f"{address}: no persistent server of that id runs. `bench servers ps --all` lists them;"
            " `bench servers start SERVICE --name ID` starts one."
        )
    return endpoint
