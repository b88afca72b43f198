"""The private data folder of a running server: empty at its start, held by one run, gone at its end."""

import shutil
from pathlib import Path
from typing import TextIO

from seamark.services.supervisor.control_files import acquire_lock
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.storage.paths import expanded


def data_folder(spec: LaunchSpec) -> Path:
    """Return where the order's server keeps its data: below the site's scratch, by scenario and deployment."""
    return expanded(spec.site.paths.scratch) / spec.scenario / spec.deployment.id


def hold_data(data: Path) -> TextIO | None:
    """Return the lock of a data folder, None while a server of another run holds it."""
    return acquire_lock(data.with_name(f".{data.name}.lock"))


def empty(data: Path) -> None:
    """Make the folder, with nothing in it."""
    if data.exists():
        shutil.rmtree(data)
    data.mkdir(parents=True)


def clear(data: Path) -> None:
    """Remove what a server left, unless another run has taken the folder meanwhile."""
    if data.exists() and (held := hold_data(data)):
        with held:
            shutil.rmtree(data, ignore_errors=True)
