"""Every reason to end a deployment, looked at again and again by its keeper; and the heartbeat it gives meanwhile."""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from seamark.services.supervisor.control_files import (
    HEARTBEAT_INTERVAL_S,
    ControlFiles,
    control_files_of,
    modified_ns,
    read_control_file,
    write_heartbeat,
)
from seamark.services.supervisor.failure import EndedError
from seamark.storage.paths import DeploymentFolder

TICK_S = 0.05
FILES_INTERVAL_S = 0.2


class LivenessMonitor:
    """The first of: server death, death of the guard, SIGTERM, stop file, endpoint.json gone, lease run out.

    `guard` is the process of the guard, which is our parent for as long as it lives; the kernel sends SIGTERM when it
    ends. A killed guard counts as a crash of the server: only what was asked for ends it on purpose.

    The lease is as old as the last change of its file that we saw, by the monotonic clock: neither a step of the
    wall clock nor a file server whose clock differs ends a server.
    """

    def __init__(self, folder: DeploymentFolder, lease_s: float, guard: int) -> None:
        self._guard = guard
        self.control: ControlFiles = control_files_of(folder)
        self.ended: Callable[[], str | None] = lambda: None
        """Says which process of the server has ended and how, None while all run."""
        self._endpoint = folder.endpoint
        self._lease_limit_s = lease_s
        self._lease_ns = modified_ns(self.control.lease)
        self._lease_s = time.monotonic()
        self._signalled = False
        self._heartbeat_s = self._files_s = float("-inf")

    def install_signal_handlers(self) -> None:
        """Take SIGTERM and SIGINT as a reason to end from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signalled = True

    def tick(self) -> None:
        """Beat, and raise EndedError as soon as there is a reason to end. To be called at least every second."""
        self.heartbeat()
        if (reason := self.ended()) is not None:
            raise EndedError("crash", reason)
        if self._signalled:
            if os.getppid() != self._guard:
                raise EndedError("crash", "Its guard was killed, and the server was ended with it.")
            raise EndedError("sigterm", "The keeper was told to end by a signal.")
        now_s = time.monotonic()
        if now_s - self._files_s >= FILES_INTERVAL_S:
            self._files_s = now_s
            self._look_at_files(now_s)

    def heartbeat(self) -> None:
        """Say that we live, at most once a second; a full disk does not end the keeper."""
        now_s = time.monotonic()
        if now_s - self._heartbeat_s >= HEARTBEAT_INTERVAL_S:
            self._heartbeat_s = now_s
            with contextlib.suppress(OSError):
                write_heartbeat(self.control, os.getpid())

    def _look_at_files(self, now_s: float) -> None:
        if self.control.stop_request.exists():
            stop = read_control_file(self.control.stop_request) or {}
            raise EndedError(str(stop.get("why", "stop")), "It was asked to stop.")
        if self.control.published.exists() and not self._endpoint.exists():
            raise EndedError("endpoint-removed", "Its endpoint.json was removed: nobody needs it any more.")
        lease_ns = modified_ns(self.control.lease)
        if lease_ns != self._lease_ns:
            self._lease_ns, self._lease_s = lease_ns, now_s
        elif now_s - self._lease_s > self._lease_limit_s:
            raise EndedError("lease", f"Nobody renewed its lease for {self._lease_limit_s:g} s.")
