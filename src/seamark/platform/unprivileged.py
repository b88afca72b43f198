"""Becomes an ordinary user without any capability, then the program of a server: `main([JSON, COMMAND...])`.

Run by root through isolated_main.py, with the standard library alone. Paths that the program needs may lie below a
folder that only root may enter, such as root's home. Each such folder is covered, for this process and its children
alone (a mount namespace), by an empty one in which those paths are mounted where they were: nothing else of it can be
seen.
"""

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
    """The program cannot be started as this user; the message says why and what helps."""


def closed_folders(paths: Iterable[Path], uid: int, gid: int) -> list[Path]:
    """Return, for each path, the topmost folder above it that the user may not enter; each once.

    Only modes are looked at: a folder that an access-control list opens may be among them.
    """
    found: dict[Path, None] = {}
    for path in paths:
        for folder in reversed(path.parents):
            if not _may_enter(folder, uid, gid):
                found[folder] = None
                break
    return list(found)


def _may_enter(folder: Path, uid: int, gid: int) -> bool:
    status = folder.stat()
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    return bool(status.st_mode & (stat.S_IXGRP if status.st_gid == gid else stat.S_IXOTH))


def _uncover(paths: Sequence[Path], uid: int, gid: int) -> None:
    """Cover every closed folder above the paths by an empty one, and mount the paths in it where they were."""
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
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # refused without CAP_SETPCAP: no_new_privs then holds


def _become(uid: int, gid: int) -> None:
    """Change user and group, and give up every capability for good."""
    parent = os.getppid()
    _drop_bounding_set()
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _try(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _try(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # a change of user clears an earlier one
    if os.getppid() != parent:
        raise Refused("its supervisor has ended")
    if kept := [line for line in _capabilities() if int(line.split()[1], 16)]:
        raise Refused(f"capabilities were not given up ({', '.join(kept)})")


def _capabilities() -> list[str]:
    """Return the lines of this process's capabilities that it can use or hand on."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return [line for line in lines if line.startswith(("CapInh:", "CapPrm:", "CapEff:", "CapAmb:"))]


def become_and_execute(told: Mapping[str, Any], command: list[str]) -> None:
    """Become the user `uid` and execute a command. Raises Refused with the reason; otherwise does not return."""
    uid, gid, user = told["uid"], told["gid"], told["user"]
    paths, folder = [Path(path) for path in told["paths"]], Path.cwd()
    try:
        _uncover(paths, uid, gid)
        os.chdir(folder)
    except OSError as cause:
        raise Refused(
            f"'{user}' may not enter {told['closed']}, and root may not mount here ({cause}). Have the study and"
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
    told, *command = argv
    try:
        become_and_execute(json.loads(told), command)
    except Refused as refused:
        with contextlib.suppress(OSError):
            print(f"cannot run {command[0]}: {refused}", file=sys.stderr)
    return CANNOT
