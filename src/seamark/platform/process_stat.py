"""Processes as /proc shows them: what one uses, and who is below it. Linux only; touches none of them."""

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
