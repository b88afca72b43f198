"""The node's clock: what it counts by, and how far it is known to be from the right time."""

import ctypes
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.text import ROOT, text

Facts = dict[str, Any]
UNSYNCHRONISED, NANOSECONDS = 0x40, 0x2000
"""STA_UNSYNC and STA_NANO of <sys/timex.h>."""
WAIT_S = 3.0


class _Timex(ctypes.Structure):
    """struct timex of Linux on 64 bits."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock(root: Path = ROOT) -> Facts:
    """Return the clock source, what the kernel knows of its error in seconds, and what chrony says of it."""
    folder = root / "sys/devices/system/clocksource/clocksource0"
    return {
        "source": text(folder / "current_clocksource"),
        "available": (text(folder / "available_clocksource") or "").split(),
        "kernel": kernel_state(),
        "chrony": chrony(),
    }


def kernel_state() -> Facts | None:
    """Return whether something keeps the clock, and its error in seconds, by adjtimex(2); None where that fails."""
    state = _Timex()
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    unit_s = 1e-9 if state.status & NANOSECONDS else 1e-6
    return {
        "synchronised": not state.status & UNSYNCHRONISED,
        "offset_s": state.offset * unit_s,
        "estimated_error_s": state.esterror * 1e-6,
        "most_error_s": state.maxerror * 1e-6,
        "frequency_ppm": round(state.freq / 65536, 6),
    }


def chrony() -> Facts | None:
    """Return what `chronyc tracking` says, offset in seconds (positive: ours is fast); None without chrony."""
    if shutil.which("chronyc") is None:
        return None
    try:
        done = subprocess.run(
            ["chronyc", "-c", "tracking"], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        cells = done.stdout.strip().split(",")
        slow_s, rms_s, delay_s, dispersion_s = (float(cells[place]) for place in (4, 6, 10, 11))
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return None
    if done.returncode != 0 or not all(map(math.isfinite, (slow_s, rms_s, delay_s, dispersion_s))):
        return None
    return {
        "server": cells[1] or None,
        "stratum": int(cells[2]),
        "offset_s": -slow_s,
        "rms_offset_s": rms_s,
        "most_error_s": abs(slow_s) + dispersion_s + delay_s / 2,
        "leap": cells[13] if len(cells) > 13 else None,
    }
