"""Processes on Linux: state of one by /proc, the tree below it, signals to all of it, parent-death signals."""

import contextlib
import ctypes
import functools
import os
import select
import signal
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Status:
    """One line of /proc/PID/stat. `cpu_s` includes children that were waited for; `niceness` is -20 to 19."""

    pid: int
    parent: int
    state: str
    cpu_s: float
    niceness: int
    threads: int
    rss_bytes: int


def status(pid: int) -> Status | None:
    """Return the status of a process, None if it is gone."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = line.rpartition(")")[2].split()
    return Status(
        pid=pid,
        parent=int(fields[1]),
        state=fields[0],
        cpu_s=sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_S,
        niceness=int(fields[16]),
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def peak_rss_bytes(pid: int) -> int:
    """Return the largest resident memory that a process has had since its program began, 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    if not _kernel_lists_children():
        return [other.pid for other in _all_processes() if other.parent == pid]
    pids: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # this thread has ended
                pids.extend(int(child) for child in (thread / "children").read_text().split())
    return pids


@functools.cache
def _kernel_lists_children() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _all_processes() -> list[Status]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process for pid in pids if (process := status(pid))]


def descendants(pid: int) -> list[int]:
    """Return all processes below a process, parents before their children, zombies included."""
    pids: list[int] = []
    below = children(pid)
    while below:
        pids.extend(below)
        below = [grandchild for child in below for grandchild in children(child)]
    return list(dict.fromkeys(pids))


def alive_below(pid: int) -> list[int]:
    """Return the descendants that run, without zombies; nothing only when nothing runs.

    A process that ends while this looks leaves children that are not below it any more and were not seen above it,
    so a look that finds nothing alive counts only if all that it found had ended in the look before.
    """
    ended: set[int] | None = None
    while True:
        below = descendants(pid)
        alive = [child for child in below if (process := status(child)) and process.state not in ("Z", "X")]
        if alive or (ended is not None and ended.issuperset(below)):
            return alive
        ended = set(below)


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SESSION_NICE = 10
"""Niceness of a session with low priority; 5 still delayed a client."""
SESSION_WAIT_S = 10.0
"""Longest wait for the kernel to accept the niceness of a session."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it, so that none escapes in a new session."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_parent_death_signal(number: int) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    _prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def lower_session_priority(pid: int, niceness: int = SESSION_NICE) -> bool:
    """Schedule every other session before that of `pid`, where the kernel divides CPU time by session (autogroup).

    Otherwise a server that spins while idle keeps a client on the same core from running for tens of milliseconds.
    Returns False if the kernel refuses it for now: users other than root have one change every 0.1 s.
    """
    try:
        Path(f"/proc/{pid}/autogroup").write_text(f"{niceness}\n", encoding="ascii")
    except BlockingIOError:
        return False
    except OSError:  # no such kernel, or no such process
        pass
    return True


def lower_own_priority(niceness: int) -> None:
    """Give this thread, and all that it starts later, that niceness, in a session of their own.

    The niceness of a process counts within its session only where the kernel divides CPU time by session, so that of
    the session is lowered too; another user's processes may delay that, for SESSION_WAIT_S at most. Does nothing for
    0, nor where the niceness is higher already.
    """
    if niceness <= os.getpriority(os.PRIO_PROCESS, 0):
        return
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    with contextlib.suppress(PermissionError):  # it leads its session already
        os.setsid()
    until_s = time.monotonic() + SESSION_WAIT_S
    while not lower_session_priority(os.getpid(), niceness) and time.monotonic() < until_s:
        time.sleep(0.02)


def lower_sessions(pids: Collection[int], niceness: int, lowered: Collection[int] = ()) -> set[int]:
    """Give the sessions of these processes that niceness; return those that have it.

    A server may start processes in sessions of their own, as PostgreSQL does for each connection, and a new session
    has niceness 0. `lowered` is the result of the call before.
    """
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            session = os.getsid(pid)
            if session in lowered or (session not in found and lower_session_priority(pid, niceness)):
                found.add(session)
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(*, but: Collection[int] = ()) -> None:
    """Reap every adopted child that has ended, except those in `but`, which their own starter waits for."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in but:
            os.waitpid(ended.si_pid, os.WNOHANG)


