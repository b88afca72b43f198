"""The keeper's own log, JSON lines on its standard output; and the last lines of a server's log."""

import contextlib
import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TAIL_LINES = 20
TAIL_BYTES = 16384


def timestamp() -> str:
    """Return the time of day as ISO 8601 with its zone."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def say(event: str, **details: Any) -> None:
    """Log one event."""
    print(json.dumps({"at": timestamp(), "event": event, **details}, default=str), flush=True)


def tail(log: Path, start: int) -> list[str]:
    """Return the last lines that were written to `log` after byte `start`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def exit_text(returncode: int) -> str:
    """Return how a process ended, in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"
