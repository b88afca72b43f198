"""Locks of this node in a folder of the user: which load runs, and which GPUs of a shared job are taken.

All runs of a user on a node share the folder, whatever their temporary folder is. No other user can write or open
anything in it, so none can hold a lock or plant a link there.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from seamark.dispatch.identity import allocation, node
from seamark.errors import SiteError
from seamark.model.results.deployment_record import LockHolder
from seamark.services.supervisor.events import FailedError
from seamark.storage.codec import parse

RUNTIME_DIR = "SEAMARK_RUNTIME_DIR"
"""Environment variable: parent of the folder in place of TEMPORARY, for tests and where TEMPORARY is shared."""
TEMPORARY = Path("/tmp")
REPORT_AFTER_S = 2.0
POLL_S = 0.1


def node_folder() -> Path:
    """Return the folder of this user's locks on this node, created if missing.

    Where another user has taken its name it lies in the home, by the node's name. Raises SiteError where neither can
    be used.
    """
    name = f"seamark-{os.geteuid()}"
    temporary = Path(os.environ.get(RUNTIME_DIR) or TEMPORARY) / name
    at_home = Path.home() / ".cache/seamark/nodes" / node()
    refusals = []
    for folder in (temporary, at_home):
        if (why := _unusable(folder)) is None:
            return folder
        refusals.append(f"{folder}: {why}")
    raise SiteError(
        f"No folder for this node's locks: {'; '.join(refusals)}. Remove it, or name a folder where you may create"
        f" one in {RUNTIME_DIR}."
    )


def _unusable(folder: Path) -> str | None:
    """Create a folder for this user alone; return why that fails, None where it is usable."""
    try:
        with suppress(FileExistsError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as cause:
        return "it is a link, or no folder" if folder.is_symlink() or folder.exists() else str(cause.strerror)
    try:
        status = os.fstat(file)
        if status.st_uid != os.geteuid():
            return f"it belongs to user {status.st_uid}"
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(file, 0o700)
    except OSError as cause:
        return str(cause.strerror)
    finally:
        os.close(file)
    return None


def _path(name: str) -> Path:
    return node_folder() / name.replace("/", "_")


def open_lock(name: str) -> TextIO:
    """Return an open lock file of the node. Raises SiteError as node_folder does, OSError for a link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(_path(name), flags, 0o600), "r+", encoding="utf-8")


def try_lock(name: str, *, shared: bool = False) -> TextIO | None:
    """Return the locked file of that name, None while another process holds it; several may hold it `shared`."""
    file = open_lock(name)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not _is_current(file, name):
        file.close()
        return try_lock(name, shared=shared)
    return file


@contextmanager
def locked(
    name: str,
    holder: LockHolder,
    on_wait: Callable[[], object],
    on_report: Callable[[LockHolder], object],
    *,
    shared: bool = False,
) -> Iterator[None]:
    """Hold the lock of that name, `shared` with others or alone; `holder` is written into it for others to read.

    While it waits, `on_wait` is called every POLL_S, and what it raises ends the waiting; after REPORT_AFTER_S
    `on_report` gets the present holder each time.
    """
    began_s = time.monotonic()
    while (file := try_lock(name, shared=shared)) is None:
        on_wait()
        if time.monotonic() - began_s > REPORT_AFTER_S:
            on_report(_holder(name))
        time.sleep(POLL_S)
    with file:
        with suppress(OSError):  # a full disk hides the holder's name and does not stop it
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), json.dumps(vars(holder)).encode(), 0)
        yield


def _is_current(file: TextIO, name: str) -> bool:
    """Return whether a locked file still has its name; another process may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), _path(name).stat())
    except OSError:
        return False


def _holder(name: str) -> LockHolder:
    try:
        with open_lock(name) as file:
            return parse(file.read(), LockHolder)
    except (OSError, ValueError):
        return LockHolder()


def claim_gpus(count: int, claims: ExitStack) -> None:
    """Restrict CUDA_VISIBLE_DEVICES of this process and its children to `count` GPUs that no other deployment has.

    They are released when `claims` closes or the process ends. Raises FailedError when too few are free.
    """
    visible = [gpu.strip() for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu.strip()]
    claimed: list[str] = []
    for gpu in visible:
        if len(claimed) < count and (lock := try_lock(f"gpu-{allocation() or 'here'}-{gpu}.lock")):
            claims.callback(lock.close)
            claimed.append(gpu)
    if len(claimed) < count:
        free = f"{len(claimed)} of the job's {len(visible)} GPUs are free"
        raise FailedError("setup_failed", f"a deployment that shares its node needs {count} GPUs, but {free}.")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(claimed)
