"""One node: its constant facts, its state before and after a trial (load, free memory, clock, other users), and the
file systems of its paths."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from seamark.dispatch.identity import node
from seamark.model.results.trial_meta import FileSystem, Machine, NodeReport, NodeState, OtherUsers, Stripes
from seamark.telemetry.kernel_files import ROOT, output_of, read_number, read_text
from seamark.telemetry.provenance.hardware import clock, gpus, meminfo, memory, network, processors
from seamark.telemetry.provenance.software import os_name

FIRST_USER, NOBODY = 1000, 65534
"""Ids below FIRST_USER, and NOBODY, are system accounts, as in login.defs."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def now() -> str:
    """Return the current time in ISO 8601 with its zone."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def moment(root: Path = ROOT) -> NodeState:
    """Return the state of the node, recorded before and after a trial: load, free memory in bytes, clock."""
    sizes = meminfo(root)
    khz = read_number(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    return NodeState(
        at=now(),
        monotonic_ns=time.monotonic_ns(),
        load_average=tuple(float(word) for word in (read_text(root / "proc/loadavg") or "").split()[:3]),
        memory_available_bytes=sizes.get("MemAvailable"),
        swap_used_bytes=sizes.get("SwapTotal", 0) - sizes.get("SwapFree", 0),
        cpu_frequency_hz=None if khz is None else khz * 1000,
        processes=len(_pids(root)),
        others=others(os.getuid(), root),
    )


def others(uid: int, root: Path = ROOT) -> OtherUsers:
    """Return the activity of other users, without names: number of users except `uid` and the system's, of their
    processes, of those running now, and their total CPU time; or the reason if the kernel hides them."""
    if _hidden(root):
        return OtherUsers(reason="/proc shows the own processes only (hidepid)")
    processes = [(owner, pid) for pid in _pids(root) if _is_other(owner := _owner(root, pid), uid)]
    states = [state for _, pid in processes if (state := _state(root, pid)) is not None]
    return OtherUsers(
        users=len({owner for owner, _ in processes}),
        processes=len(processes),
        running=sum(letter == "R" for letter, _ in states),
        cpu_s=round(sum(cpu_s for _, cpu_s in states), 2),
    )


def _pids(root: Path) -> list[str]:
    try:
        return [entry.name for entry in (root / "proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _hidden(root: Path) -> bool:
    options = next((mount.options for mount in reversed(mount_table(root)) if mount.mount == "/proc"), None)
    set_to = [word.partition("=")[2] for word in (options or "").split(",") if word.startswith("hidepid=")]
    return any(value not in ("0", "off") for value in set_to)


def _is_other(owner: int | None, uid: int) -> bool:
    return owner is not None and owner != uid and owner >= FIRST_USER and owner != NOBODY


def _owner(root: Path, pid: str) -> int | None:
    for line in (read_text(root / "proc" / pid / "status") or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None


def _state(root: Path, pid: str) -> tuple[str, float] | None:
    """Return state and CPU seconds of a process, None if it is gone."""
    fields = (read_text(root / "proc" / pid / "stat") or "").rpartition(")")[2].split()
    return (fields[0], (int(fields[11]) + int(fields[12])) / TICKS_PER_S) if len(fields) > 12 else None


def machine(paths: Mapping[str, Path] | None = None, root: Path = ROOT) -> Machine:
    """Return the facts that do not change during a trial. `paths` are those that it uses, by role."""
    cpu, pages = processors(root), memory(root)
    return Machine(
        hostname=node(),
        cpu_model=cpu.model,
        cpus_logical=cpu.threads,
        cpus_physical=cpu.cores,
        cpus_allowed=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=pages.total_bytes,
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        os=os_name(),
        governor=cpu.governor,
        transparent_hugepages=pages.transparent_hugepages,
        cgroup=read_text(root / "proc/self/cgroup"),
        cpu=cpu,
        memory=pages,
        clock=clock(root),
        gpu=gpus(root),
        network=network(root),
        mounts=mounts(paths or {}, root),
    )


def described(paths: Mapping[str, Path], *, whole: bool = True) -> NodeReport:
    """Return this node: name, state, and with `whole` its constant facts."""
    return NodeReport(node=node(), moment=moment(), machine=machine(paths) if whole else None)


WAIT_S = 5.0


def mounts(paths: Mapping[str, Path], root: Path = ROOT) -> dict[str, FileSystem]:
    """Return the file system of each path, by role; for a missing path, of its nearest existing parent. On Lustre
    with its stripes by `lfs getstripe`."""
    table = mount_table(root)
    return {role: _file_system(path, table) for role, path in paths.items()}


def mount_table(root: Path = ROOT) -> list[FileSystem]:
    """Return all mounts of /proc/self/mountinfo in the order of mounting."""
    table = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, behind = line.partition(" - ")
        left, right = before.split(), behind.split()
        if len(left) >= 6 and len(right) >= 2:
            options = ",".join(dict.fromkeys(f"{left[5]},{right[2] if len(right) > 2 else ''}".strip(",").split(",")))
            point, source = _plain(left[4]), _plain(right[1])
            table.append(FileSystem(mount=point, type=right[0], source=source, options=options))
    return table


def _plain(word: str) -> str:
    """Return a path without the kernel's octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape.group(1), 8)), word)


def _file_system(path: Path, table: list[FileSystem]) -> FileSystem:
    existing = next((candidate for candidate in (path, *path.parents) if candidate.exists()), path).resolve()
    candidates = [mount for mount in table if existing.is_relative_to(str(mount.mount))]
    # of several at one point the last one: it hides the others
    mount = max(reversed(candidates), key=lambda mount: len(Path(str(mount.mount)).parts), default=FileSystem())
    return replace(
        mount,
        path=str(path),
        free_bytes=_free_bytes(existing),
        stripes=stripes(existing) if mount.type == "lustre" else None,
    )


def _free_bytes(path: Path) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def stripes(path: Path) -> Stripes | None:
    """Return count, size in bytes and pool of a Lustre folder's stripes; None if lfs fails.

    Of a layout with several components, those of the first; `components` is their number.
    """
    output = output_of("lfs", "getstripe", "-d", path, within_s=WAIT_S) or ""
    counts, sizes = _figures("stripe_count", output), _figures("stripe_size", output)
    if not counts:
        return None
    pool = re.search(r"pool:\s*(\S+)", output)
    return Stripes(
        count=counts[0],
        size_bytes=sizes[0] if sizes else None,
        pool=pool.group(1) if pool else None,
        components=len(counts),
    )


def _figures(name: str, output: str) -> list[int]:
    return [int(value) for value in re.findall(rf"{name}:\s*(-?\d+)", output)]
