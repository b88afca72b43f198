"""The command line that runs a server in an Apptainer image. Pulls and starts nothing."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from os.path import expandvars
from pathlib import Path

from seamark.errors import SiteError, UserError
from seamark.model.service import Container
from seamark.model.site import Site
from seamark.servers.order import Order, expanded

DIGEST_LETTERS = 12


def image_path(order: Order) -> Path:
    """Return the image file of the order's service, by absolute path.

    The scenario's own `container` comes first, then a recipe's image that is a file, then what image preparation
    puts into the site's folder: `<service>-<digest>.sif`, or `<service>.sif` for a recipe without a digest. Raises
    SiteError when it is not there, with the command that makes it.
    """
    container = _container(order)
    named = order.container or container.image
    if named.endswith(".sif"):
        path, remedy = expanded(named), "Build or copy it there, or correct the path."
    else:
        digest = (container.digest or "").removeprefix("sha256:")[:DIGEST_LETTERS]
        path = expanded(order.site.paths.containers) / f"{order.service.name}{digest and '-' + digest}.sif"
        source = named if "://" in named else f"docker://{named}"
        pinned = f"{source}@{container.digest}" if container.digest else source
        remedy = f"Where there is a network: apptainer pull {path} {pinned}"
    if "$" in str(path):
        raise SiteError(f"{path}: a variable in the image's path is not set.")
    if not path.is_file():
        raise SiteError(f"{path}: the image of service '{order.service.name}' is not there. {remedy}")
    return path


def container_command(
    order: Order, command: Sequence[str], environment: Mapping[str, str], binds: Sequence[str], folder: Path
) -> tuple[str, ...]:
    """Return the command line that runs `command` in the service's image, after the site's module lines.

    `--nv` is there only for a deployment with GPUs. The container sees nothing of the host but its binds: the
    deployment's `folder`, the recipe's and the scenario's. Raises SiteError when image or Apptainer is missing.
    """
    if not order.site.modules and shutil.which("apptainer") is None:
        raise SiteError("apptainer is not on PATH. Install it, or name its module in `modules` of the site.")
    bound = dict.fromkeys((f"{folder}:{folder}", *(expandvars(bind) for bind in (*binds, *order.binds))))
    shown, hidden = _split(environment)
    whole = (
        "apptainer",
        "exec",
        "--containall",
        *(("--nv",) if order.deployment.gpus > 0 else ()),
        *(word for bind in bound for word in ("-B", bind)),
        *(word for name, value in shown.items() for word in ("--env", f"{name}={value}")),
        "--pwd",
        str(folder),
        str(image_path(order)),
        *command,
    )
    return with_modules(order.site, whole, {f"APPTAINERENV_{name}": value for name, value in hidden.items()})


def with_modules(site: Site, command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return `command` run after the site's `module load` lines; as the same process, so that signals reach it."""
    if not site.modules and not variables:
        return tuple(command)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    if site.modules:
        if site.module_init:
            lines.append(f". {shlex.quote(str(expanded(site.module_init)))}")
        lines += [f"module load {shlex.quote(module)}" for module in site.modules]
    return ("bash", "-c", " && ".join([*lines, 'exec "$@"']), "seamark", *command)


def _split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Part variables that `--env` takes from those it would misread: it splits at commas."""
    odd = {name: value for name, value in environment.items() if any(letter in value for letter in ',"\n')}
    return {name: value for name, value in environment.items() if name not in odd}, odd


def _container(order: Order) -> Container:
    if order.service.container is None:
        raise UserError(
            f"service '{order.service.name}': its recipe has no `container`, and site '{order.site.name}' runs"
            " everything in containers. Add one to the recipe, or choose another site."
        )
    return order.service.container
