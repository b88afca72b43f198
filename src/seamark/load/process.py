"""One worker process as its parent sees it: started, heard, told, and how it ended."""

import contextlib
import json
import signal
from pathlib import Path
from typing import Any

from seamark.load.due import Arrived, own_schedule
from seamark.load.job import Share
from seamark.load.preparation import TAIL_LINES
from seamark.load.standby import Standby, start_worker


class Worker:
    """One worker process as its parent sees it."""

    def __init__(self, share: Share, python: Path, parts: Path, standby: Standby | None = None) -> None:
        self.share = share
        self.ready: dict[str, Any] | None = None
        self.failed: str | None = None
        self.loaded = False
        self.errors = standby.errors if standby else parts / f"worker-{share.worker}.log"
        self._pending = b""
        path = parts / f"worker-{share.worker}.json"
        path.write_text(json.dumps(share.to_json()), encoding="utf-8")
        self.process = standby.process if standby else start_worker(python, self.errors, str(path))
        if standby:
            self.tell(f"share {path}")

    def hear(self) -> bool:
        """Read what the worker says; return False at the end of its output."""
        assert self.process.stdout is not None
        data = self.process.stdout.read(65536)
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ready":
                self.ready = json.loads(rest)
            elif word == "failed":
                self.failed = rest
            elif word == "loaded":
                self.loaded = True
        return True

    def tell(self, line: str) -> None:
        """Send the worker a line; one that died no longer listens, and its death is seen elsewhere."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")

    def tail(self) -> list[str]:
        """Return the last lines that the worker wrote to stderr."""
        return self.errors.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]

    def death(self) -> str:
        """Say how the process ended."""
        code = self.process.returncode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return f"worker {self.share.worker} {how}"

    def report(self, at_ns: int) -> dict[str, Any]:
        """Return the report the worker wrote, or one that says how it died and what was due by `at_ns` from the
        start of load."""
        try:
            written: dict[str, Any] = json.loads(self.share.report.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return lost_report(self.share, self.process.pid, self.failed or self.death(), at_ns)
        return written


def lost_report(share: Share, pid: int, reason: str, at_ns: int) -> dict[str, Any]:
    """Return the WorkerReport of a worker that wrote none. Its part of an open schedule was due all the same: as much
    of it as lies before `at_ns`."""
    arrivals = own_schedule(share)
    return {
        "worker": share.worker,
        "pid": pid,
        "ok": False,
        "reason": reason,
        "wall_s": None,
        "cpu_s": None,
        "max_rss_bytes": None,
        "lag_ns": None,
        "loop_lag_ns": None,
        "backlog_max": None,
        "survivors": None,
        "scheduled": None if arrivals is None else Arrived(arrivals()).until(at_ns),
        "sent": None,
        "completed": None,
    }
