"""How a server that refuses to be root is started by root: as `nobody`, through setpriv or unshare of util-linux."""

import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path

from seamark.errors import SiteError

UNPRIVILEGED = "nobody"
DAC_OVERRIDE, DAC_READ_SEARCH, SETPCAP = 1, 2, 8


def user_for(refuses_root: bool) -> str | None:
    """Return the user a server must become, None when it may run as we do."""
    return UNPRIVILEGED if refuses_root and os.geteuid() == 0 else None


def as_user(user: str, command: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs `command` as `user`.

    The server keeps the one capability to pass through folders, since its programs and data may lie in a home that
    only root may enter. It dies with the keeper: setpriv sets the parent-death signal after the change of user,
    which would clear an earlier one. Raises SiteError when there is no setpriv.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise SiteError(
            "This server refuses to run as root, and there is no setpriv to run it as another user."
            " Run as an ordinary user, or install util-linux."
        )
    entry = pwd.getpwnam(user)
    return (
        setpriv,
        f"--reuid={entry.pw_uid}",
        f"--regid={entry.pw_gid}",
        "--clear-groups",
        *_passage(),
        "--pdeathsig=KILL",
        "--",
        *command,
    )


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


def _passage() -> tuple[str, ...]:
    """Return the options that let an ordinary user pass through closed folders, if we may give that away.

    access(2), by which PostgreSQL's tools look for each other, heeds the capability only without the set-uid fix-up.
    """
    effective = _effective_capabilities()
    heeded = ("--securebits=+no_setuid_fixup",) if effective >> SETPCAP & 1 else ()
    for bit, name in ((DAC_READ_SEARCH, "dac_read_search"), (DAC_OVERRIDE, "dac_override")):
        if effective >> bit & 1:
            return (f"--inh-caps=+{name}", f"--ambient-caps=+{name}", *heeded)
    return ()


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def give_to(user: str, folder: Path) -> None:
    """Make `user` the owner of a folder and of everything in it."""
    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            os.chown(Path(root) / name, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
