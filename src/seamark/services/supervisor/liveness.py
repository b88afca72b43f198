"""Liveness monitor: checks every reason to end a deployment on each tick, and writes the supervisor's heartbeat."""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping

from seamark.services.supervisor.control_files import (
    HEARTBEAT_INTERVAL_S,
    NODE_CLOCK,
    NodeClock,
    StopRequest,
    control_files_of,
    modified_ns,
    write_heartbeat,
)
from seamark.services.supervisor.events import EndedError
from seamark.storage.documents import read_or_none
from seamark.storage.paths import DeploymentFolder

TICK_S = 0.05
FILES_INTERVAL_S = 0.2
STOPS: Mapping[str, str] = {
    "switch": "A server of another model took its GPUs.",
    "evicted": "Another deployment took its place.",
    "interrupted": "The run that needed it was interrupted.",
}
"""Reasons in exit records, by the cause in a request to stop; without one a stop was requested."""


class LivenessMonitor:
    """Raises EndedError for a server exit, SIGTERM, a killed guard, a stop request, a removed endpoint, a lost lease.

    `guard` is the pid of the guard, the parent process; the kernel sends SIGTERM when it ends. A killed guard counts
    as a crash, since only a request ends a server on purpose.

    The age of the lease is the monotonic time since its file was last seen to change: neither a step of the wall
    clock nor a file server with another clock ends a server.
    """

    def __init__(self, folder: DeploymentFolder, lease_s: float, guard: int, clock: NodeClock = NODE_CLOCK) -> None:
        self.control = control_files_of(folder)
        self.exit_reason: Callable[[], str | None] = lambda: None
        """Returns which process of the server has exited and how, None while all run."""
        self._guard = guard
        self._clock = clock
        self._endpoint = folder.endpoint
        self._lease_limit_s = lease_s
        self._lease_ns = modified_ns(self.control.lease)
        self._lease_s = clock.monotonic_s()
        self._signalled = False
        self._heartbeat_s = self._files_s = float("-inf")

    def install_signal_handlers(self) -> None:
        """Treat SIGTERM and SIGINT as a reason to end from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signalled = True

    def tick(self) -> None:
        """Write a heartbeat; raise EndedError when there is a reason to end. Call it at least once a second."""
        self.heartbeat()
        if (reason := self.exit_reason()) is not None:
            raise EndedError("crash", reason)
        if self._signalled:
            if os.getppid() != self._guard:
                raise EndedError("crash", "Its guard was killed, and the server was ended with it.")
            raise EndedError("sigterm", "The supervisor received SIGTERM or SIGINT.")
        now_s = self._clock.monotonic_s()
        if now_s - self._files_s >= FILES_INTERVAL_S:
            self._files_s = now_s
            self._check_files(now_s)

    def heartbeat(self) -> None:
        """Write a heartbeat, at most once a second; a full disk does not end the supervisor."""
        now_s = self._clock.monotonic_s()
        if now_s - self._heartbeat_s >= HEARTBEAT_INTERVAL_S:
            self._heartbeat_s = now_s
            with contextlib.suppress(OSError):
                write_heartbeat(self.control, os.getpid(), self._clock)

    def _check_files(self, now_s: float) -> None:
        if self.control.stop_request.exists():
            request = read_or_none(self.control.stop_request, StopRequest) or StopRequest()
            raise EndedError(request.why, STOPS.get(request.why, "A stop was requested."))
        if self.control.published.exists() and not self._endpoint.exists():
            raise EndedError("endpoint-removed", "Its endpoint.json was removed: the server is no longer needed.")
        lease_ns = modified_ns(self.control.lease)
        if lease_ns != self._lease_ns:
            self._lease_ns, self._lease_s = lease_ns, now_s
        elif now_s - self._lease_s > self._lease_limit_s:
            raise EndedError("lease", f"Its lease was not renewed for {self._lease_limit_s:g} s.")
