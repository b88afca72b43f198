"""A process that ends with its parent, whatever kills the parent. Linux."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int | None = None) -> None:
    """Ask the kernel to kill this process when its parent ends; exit at once if `parent_pid` is gone already.

    Ctrl-C is the parent's to answer: a terminal sends it to all of its processes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)
