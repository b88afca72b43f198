"""The processes below a process: who they are, and how all of them are ended. Linux only; reads /proc."""

import contextlib
import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_prctl = ctypes.CDLL(None, use_errno=True).prctl


@dataclass(frozen=True, kw_only=True)
class Status:
    """One line of /proc/PID/stat. `cpu_s` counts children that were waited for as well."""

    pid: int
    parent: int
    state: str
    cpu_s: float
    threads: int
    rss_bytes: int


def status(pid: int) -> Status | None:
    """Return what the kernel says of a process, None when it is gone."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = line.rpartition(")")[2].split()
    return Status(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0],
        cpu_s=sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_S,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.extend(int(child) for child in (task / "children").read_text().split())
    except FileNotFoundError:
        if not Path("/proc/self/task").exists() or not Path(f"/proc/self/task/{os.getpid()}/children").exists():
            return [other.pid for other in _everyone() if other.parent == pid]
    except OSError:
        pass
    return found


def _everyone() -> list[Status]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [found for pid in pids if (found := status(pid))]


def descendants(pid: int) -> list[int]:
    """Return everything below a process, parents before their children; zombies are among them."""
    found: list[int] = []
    below = children(pid)
    while below:
        found.extend(below)
        below = [grandchild for child in below for grandchild in children(child)]
    return list(dict.fromkeys(found))


def alive_below(pid: int) -> list[int]:
    """Return the descendants that still run: no zombies."""
    return [child for child in descendants(pid) if (found := status(child)) and found.state not in ("Z", "X")]


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it, so that none can hide from it in a new session."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    _prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def send(pids: list[int], number: int) -> None:
    """Signal each process that still is there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(*, but: int | None = None) -> None:
    """Take leave of every adopted child that has ended; of `but`, whoever started it does."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid != but:
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
    wanted = os.fsencode(mark)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
