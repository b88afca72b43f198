"""How a server that refuses to be root is started by root: as `nobody`, without capabilities."""

import json
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from seamark.errors import SiteError
from seamark.platform.fork_server.client import OUTSIDE
from seamark.platform.unprivileged import closed_folders

UNPRIVILEGED = "nobody"
SYS_ADMIN = 21


def user_for(refuses_root: bool) -> str | None:
    """Return the user a server must become, None when it may run as we do."""
    return UNPRIVILEGED if refuses_root and os.geteuid() == 0 else None


def as_user(user: str, paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the words before a command that run it as `user`, without any capability (unprivileged.py).

    `paths` are what it needs to read; they may lie below folders that only root may enter, where root may mount.
    Raises SiteError where they do and it may not.
    """
    entry = pwd.getpwnam(user)
    needed = list(dict.fromkeys(name for path in paths for name in (path.absolute(), path.resolve())))
    closed = closed_folders(needed, entry.pw_uid, entry.pw_gid)
    if closed and not _effective_capabilities() >> SYS_ADMIN & 1:
        raise SiteError(
            f"This server refuses to run as root and is run as '{user}', who may not enter {closed[0]}; and root may"
            " not mount here, so that what it needs cannot be shown to it. Have the study and `paths` of the site"
            f" where '{user}' may enter, or start it as an ordinary user."
        )
    told = {
        "user": user,
        "uid": entry.pw_uid,
        "gid": entry.pw_gid,
        "paths": list(map(str, needed)),
        "closed": ", ".join(map(str, closed)),
    }
    return (sys.executable, "-I", "-S", OUTSIDE, "seamark.platform.unprivileged", json.dumps(told))


def as_nobody_here() -> tuple[str, ...]:
    """Return the words before a command that make root nobody in a user namespace; none for any other user.

    Files stay root's, and what root may enter can be entered: for containers, where no set-uid program runs.
    """
    if os.geteuid() != 0:
        return ()
    entry = pwd.getpwnam(UNPRIVILEGED)
    return (_unshare(), f"--map-user={entry.pw_uid}", f"--map-group={entry.pw_gid}", "--")


def with_all_capabilities() -> tuple[str, ...]:
    """Return the words before a command that give root, where it lacks capabilities, all in a user namespace."""
    last = Path("/proc/sys/kernel/cap_last_cap")
    every = (1 << (int(last.read_text()) + 1)) - 1 if last.exists() else 0
    if os.geteuid() != 0 or _effective_capabilities() & every == every:
        return ()
    return (_unshare(), "--map-root-user", "--")


def _unshare() -> str:
    found = shutil.which("unshare")
    if found is None:
        raise SiteError("There is no unshare to start this container as another user. Run as an ordinary user.")
    return found


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def give_to(user: str, folder: Path, *, but: Sequence[str] = ()) -> None:
    """Make `user` the owner of a folder and of everything in it.

    Files of the folder named in `but` are made ours, and nobody else may read them. Others may pass through the
    folder without seeing what is in it. A file that has another name elsewhere is left as it is: it could be ours.
    """
    entry = pwd.getpwnam(user)
    folder.chmod(0o711)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for root, folders, files, place in os.fwalk(folder):
        for name in folders + files:
            if Path(root) == folder and name in but:
                _keep(name, place)
                continue
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            if status.st_uid != entry.pw_uid and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                os.chown(name, entry.pw_uid, entry.pw_gid, dir_fd=place, follow_symlinks=False)


def _keep(name: str, place: int) -> None:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    try:
        os.fchown(file, os.geteuid(), os.getegid())
        os.fchmod(file, 0o600)
    finally:
        os.close(file)
