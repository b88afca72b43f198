"""Health probes: whether a server answers, and proof that the answering process belongs to it."""

import ssl
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from seamark.load.fetch import connect, fetch
from seamark.model.service import Health
from seamark.platform.ports import owners
from seamark.platform.tls import reason_of
from seamark.services.supervisor.events import FailedError

PROBE_TIMEOUT_S = 2.0
"""Total time-out of an HTTP or TCP probe; a command may take twice as long."""
ServerState = Literal["waiting", "healthy", "port_taken"]
GOOD, ANSWERED = range(200, 300), range(200, 500)
"""HTTP statuses of a probe that succeeded, and of a server that answers, if only that it has no such path, as
another program with the same API may."""


def probe_from_outside(health: Health, ports: Mapping[str, int]) -> Health:
    """Return the probe of a server that runs already: a TCP connection in place of a command, which lies in the
    server's environment, and of a port that is not known."""
    port = health.port if health.port in ports else next(iter(ports))
    return health if health.probe != "command" and port == health.port else replace(health, probe="tcp", port=port)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A health probe of a server on `host`.

    `command` is health.command with its templates filled, run in `folder` with `environment`. `tls` is None for plain
    HTTP; `statuses` are those of HTTP that are an answer.
    """

    health: Health
    host: str
    ports: Mapping[str, int]
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()
    tls: ssl.SSLContext | None = None
    statuses: Collection[int] = GOOD

    def state(self, pids: Sequence[int] | None) -> ServerState:
        """Return the state of a server whose processes are `pids`.

        'port_taken' when a socket of any other process listens on one of its ports, whatever the probe returns;
        'healthy' when the probe succeeds and the socket on the probed port belongs to the server. With None, for a
        server that Seamark did not start, the probe alone decides. Raises FailedError for a certificate that fails
        verification.
        """
        if pids is not None:
            before = owners(self.ports, pids)
            if "foreign" in before.values():
                return "port_taken"
            if self.ports and before[self.health.port] == "nobody":
                return "waiting"
        if not self.answers():
            return "waiting"
        if pids is None or not self.ports:
            return "healthy"
        after = owners(self.ports, pids)
        if "foreign" in after.values():
            return "port_taken"
        return "healthy" if after[self.health.port] == "ours" else "waiting"

    def answers(self) -> bool:
        """Return whether it succeeds: one of `statuses`, a TCP connection, or a command that exits with 0."""
        if self.health.probe == "http":
            return _http(self.host, self.ports[self.health.port], self.health.path, self.tls, self.statuses)
        if self.health.probe == "tcp":
            return accepts(self.host, self.ports[self.health.port])
        return _command(self.command, self.environment, self.folder)


def accepts(host: str, port: int) -> bool:
    """Return whether a TCP connection to a port succeeds within PROBE_TIMEOUT_S."""
    try:
        connect(host, port, None, time.monotonic() + PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _http(host: str, port: int, path: str, tls: ssl.SSLContext | None, statuses: Collection[int]) -> bool:
    try:
        return fetch(host, port, path, limit_s=PROBE_TIMEOUT_S, tls=tls, head_alone=True).status in statuses
    except ssl.SSLCertVerificationError as error:
        raise FailedError(
            "server_never_healthy",
            f"The certificate of {host}:{port} failed verification ({reason_of(error)})."
            " Name its authority in tls_ca_file, or set tls: unverified.",
        ) from error
    except OSError:
        return False


def _command(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> bool:
    try:
        completed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            cwd=folder,
            timeout=PROBE_TIMEOUT_S * 2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return completed.returncode == 0
