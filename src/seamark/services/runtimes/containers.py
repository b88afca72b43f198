"""Command lines that run a server, or the Python of a load's workers, in an Apptainer image."""

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from os.path import expandvars
from pathlib import Path

import seamark
from seamark.errors import UserError
from seamark.model.plugin import own_folders
from seamark.model.service import Part
from seamark.model.site import Site
from seamark.platform.container import engine, with_modules
from seamark.services.images.images import Image, require_image
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.documents import replacing
from seamark.storage.paths import expanded

PACKAGE = Path(seamark.__file__).parent
PACKAGES = (PACKAGE, *own_folders())
"""Folders of Seamark and of its own plugins, which an image needs."""
INSIDE = Path("/opt/seamark")
"""Folder of the environment in an image built from a definition."""


def image_path(spec: LaunchSpec, part: Part | None = None) -> Path:
    """Return the image file of a server or one of its parts. SiteError says how to get a missing one."""
    if part is not None and part.container is not None:
        return require_image(spec.part_images[part.name], _remedy(spec.site))
    if spec.image is None:
        raise UserError(
            f"service '{spec.service.name}': its recipe has no `container` and there is no definition of an image"
            f" for it, but site '{spec.site.name}' runs servers in containers. Add one, or choose another site."
        )
    return require_image(spec.image, _remedy(spec.site))


def container_command(
    spec: LaunchSpec,
    command: Sequence[str],
    environment: Mapping[str, str],
    binds: Sequence[str],
    part: Part | None = None,
) -> tuple[str, ...]:
    """Return the command line that runs `command` in the image of the service or part, after the site's module lines.

    `--nv` is passed only for a deployment with GPUs. The container sees nothing of the host but its binds: the
    deployment's data folder, the recipe's and the scenario's, and the study's folder where the recipe names it. It
    runs as the user on a read-only image. Raises SiteError when image or Apptainer is missing.
    """
    study = (f"{path}:{path}:ro" for path in spec.shown_study)  # first: the data folder may lie below it
    mounts = dict.fromkeys(
        (*study, f"{spec.data}:{spec.data}", *(expandvars(bind) for bind in (*binds, *spec.binds)))
    )
    by_option, by_variable = _split_environment(environment)
    arguments = (
        "exec",
        "--containall",
        *(("--nv",) if spec.deployment.gpus > 0 else ()),
        *(word for bind in mounts for word in ("-B", bind)),
        *(word for name, value in by_option.items() for word in ("--env", f"{name}={value}")),
        "--pwd",
        str(spec.data),
        str(image_path(spec, part)),
        *command,
    )
    server = spec.service.server
    full_command = engine(spec.site, arguments, refuses_root=server is not None and server.refuses_root)
    return with_modules(None, full_command, {f"APPTAINERENV_{name}": value for name, value in by_variable.items()})


def inside() -> dict[str, Path]:
    """Return the values of a recipe's templates in an image built from a definition.

    Seamark's packages are bound into it, so that image and load never run two versions of it.
    """
    return {
        "env": INSIDE / "env",
        "python": INSIDE / "env" / "bin" / "python",
        "site_packages": INSIDE / "site-packages",
        "libdir": INSIDE / "libdir",
        "package": PACKAGE,
    }


def client_environment(client: Image, site: Site, binds: Sequence[str], results: Path, folder: Path) -> Path:
    """Make an environment in `folder` with the Python of an image, for the workers of a load and for hooks.

    It sees the working folder, results, scratch and data sets of the site, Seamark's packages, temporary files and
    the binds of the scenario, and inherits the environment variables: proxies, tokens and thread counts reach it. It
    has no process namespace of its own, so that it is found, signalled and ended like any other worker. Returns
    `folder`.
    """
    image = require_image(client, _remedy(site))
    scratch, data = expanded(site.paths.scratch), expanded(site.paths.data)
    scratch.mkdir(parents=True, exist_ok=True)
    sets = [data] if data.is_dir() else []
    visible = (Path.cwd(), results, scratch, *sets, *PACKAGES, Path(tempfile.gettempdir()))
    mounts = dict.fromkeys(f"{path.absolute()}:{path.absolute()}" for path in visible)
    arguments = [
        "exec",
        "--contain",
        *(word for bind in (*mounts, *map(expandvars, binds)) for word in ("-B", bind)),
        str(image),
        str(inside()["python"]),
    ]
    script = shlex.join(engine(site, arguments))
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    with replacing(python) as temporary:
        temporary.write_text(f'#!/bin/sh\n# The Python of {image.name}.\nexec {script} "$@"\n', encoding="utf-8")
        temporary.chmod(0o755)
    return folder


def _remedy(site: Site) -> str:
    return f"`bench prepare --site {site.name}` with your scenario (-c) makes it."


def _split_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split variables into those for `--env` and those it would misread, since it splits at commas."""
    misread = {name: value for name, value in environment.items() if any(letter in value for letter in ',"\n')}
    return {name: value for name, value in environment.items() if name not in misread}, misread
