"""Lets the process that imports it fork once: after that there are no more processes to be had."""

import errno
import os

_fork = os.fork
_made: list[int] = []


def fork() -> int:
    if _made:
        raise OSError(errno.EAGAIN, "no more processes")
    _made.append(1)
    return _fork()


os.fork = fork
