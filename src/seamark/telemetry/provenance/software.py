"""Software of a measurement: versions, locks, git checkout, surrounding container."""

import hashlib
import os
import platform
from functools import partial
from pathlib import Path

from seamark import __version__
from seamark.model.results.trial_meta import Checkout, Software
from seamark.storage.codec import parse
from seamark.telemetry.kernel_files import output_of

CONTAINER = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
CHECKOUT = "SEAMARK_CHECKOUT"
"""Environment variable with the result of `git` for jobs in a container without git."""


def software(root: Path, lock: Path | None) -> Software:
    """Return versions of seamark and Python, the lock's digest and the state of the study's git checkout."""
    checkout = parse(os.environ[CHECKOUT], Checkout) if CHECKOUT in os.environ else git(root)
    return Software(
        seamark=__version__,
        python=platform.python_version(),
        lock=None if lock is None else lock.name,
        lock_sha256=None if lock is None else hashlib.sha256(lock.read_bytes()).hexdigest(),
        inside_container=container_around_us(),
        git_commit=checkout.git_commit,
        git_dirty=checkout.git_dirty,
    )


NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""A checkout's own settings may name programs that git would start."""


def container_around_us() -> str | None:
    """Return the image that this process runs in, None outside of a container."""
    return next((os.environ[name] for name in CONTAINER if name in os.environ), None)


def git(root: Path) -> Checkout:
    """Return commit and cleanness of the checkout that contains `root`."""
    git = partial(output_of, "git", *NO_PROGRAMS, "-C", root, within_s=10)
    commit = git("rev-parse", "HEAD")
    dirty = None if commit is None else bool(git("status", "--porcelain", "--untracked-files=no"))
    return Checkout(git_commit=commit, git_dirty=dirty)


def os_name() -> str | None:
    """Return the distribution's name."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.system()
