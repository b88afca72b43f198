"""Runtimes: from a launch spec to commands and environment of a server process (venv, apptainer), or to the address
of an external server."""

import getpass
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.model.results.deployment_record import Endpoint
from seamark.model.service import Part, Server
from seamark.planning.external_servers import PERSISTENT_PREFIX, external_address, host_and_ports
from seamark.platform.fork_server.protocol import DEVICE
from seamark.platform.pinning import CUDA, THREADS, gpu_variables, thread_variables
from seamark.platform.privilege import as_user, user_for
from seamark.services.runtimes.containers import PACKAGE, PACKAGES, client_environment, container_command, inside
from seamark.services.supervisor.control_files import MARK, control_files_of, is_alive
from seamark.services.supervisor.launch_spec import (
    CommandTemplate,
    Launch,
    LaunchSpec,
    ProcessSlot,
    printed,
    switches,
)
from seamark.storage.documents import read_or_none
from seamark.storage.paths import DeploymentFolder
from seamark.telemetry.gpu import chosen_gpus

DROPPED_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "SNAKEMAKE_PROFILE")
CONTAINER_PYTHON = "python3"


def launch_of(spec: LaunchSpec, slot: ProcessSlot, part: Part | None = None) -> Launch:
    """Return how the site's runtime starts the server of a launch spec, or a part of it, in its slot.

    Raises SiteError when this machine cannot start it (no image), UserError for a wrong template in the recipe.
    """
    assert spec.service.server is not None
    runtimes = {"venv": _venv, "apptainer": _apptainer}
    return runtimes[spec.site.runtime](spec, spec.service.server, slot, part)


def _venv(spec: LaunchSpec, server: Server, slot: ProcessSlot, part: Part | None) -> Launch:
    user = user_for(server.refuses_root)
    python = interpreter(spec.environment)
    root = python.parent.parent
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    template = CommandTemplate(
        spec.service.name,
        _common(spec, slot, user)
        | {
            "env": root,
            "python": python,
            "site_packages": root / "lib" / f"python{version}" / "site-packages",
            "libdir": sysconfig.get_config_var("LIBDIR"),
            "package": PACKAGE,
            "python_version": version,
        },
    )
    inherited = {name: value for name, value in os.environ.items() if name not in DROPPED_VARIABLES}
    path = os.pathsep.join([str(root / "bin"), inherited.get("PATH", os.defpath)])
    home = {"HOME": str(spec.data), "USER": user, "LOGNAME": user} if user else {}
    declared = _declared(spec, server.environment, server, part)
    own = {name: template.fill(value) for name, value in declared.items()}

    return Launch(
        command=template.fill_all(part.command if part else server.command),
        setup=() if part else tuple(map(template.fill_all, server.setup)),
        prefix=as_user(user, (spec.data, root, *PACKAGES, Path(sys.base_prefix), *spec.shown_study)) if user else (),
        health_command=template.fill_all(_probe(server, part)),
        environment={
            **inherited,
            "PATH": path,
            "VIRTUAL_ENV": str(root),
            **home,
            **_gpus(spec),
            **_threads(spec),
            **own,
        },
        user=user,
    )


def _apptainer(spec: LaunchSpec, server: Server, slot: ProcessSlot, part: Part | None) -> Launch:
    """Return the launch of a process in a container.

    In a foreign image the recipe's `container.command` replaces `server.command` and its setup; in an image built
    from Seamark's definition the server starts as it does without a container. A part's command is the same in all;
    the `container` of a part with an image of its own replaces the recipe's.
    """
    own = part.container if part else None
    built = own is None and spec.image is not None and spec.image.origin == "definition"
    container = own or (None if built else spec.service.container)
    user = user_for(server.refuses_root)
    values = _common(spec, slot, user) | (inside() if built else {"python": CONTAINER_PYTHON})
    template = CommandTemplate(spec.service.name, values)
    declared = container.environment if container else server.environment if built else {}
    variables = {
        MARK: os.environ.get(MARK, ""),
        **_of_lane(),
        **_gpus(spec),
        **_threads(spec),
        **{name: template.fill(value) for name, value in _declared(spec, declared, server, part).items()},
    }
    binds = [template.fill(bind) for bind in (container.binds if container else ())]
    binds += [f"{package}:{package}:ro" for package in PACKAGES] if built else []

    def run(command: tuple[str, ...]) -> tuple[str, ...]:
        return container_command(spec, template.fill_all(command), variables, binds, part)

    whole = own.command if own and own.command else part.command if part else container.command if container else None
    probe = _probe(server, part)
    return Launch(
        command=run(whole or server.command),
        setup=() if whole else tuple(run(command) for command in server.setup),
        health_command=run(probe) if probe else (),
        environment=dict(os.environ),
    )


