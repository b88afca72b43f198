"""Locks of this node, in a folder of the user's own: whose load runs, and which GPUs of a shared job are taken.

The folder is the same for all runs of a user on a node, whatever their temporary folder is. No other user can write
or open anything in it, so none can hold a lock or plant a link there.
"""

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from seamark.dispatch.identity import node
from seamark.errors import SiteError

RUNTIME_DIR = "SEAMARK_RUNTIME_DIR"
"""The variable that names where the folder is made instead of TEMPORARY: for tests, and where TEMPORARY is shared."""
TEMPORARY = Path("/tmp")
SAID_AFTER_S = 2.0
LOOK_S = 0.1


def node_folder() -> Path:
    """Return the folder of this user's locks on this node, made where there is none.

    Where another user has taken its name it lies in the home, by the node's name. Raises SiteError where neither can
    be used.
    """
    name = f"seamark-{os.geteuid()}"
    there = Path(os.environ.get(RUNTIME_DIR) or TEMPORARY) / name
    at_home = Path.home() / ".cache/seamark/nodes" / node()
    refusals = []
    for folder in (there, at_home):
        if (why := _unusable(folder)) is None:
            return folder
        refusals.append(f"{folder}: {why}")
    raise SiteError(
        f"No folder for this node's locks: {'; '.join(refusals)}. Remove it, or name a folder where you may make one"
        f" in {RUNTIME_DIR}."
    )


def _unusable(folder: Path) -> str | None:
    """Make a folder for this user alone; return why it cannot be that, None where it is."""
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


def open_lock(name: str) -> TextIO:
    """Return a file of the node's folder, to be locked. Raises SiteError as node_folder does, OSError for a link."""
    path = node_folder() / name.replace("/", "_")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "r+", encoding="utf-8")


def lock_at_once(name: str) -> TextIO | None:
    """Return the locked file of that name, None where another process holds it."""
    file = open_lock(name)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not _still_there(file, name):
        file.close()
        return lock_at_once(name)
    return file


@contextmanager
def locked(
    name: str, facts: dict[str, Any], on_wait: Callable[[], object], say: Callable[[dict[str, Any]], object]
) -> Iterator[None]:
    """Hold the lock of that name, after whoever has it now. `facts` tell others who holds it.

    While it waits, `on_wait` is called every LOOK_S, and what it raises ends the waiting; after SAID_AFTER_S `say`
    gets the facts of the holder, again and again.
    """
    began_s = time.monotonic()
    while (file := lock_at_once(name)) is None:
        on_wait()
        if time.monotonic() - began_s > SAID_AFTER_S:
            say(_facts(name))
        time.sleep(LOOK_S)
    with file:
        file.truncate(0)
        file.write(json.dumps(facts))
        file.flush()
        yield


def _still_there(file: TextIO, name: str) -> bool:
    """Whether the file that was locked is the one of that name: somebody may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (node_folder() / name.replace("/", "_")).stat())
    except OSError:
        return False


def _facts(name: str) -> dict[str, Any]:
    try:
        with open_lock(name) as file:
            facts = json.load(file)
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
