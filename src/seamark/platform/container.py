"""Command line of Apptainer: site modules, user namespace, cache folders. Builds commands; callers run them."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from seamark.errors import SiteError
from seamark.model.site import Site
from seamark.platform.privilege import as_nobody_here, with_all_capabilities
from seamark.storage.paths import expanded

LOAD_MODULES = (
    '[ -z "$1" ] || . "$1" || exit; shift;'
    ' while [ "$1" != -- ]; do module load "$1" || exit; shift; done;'
    ' shift; exec "$@"'
)
"""Bash program with the arguments: file that defines `module` (empty: none needed), modules, `--`, and a command."""


def require_engine(site: Site) -> None:
    """Raise SiteError if there is neither Apptainer nor a module that provides it."""
    if not site.modules and shutil.which("apptainer") is None:
        raise SiteError(
            f"site '{site.name}': apptainer is not on PATH. Install it, or name its module in `modules` of the site."
        )


def engine(site: Site, words: Sequence[str], *, refuses_root: bool = False, folder: Path | None = None) -> list[str]:
    """Return the command line `apptainer WORDS`, after the site's module lines and as the same process.

    As root it runs in a user namespace: as nobody for a server that refuses root, and as root of its own where root
    lacks capabilities that Apptainer needs. `folder` is for caches and temporary files.
    """
    require_engine(site)
    variables = {}
    if folder is not None:
        places = {"APPTAINER_CACHEDIR": folder / ".cache", "APPTAINER_TMPDIR": folder / ".tmp"}
        variables = {name: str(path) for name, path in places.items() if name not in os.environ}
    user = as_nobody_here() if refuses_root else with_all_capabilities()
    return list(with_modules(site, (*user, "apptainer", *words), variables))


def with_modules(site: Site | None, command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return `command` after the site's `module load` lines, as the same process, so that signals reach it."""
    words = tuple(command)
    if site and site.modules:
        init = str(expanded(site.module_init)) if site.module_init else ""
        words = ("bash", "-c", LOAD_MODULES, "seamark", init, *site.modules, "--", *words)
    if variables:
        words = ("env", *(f"{name}={value}" for name, value in variables.items()), *words)
    return words
