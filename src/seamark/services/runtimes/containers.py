"""The command lines that run something in an Apptainer image: a server, or the Python of a load's worker."""

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from os.path import expandvars
from pathlib import Path

import seamark
from seamark.errors import UserError
from seamark.model.service import Part
from seamark.model.site import Site
from seamark.platform.container import engine, with_modules
from seamark.services.images.images import Image, require
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.paths import expanded, replacing

PACKAGE = Path(seamark.__file__).parent
INSIDE = Path("/opt/seamark")
"""Where an image that is built from a definition has its environment."""


def image_path(spec: LaunchSpec, part: Part | None = None) -> Path:
    """Return the image file of the order's server or of a part. SiteError says how to get one that is not there."""
    if part is not None and part.container is not None:
        return require(spec.part_images[part.name], _remedy(spec.site))
    if spec.image is None:
        raise UserError(
            f"service '{spec.service.name}': its recipe has no `container`, there is no definition of an image for"
            f" it, and site '{spec.site.name}' runs everything in containers. Add one, or choose another site."
        )
    return require(spec.image, _remedy(spec.site))


def container_command(
    spec: LaunchSpec,
    command: Sequence[str],
    environment: Mapping[str, str],
    binds: Sequence[str],
    folder: Path,
    part: Part | None = None,
) -> tuple[str, ...]:
    """Return the command line that runs `command` in the image of the service or part, after the site's module lines.

    `--nv` is there only for a deployment with GPUs. The container sees nothing of the host but its binds: the
    deployment's `folder`, the recipe's and the scenario's. It runs as the user, and nothing in the image can be
    written. Raises SiteError when image or Apptainer is missing.
    """
    bound = dict.fromkeys((f"{folder}:{folder}", *(expandvars(bind) for bind in (*binds, *spec.binds))))
    shown, hidden = _split(environment)
    words = (
        "exec",
        "--containall",
        *(("--nv",) if spec.deployment.gpus > 0 else ()),
        *(word for bind in bound for word in ("-B", bind)),
        *(word for name, value in shown.items() for word in ("--env", f"{name}={value}")),
        "--pwd",
        str(folder),
        str(image_path(spec, part)),
        *command,
    )
    server = spec.service.server
    whole = engine(spec.site, words, refuses_root=server is not None and server.refuses_root)
    return with_modules(None, whole, {f"APPTAINERENV_{name}": value for name, value in hidden.items()})


def inside() -> dict[str, Path]:
    """Return what a recipe's own templates stand for in an image that is built from a definition.

    Our own package is bound into it, so that image and load never run two versions of it.
    """
    return {
        "env": INSIDE / "env",
        "python": INSIDE / "env" / "bin" / "python",
        "site_packages": INSIDE / "site-packages",
        "libdir": INSIDE / "libdir",
        "package": PACKAGE,
    }


def client_environment(client: Image, site: Site, binds: Sequence[str], results: Path, folder: Path) -> Path:
    """Make an environment in `folder` whose Python is that of an image, for the workers of a load and for hooks.

    It sees the working folder, the results, the site's scratch, our package, temporary files and the scenario's
    binds, and has the environment of whoever starts it: proxies, tokens and numbers of threads reach it. It has no
    process namespace of its own, so that it is seen, signalled and ended like any other worker. Returns `folder`.
    """
    image = require(client, _remedy(site))
    scratch = expanded(site.paths.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    open_to = (Path.cwd(), results, scratch, PACKAGE, Path(tempfile.gettempdir()))
    bound = dict.fromkeys(f"{path}:{path}" for path in (each.absolute() for each in open_to))
    words = [
        "exec",
        "--contain",
        *(word for bind in (*bound, *map(expandvars, binds)) for word in ("-B", bind)),
        str(image),
        str(inside()["python"]),
    ]
    script = shlex.join(engine(site, words))
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    with replacing(python) as temporary:
        temporary.write_text(f'#!/bin/sh\n# The Python of {image.name}.\nexec {script} "$@"\n', encoding="utf-8")
        temporary.chmod(0o755)
    return folder


def _remedy(site: Site) -> str:
    return f"`bench prepare --site {site.name}` with your scenario (-c) makes it."


def _split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Part variables that `--env` takes from those it would misread: it splits at commas."""
    odd = {name: value for name, value in environment.items() if any(letter in value for letter in ',"\n')}
    return {name: value for name, value in environment.items() if name not in odd}, odd