def wait_until_none(pid: int, timeout_s: float) -> bool:
    """Return whether everything below `pid` ended in time."""
    deadline = time.monotonic() + timeout_s
    while alive_below(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def kill_below(pid: int, timeout_s: float = 10.0) -> bool:
    """Kill everything below `pid`, repeatedly while it forks. Returns False if something survives."""
    deadline = time.monotonic() + timeout_s
    while left := alive_below(pid):
        send(left, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


PROGRAM = "SEAMARK_PROGRAM"
"""Environment variable of every process of a program under test, with the folder of its deployment."""


def with_mark(mark: str) -> list[int]:
    """Return the processes of this user with `mark` (NAME=value) in their environment, except this one."""
    name, _, wanted = mark.partition("=")
    return [pid for pid, value in with_variable(name).items() if value == wanted]


def kill_with_mark(mark: str, timeout_s: float = 5.0) -> bool:
    """Kill the processes of this user with `mark`, until two looks in a row find none: one that begins a program has
    no environment for a moment. Returns False if something survives."""
    deadline, empty = time.monotonic() + timeout_s, 0
    while empty < 2 and time.monotonic() < deadline:
        found = with_mark(mark)
        send(found, signal.SIGKILL)
        empty = 0 if found else empty + 1
        time.sleep(0.02)
    return empty == 2


def with_variable(name: str) -> dict[int, str]:
    """Return the processes of this user that have an environment variable, with its value; except this one."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = ((pid, variable_of(pid, name)) for pid in pids if pid != os.getpid())
    return {pid: value for pid, value in found if value is not None}


def variable_of(pid: int, name: str) -> str | None:
    """Return an environment variable of a process, as it was when its program began; None without it, and where it
    may not be read."""
    start, value = os.fsencode(f"{name}="), None
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(start):
                value = os.fsdecode(variable.removeprefix(start))
    return value


@contextlib.contextmanager
def exit_on_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Raise SystemExit on the first of these signals, with the exit code that a shell expects: 128 and its number.

    Later ones are ignored, so that none interrupts the clean-up; signals that are ignored stay so, as under nohup.
    """
    caught = [signal_number for signal_number in numbers if signal.getsignal(signal_number) is not signal.SIG_IGN]

    def end(number: int, frame: FrameType | None) -> NoReturn:
        before.clear()
        for signal_number in caught:
            signal.signal(signal_number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = {signal_number: signal.signal(signal_number, end) for signal_number in caught}
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


@contextlib.contextmanager
def signals_put_off(*numbers: signal.Signals) -> Iterator[None]:
    """Put off the effect of these signals to the end of the block: the first that came is sent to this process again.
    Signals that are ignored stay so."""
    came: list[int] = []
    before = {
        signal_number: signal.signal(signal_number, lambda number, _: came.append(number))
        for signal_number in numbers
        if signal.getsignal(signal_number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
        if came:
            os.kill(os.getpid(), came[0])


INSIDE_A_CONTAINER = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends; exit at once if `parent_pid` is gone already.

    Inside a container the parent is the container engine, which survives: there `parent_pid` itself is watched.
    Ctrl-C is ignored: a terminal sends it to the whole process group, and the parent handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_parent_death_signal(signal.SIGKILL)
    if parent_pid is None:
        return
    if any(name in os.environ for name in INSIDE_A_CONTAINER):
        try:
            parent = os.pidfd_open(parent_pid)
        except ProcessLookupError:
            os._exit(1)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    elif os.getppid() != parent_pid:
        os._exit(1)


def _end_with(process: int) -> None:
    """Exit when the process of a pidfd has ended."""
    look = select.poll()
    look.register(process, select.POLLIN)
    look.poll()
    os._exit(1)


def pin(pid: int, cpus: Collection[int]) -> None:
    """Restrict all threads of a process, and those it starts later, to `cpus`. Does nothing for an empty set."""
    if not cpus:
        return
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cpus)


def cpus_of(pid: int) -> set[int]:
    """Return the CPUs that some thread of a process may use, Cpus_allowed of /proc; empty once it is gone."""
    cpus: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                cpus |= os.sched_getaffinity(int(task.name))
    return cpus
