"""Events of a deployment: the two exceptions that end it, the supervisor's log, and tails of server logs."""

import contextlib
import json
import signal
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TAIL_LINES = 20
TAIL_BYTES = 16384


class EndedError(Exception):
    """A reason to end a deployment: crash, stop, sigterm, lease, endpoint-removed, evicted, teardown."""

    def __init__(self, why: str, reason: str) -> None:
        super().__init__(f"{why}: {reason}")
        self.why = why
        self.reason = reason


class FailedError(Exception):
    """A deployment that did not come up: setup_failed, port_taken or server_never_healthy."""

    def __init__(self, category: str, reason: str, log_tail: list[str] | None = None) -> None:
        super().__init__(f"{category}: {reason}")
        self.category = category
        self.reason = reason
        self.log_tail = log_tail or []


def timestamp() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def log_event(event: str, **details: Any) -> None:
    """Write one event to the supervisor's log, a JSON line on standard output."""
    print(json.dumps({"at": timestamp(), "event": event, **details}, default=str), flush=True)


def log_tail(log: Path, start: int = 0) -> list[str]:
    """Return the last lines written to `log` after byte `start`; none when the file is missing."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(start, size - TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def stated_failure(tail: Sequence[str], categories: Collection[str]) -> tuple[str, str] | None:
    """Return the category and the text of the last line of a server's log, if it is `CATEGORY: text` with one of the
    categories of its recipe; None for any other end."""
    last = next((line.strip() for line in reversed(tail) if line.strip()), "")
    category, colon, text = last.partition(": ")
    return (category, text.strip()) if colon and category in categories and text.strip() else None


def exit_text(returncode: int) -> str:
    """Return how a process ended: `exit code 3`, or the name of the signal."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"
