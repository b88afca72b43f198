"""Servers that refuse root, started by root: as `nobody`, without capabilities.

`main([JSON, COMMAND...])`, run by root through isolated_main.py, changes the user and executes a server. Paths that
the server needs may lie below folders closed to others, such as root's home. Each such folder is hidden, for this
process and its children only (a mount namespace), by an empty one in which those paths are mounted at their places.
"""

import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.platform.fork_server.client import ISOLATED_MAIN

UNPRIVILEGED = "nobody"
SYS_ADMIN = 21


def user_for(refuses_root: bool) -> str | None:
    """Return the user for a server, None if it may run as the current one."""
    return UNPRIVILEGED if refuses_root and os.geteuid() == 0 else None


def as_user(user: str, paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the command prefix that runs a command as `user` without any capability.

    `paths` are what it has to read; they may lie below folders that only root may enter, if root may mount. Raises
    SiteError where they do and it may not.
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
    identity = {
        "user": user,
        "uid": entry.pw_uid,
        "gid": entry.pw_gid,
        "paths": list(map(str, needed)),
        "closed": ", ".join(map(str, closed)),
    }
    return (sys.executable, "-I", "-S", ISOLATED_MAIN, "seamark.platform.privilege", json.dumps(identity))


def as_nobody_here() -> tuple[str, ...]:
    """Return the command prefix that makes root nobody in a user namespace; empty for other users.

    Files stay root's, and root's folders stay accessible: for containers, where no set-uid program runs.
    """
    if os.geteuid() != 0:
        return ()
    entry = pwd.getpwnam(UNPRIVILEGED)
    return (_unshare(), f"--map-user={entry.pw_uid}", f"--map-group={entry.pw_gid}", "--")


def with_all_capabilities() -> tuple[str, ...]:
    """Return the command prefix that gives root, where it lacks capabilities, all of them in a user namespace."""
    last = Path("/proc/sys/kernel/cap_last_cap")
    every = (1 << (int(last.read_text()) + 1)) - 1 if last.exists() else 0
    if os.geteuid() != 0 or _effective_capabilities() & every == every:
        return ()
    return (_unshare(), "--map-root-user", "--")


def _unshare() -> str:
    unshare = shutil.which("unshare")
    if unshare is None:
        raise SiteError("There is no unshare to start this container as another user. Run as an ordinary user.")
    return unshare


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def give_to(user: str, folder: Path, *, but: Sequence[str] = ()) -> None:
    """Make `user` the owner of a folder and its contents.

    Files of the folder named in `but` become this user's and unreadable for others. Others may pass through the
    folder without listing it. A file with several hard links is left alone: it might belong to this user elsewhere.
    """
    entry = pwd.getpwnam(user)
    folder.chmod(0o711)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for root, folders, files, descriptor in os.fwalk(folder):
        for name in folders + files:
            if Path(root) == folder and name in but:
                _keep(name, descriptor)
                continue
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if status.st_uid != entry.pw_uid and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
                os.chown(name, entry.pw_uid, entry.pw_gid, dir_fd=descriptor, follow_symlinks=False)


def _keep(name: str, place: int) -> None:
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    try:
        os.fchown(file, os.geteuid(), os.getegid())
        os.fchmod(file, 0o600)
    finally:
        os.close(file)


CLONE_NEWNS = 0x20000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MS_NOSUID, MS_NODEV = 2, 4
PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 23, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAPABILITY_VERSION_3 = 0x20080522
CANNOT = 126
"""Exit code of a shell for a program that cannot be executed."""

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):  # noqa: N818
    """The program cannot be started as this user; the message has reason and remedy."""


def closed_folders(paths: Iterable[Path], uid: int, gid: int) -> list[Path]:
    """Return, for each path, the topmost folder above it that the user may not enter, without duplicates.

    By modes only: a folder that an access-control list opens may be included.
    """
    closed: dict[Path, None] = {}
    for path in paths:
        for folder in reversed(path.parents):
            if not _may_enter(folder, uid, gid):
                closed[folder] = None
                break
    return list(closed)


def _may_enter(folder: Path, uid: int, gid: int) -> bool:
    status = folder.stat()
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    return bool(status.st_mode & (stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH))


def _uncover(paths: Sequence[Path], uid: int, gid: int) -> None:
    """Cover every closed folder above the paths by an empty one, and mount the paths in it at their places."""
    closed = closed_folders(paths, uid, gid)
    if not closed:
        return
    _try(_libc.unshare(CLONE_NEWNS), "unshare")
    _try(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    hidden = [path for path in paths if any(folder in path.parents for folder in closed)]
    files = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in sorted(hidden)]
    for folder in closed:
        options = b"mode=0755,size=1m"
        _try(_libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", MS_NOSUID | MS_NODEV, options), f"mount {folder}")
    for path, file in files:
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
        source = f"/proc/self/fd/{file}".encode()
        _try(_libc.mount(source, os.fsencode(path), None, MS_BIND | MS_REC, None), f"mount {path}")
        os.close(file)


def _try(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _drop_bounding_set() -> None:
    for number in range(64):
        if _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # needs CAP_SETPCAP; without it no_new_privs protects


def _become(uid: int, gid: int) -> None:
    """Change user and group, and drop every capability permanently."""
    parent = os.getppid()
    _drop_bounding_set()
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _try(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _try(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # a change of user clears the signal set before
    if os.getppid() != parent:
        raise Refused("its supervisor has ended")
    if kept := [line for line in _capabilities() if int(line.split()[1], 16)]:
        raise Refused(f"capabilities were not given up ({', '.join(kept)})")


def _capabilities() -> list[str]:
    """Return the lines of this process's capability sets that it can use or inherit."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return [line for line in lines if line.startswith(("CapInh:", "CapPrm:", "CapEff:", "CapAmb:"))]


def become_and_execute(identity: Mapping[str, Any], command: list[str]) -> None:
    """Become the user `uid` and execute a command. Raises Refused with the reason; otherwise does not return."""
    uid, gid, user = identity["uid"], identity["gid"], identity["user"]
    paths, folder = [Path(path) for path in identity["paths"]], Path.cwd()
    try:
        _uncover(paths, uid, gid)
        os.chdir(folder)
    except OSError as cause:
        raise Refused(
            f"'{user}' may not enter {identity['closed']}, and root may not mount here ({cause}). Have the study and"
            f" `paths` of the site where '{user}' may enter, or start it as an ordinary user."
        ) from cause
    try:
        _become(uid, gid)
    except OSError as cause:
        raise Refused(f"root may not become '{user}' here ({cause}). Start it as an ordinary user.") from cause
    for path in paths:
        if not os.access(path, os.R_OK | os.X_OK):
            raise Refused(f"'{user}' may not read {path}. Open it to others (chmod -R a+rX), or make it again.")
    try:
        os.execvp(command[0], command)
    except OSError as cause:
        raise Refused(f"'{user}' cannot execute {command[0]}: {cause.strerror}.") from cause


def main(argv: list[str]) -> int:
    """Execute `COMMAND...` as the user that the JSON object describes: user, uid, gid, paths, closed."""
    identity, *command = argv
    try:
        become_and_execute(json.loads(identity), command)
    except Refused as refused:
        with contextlib.suppress(OSError):
            print(f"cannot run {command[0]}: {refused}", file=sys.stderr)
    return CANNOT
