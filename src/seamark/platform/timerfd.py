"""A timer finer than an event loop's milliseconds: the kernel's timerfd in absolute monotonic time. Linux."""

import contextlib
import ctypes
import os

CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A file descriptor that becomes readable at a set time."""

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(CLOCK_MONOTONIC, FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._pointer = ctypes.byref(self._spec)

    def fileno(self) -> int:
        """Return the file descriptor."""
        return int(self._fd)

    def arm(self, at_ns: int, every_ns: int = 0) -> None:
        """Fire once at `at_ns` of CLOCK_MONOTONIC (at once if that has passed), then every `every_ns`."""
        value, interval = self._spec.value, self._spec.interval
        value.seconds, value.nanoseconds = divmod(max(at_ns, 1), 1_000_000_000)
        interval.seconds, interval.nanoseconds = divmod(every_ns, 1_000_000_000)
        if _libc.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, self._pointer, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> int:
        """Return the number of expirations since the last call."""
        with contextlib.suppress(BlockingIOError):
            return int.from_bytes(os.read(self._fd, 8), "little")
        return 0

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
