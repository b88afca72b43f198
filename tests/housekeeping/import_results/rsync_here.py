"""A real rsync for tests: the machine's own, else Debian's package, unpacked into the cache folder."""

import os
import shutil
from pathlib import Path

import slurm_packages

PACKAGES = ("rsync", "libpopt0", "libxxhash0")


def path_with_rsync(folder: Path) -> str:
    """Return a PATH that has rsync, by a script in `folder` where it was unpacked. Raises OSError without one."""
    if shutil.which("rsync"):
        return os.environ["PATH"]
    root = slurm_packages.unpacked_packages("rsync", PACKAGES)
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    script = folder / "rsync"
    folder.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {root}/usr/bin/rsync "$@"\n')
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
