"""Where a standing server is, by its id: what `address: standing/ID` of a site stands for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.services.supervisor.control_files import control_files_of, is_alive, read_control_file
from seamark.storage.paths import DeploymentFolder

PREFIX = "standing/"


def persistent_endpoint(results: Path, address: str) -> Mapping[str, Any]:
    """Return the endpoint of the standing server that `standing/ID` names. SiteError when it does not run."""
    folder = DeploymentFolder(root=results / PREFIX / address.removeprefix(PREFIX))
    endpoint = read_control_file(folder.endpoint)
    if endpoint is None or endpoint.get("status") != "ok" or not is_alive(control_files_of(folder)):
        raise SiteError(
            f"{address}: no standing server of that id runs. `bench servers ps --all` lists them;"
            " `bench servers start SERVICE --name ID` starts one."
        )
    return endpoint
