"""The processes of a tree, from its root: adopting orphans, signalling, killing, and finding what escaped."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from seamark.platform.process_stat import alive_below

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SESSION_NICE = 10
"""Niceness of a session that gives way; with 5 a client was still kept waiting."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it, so that none can hide from it in a new session."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    _prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def give_way(pid: int) -> None:
    """Let every other session go before that of `pid`, where the kernel shares its cores out by session (autogroup).

    There one that waits by spinning keeps a client on the same core from running, for tens of milliseconds.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(f"{SESSION_NICE}\n", encoding="ascii")


def send(pids: list[int], number: int) -> None:
    """Signal each process that still is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(*, but: Collection[int] = ()) -> None:
    """Take leave of every adopted child that has ended; of those in `but`, whoever started them does."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in but:
            os.waitpid(found.si_pid, os.WNOHANG)


def wait_until_none(pid: int, timeout_s: float) -> bool:
    """Return whether everything below `pid` has ended in time."""
    deadline = time.monotonic() + timeout_s
    while alive_below(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def kill_below(pid: int, timeout_s: float = 10.0) -> bool:
    """Kill everything below `pid`, again and again while it forks. False when something outlives even that."""
    deadline = time.monotonic() + timeout_s
    while left := alive_below(pid):
        send(left, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def marked(mark: str) -> list[int]:
    """Return the processes of this user whose environment holds `mark` (NAME=value), but for ourselves."""
    name, _, wanted = mark.partition("=")
    return [pid for pid, value in with_variable(name).items() if value == wanted]


def with_variable(name: str) -> dict[int, str]:
    """Return the processes of this user whose environment has a variable, with its value; but for ourselves."""
    start = os.fsencode(f"{name}=")
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for each in (entry / "environ").read_bytes().split(b"\0"):
                if each.startswith(start):
                    found[int(entry.name)] = os.fsdecode(each.removeprefix(start))
    return found
