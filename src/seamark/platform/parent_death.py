"""A process that ends with its parent, whatever kills the parent. Linux."""

import ctypes
import os
import select
import signal
import threading

PR_SET_PDEATHSIG = 1
INSIDE_A_CONTAINER = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")


def die_with_parent(parent_pid: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends; exit at once if `parent_pid` is gone already.

    Inside a container our parent is the engine's, which nothing kills: there `parent_pid` itself is waited for.
    Ctrl-C is the parent's to answer: a terminal sends it to all of its processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
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
