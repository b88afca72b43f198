"""File-based control channel between supervisor, load and scripts: heartbeat, lease, stop request, exit record.

The files lie in the `.keeper/` folder of a deployment on the shared file system, so the channel works across nodes.
On the supervisor's own node the age of a heartbeat is measured by the monotonic clock: a step of the wall clock ends
no server.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from seamark.dispatch.identity import allocation, boot_id, node
from seamark.platform.process_tree import kill_with_mark
from seamark.storage.documents import read_or_none, write
from seamark.storage.paths import DEPLOYMENTS, DeploymentFolder

MARK = "SEAMARK_KEEPER"
"""Environment variable of every process of a deployment; its value is the folder of the control files."""

STALE_S = 10.0
"""Age from which a heartbeat of another node is checked a second time."""

DEAD_S = 120.0
"""Age from which it needs no second check: clocks of nodes differ by less than this."""

HUNG_S = 60.0
"""A supervisor of this node that runs but has not written a heartbeat for this long counts as dead."""

HEARTBEAT_INTERVAL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class NodeClock:
    """Clocks of this node and how to wait. An argument, so that tests of leases and heartbeats need no sleep."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    unix_s: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self.monotonic_ns() / 1e9


NODE_CLOCK = NodeClock()


class ControlFiles:
    """Control files of one deployment in the folder `root`. File names are those of older versions, whose servers
    must stay stoppable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "keeper.lock"
        """Locked by the supervisor and its guard while either lives."""
        self.serve_lock = root / "serve.lock"
        """Locked while a process starts this deployment."""
        self.heartbeat = root / "beat.json"
        """Identity of the supervisor and time of its last heartbeat; removed when all its processes have ended."""
        self.lease = root / "lease"
        """Touched by every phase that still needs the server."""
        self.stop_request = root / "stop.json"
        self.exit_record = root / "end.json"
        """Why the server ended; written as soon as the reason is known, before cleaning up."""
        self.answer = root / "answer.json"
        """Result of the start, which becomes endpoint.json."""
        self.published = root / "published"
        """Written with endpoint.json; from then on removing endpoint.json ends the server."""
        self.ports = root / "ports.json"
        """Ports chosen before the server starts."""
        self.log = root / "keeper.log"


def control_files_of(folder: DeploymentFolder) -> ControlFiles:
    """Return the control files of a deployment."""
    return ControlFiles(root=Path(os.path.realpath(folder.runtime)))  # Path.resolve raises for a loop of links


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """One heartbeat. `allocation` is the batch job that the supervisor runs in, None outside of one."""

    pid: int
    node: str
    boot: str
    allocation: str | None
    monotonic_ns: int


@dataclass(frozen=True, kw_only=True)
class StopRequest:
    """Request that the supervisor stops; `why` goes into its exit record."""

    why: str = "stop"


def write_heartbeat(control: ControlFiles, pid: int, clock: NodeClock = NODE_CLOCK) -> None:
    """Write a heartbeat of supervisor `pid`. Not synced to disk: after a crash of the node it means nothing."""
    heartbeat = Heartbeat(
        pid=pid, node=node(), boot=boot_id(), allocation=allocation(), monotonic_ns=clock.monotonic_ns()
    )
    temporary = control.heartbeat.with_name(".beat.tmp")
    temporary.write_text(json.dumps(vars(heartbeat)))
    temporary.replace(control.heartbeat)


def read_heartbeat(control: ControlFiles) -> Heartbeat | None:
    """Return the last heartbeat, None when it is missing or damaged."""
    return read_or_none(control.heartbeat, Heartbeat)


def is_alive(control: ControlFiles, clock: NodeClock = NODE_CLOCK) -> bool:
    """Return whether the supervisor lives, on this node or another.

    A heartbeat of another node must be recent. One that looks stale may come from a node with another clock: it is
    watched for three intervals before the supervisor counts as dead.
    """
    heartbeat = read_heartbeat(control)
    if heartbeat is None:
        return False
    if heartbeat.boot == boot_id():
        return _runs(heartbeat.pid) and clock.monotonic_ns() - heartbeat.monotonic_ns < HUNG_S * 1e9
    written_ns = modified_ns(control.heartbeat)
    if written_ns is None:
        return False
    age_s = abs(clock.unix_s() - written_ns / 1e9)
    if STALE_S <= age_s < DEAD_S:
        return _rewritten(control.heartbeat, written_ns, 3 * HEARTBEAT_INTERVAL_S, clock)
    return age_s < STALE_S


def _rewritten(path: Path, written_ns: int, within_s: float, clock: NodeClock) -> bool:
    deadline_s = clock.monotonic_s() + within_s
    while clock.monotonic_s() < deadline_s:
        clock.sleep(0.1)
        if (now_ns := modified_ns(path)) != written_ns:
            return now_ns is not None
    return False


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def supervisors_below(results_root: Path) -> Iterator[ControlFiles]:
    """Yield the control files of each deployment or member below a results folder that has a heartbeat file."""
    root = results_root.resolve()
    for heartbeat in sorted(path for pattern in DEPLOYMENTS for path in root.glob(f"{pattern}/.keeper/beat.json")):
        yield ControlFiles(root=heartbeat.parent)


def request_stop(control: ControlFiles, why: str) -> None:
    """Request that a live supervisor stops; `why` goes into its exit record."""
    if control.heartbeat.exists() and not control.exit_record.exists():
        write_control_file(control.stop_request, StopRequest(why=why))


def wait_until_gone(control: ControlFiles, wait_s: float) -> bool:
    """Wait until supervisor and guard have ended, and kill their strays on this node. False after `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while is_alive(control):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(0.02)
    if guard_lock := acquire_lock(control.lock, wait_s=max(0.0, deadline_s - time.monotonic())):
        guard_lock.close()
    heartbeat = read_heartbeat(control)
    if heartbeat and heartbeat.node == node():
        kill_strays(control)
        control.heartbeat.unlink(missing_ok=True)
    return True


def kill_strays(control: ControlFiles) -> None:
    """Kill processes of this node that carry the deployment's MARK after its supervisor has died."""
    kill_with_mark(f"{MARK}={control.root}")


def touch(path: Path) -> None:
    """Create the file, or update its modification time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def modified_ns(path: Path) -> int | None:
    """Return the modification time of a file, None when it is missing.

    The file is opened first: a network file system may answer a bare stat from its cache, for up to a minute.
    """
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def write_control_file(path: Path, noun: object) -> None:
    """Write a control file atomically; on a full disk an empty one, since its presence alone is a signal."""
    try:
        write(path, noun)
    except OSError:
        with contextlib.suppress(OSError):
            path.touch()


def open_lock_file(path: Path) -> TextIO:
    """Open a lock file, created if missing; never through a link. One of another user is opened for reading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o666), "a+")
    except PermissionError:
        return open(os.open(path, os.O_RDONLY | flags))


def run_files(study: Path) -> ControlFiles:
    """Return the control files of the run that is at work in a study."""
    return ControlFiles(root=study / ".seamark" / "run")


def run_lock(study: Path) -> Path:
    """Return the file that a run of a study holds the lock of while it is at work."""
    return run_files(study).root / "run.lock"


def acquire_lock(path: Path, *, wait_s: float = 0.0) -> TextIO | None:
    """Return the locked file, None while another process holds the lock after `wait_s`.

    On a file system without locks the file is returned all the same: then only the heartbeat protects.
    """
    file = open_lock_file(path)
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                file.close()
                return None
            time.sleep(0.05)
        except OSError:
            return file