def interpreter(environment: Path | None) -> Path:
    """Return the Python of an environment; Seamark's own for None."""
    return environment / "bin" / "python" if environment else Path(sys.executable)


def hook_interpreter(spec: LaunchSpec, hook: str) -> Path:
    """Return the Python for a driver's hook: of the server's image for `stage`, which makes its data."""
    if hook != "stage" or spec.client or spec.image is None or spec.image.origin != "definition":
        return interpreter(spec.environment)
    results = spec.folder.results
    folder = control_files_of(spec.folder).root.resolve() / "stage"
    return interpreter(client_environment(spec.image, spec.site, spec.binds, results, folder))


def _declared(spec: LaunchSpec, declared: Mapping[str, str], server: Server, part: Part | None) -> dict[str, str]:
    """Return the variables set by recipe and site: network variables only for several nodes, where the site's win,
    and those for a reset call only with its setting."""
    call = (part or server).reset_caches
    asked = call.environment if call and call.setting and spec.deployment.settings.get(call.setting) else {}
    network: Mapping[str, str] = {}
    if spec.deployment.nodes > 1:
        network = {**server.network_environment, **spec.site.network_environment}
    return {**declared, **(part.environment if part else {}), **asked, **network}


def _probe(server: Server, part: Part | None) -> tuple[str, ...]:
    if part is None:
        return server.health.command
    return part.health.command if part.health else ()


def _common(spec: LaunchSpec, slot: ProcessSlot, user: str | None) -> dict[str, Any]:
    return {
        "ports": dict(slot.ports),
        "host": slot.host,
        "node": slot.node,
        "nodes": slot.nodes,
        "addresses": dict(slot.addresses),
        "urls": dict(slot.urls),
        "number": slot.number,
        "data": spec.data,
        "values": spec.values,
        "study": spec.study,
        "user": user or getpass.getuser(),
        "settings": printed(spec.deployment.settings),
        "switches": switches(spec.deployment.settings),
    }


def _gpus(spec: LaunchSpec) -> dict[str, str]:
    """Return the variables that limit a process to the GPUs of its place, else to as many as its deployment requested
    on its node."""
    if spec.place:
        return gpu_variables(spec.place.gpus, spec.place.share)
    return {CUDA: ",".join(chosen_gpus(spec.gpus_per_node))}


def _threads(spec: LaunchSpec) -> dict[str, str]:
    """Return the variables that limit the threads of libraries to those of the place; those of a recipe take
    precedence."""
    return thread_variables(spec.place.threads if spec.place else None)


def _of_lane() -> dict[str, str]:
    """Return the variables of a lane, which a container would not inherit; none outside of one."""
    names = (DEVICE, "CUDA_DEVICE_ORDER", THREADS) if DEVICE in os.environ else ()
    return {name: os.environ[name] for name in names if name in os.environ}


def external_ports(spec: LaunchSpec, server: Server) -> tuple[str, dict[str, int]]:
    """Return host and ports of a server that Seamark does not run: those that are named, or, with the address
    `standing/ID`, those of the persistent server. SiteError if a persistent server does not run, or is another
    service's."""
    settings, site = spec.deployment.settings, spec.site
    address = external_address(site, settings)
    if not address.startswith(PERSISTENT_PREFIX):
        return host_and_ports(site, spec.service.name, server, settings)
    endpoint = persistent_endpoint(spec.folder.results, address)
    if not set(server.ports) <= endpoint.ports.keys():
        raise SiteError(f"{address}: this is a server of '{endpoint.service}', not of '{spec.service.name}'.")
    return endpoint.host or "", {name: endpoint.ports[name] for name in server.ports}


def copy_secrets(spec: LaunchSpec, server: Server) -> None:
    """Copy what the load needs to log in to a persistent server, such as its password; nothing for other servers."""
    address = external_address(spec.site, spec.deployment.settings)
    if not address.startswith(PERSISTENT_PREFIX):
        return
    data = Path(persistent_endpoint(spec.folder.results, address).data or "")
    for name in server.secrets:
        if (data / name).is_file():
            shutil.copy(data / name, spec.data / name)


def persistent_endpoint(results: Path, address: str) -> Endpoint:
    """Return the endpoint of the persistent server at `standing/ID`. SiteError when it does not run."""
    name = address.removeprefix(PERSISTENT_PREFIX)
    folder = DeploymentFolder(root=results / PERSISTENT_PREFIX / name)
    endpoint = read_or_none(folder.endpoint, Endpoint)
    if endpoint is None or not endpoint.ok or not is_alive(control_files_of(folder)):
        raise SiteError(
            f"{address}: no persistent server of that id runs. `bench servers ps --all` lists them;"
            " `bench servers start SERVICE --name ID` starts one."
        )
    return endpoint
