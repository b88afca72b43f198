"""Health probes: whether a server answers, and proof that the answering process belongs to it."""

import ssl
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
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
"""HTTP statuses of a probe that succeeded, and of a server that answers, if only that it has no such path."""


def probe_from_outside(health: Health, ports: Mapping[str, int]) -> Health:
    """Return the probe of a server that runs already: a TCP connection in place of a command, which lies in the
    server's environment, and of a port that is not known."""
    port = health.port if health.port in ports else next(iter(ports))
    return health if health.probe != "command" and port == health.port else replace(health, probe="tcp", port=port)


def server_state(
    health: Health,
    *,
    host: str,
    ports: Mapping[str, int],
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    pids: Sequence[int] | None,
    tls: ssl.SSLContext | None = None,
    refusals: bool = False,
) -> ServerState:
    """Return the state of a server whose processes are `pids`.

    'port_taken' when a socket of any other process listens on one of its ports, whatever the probe returns;
    'healthy' when the probe succeeds and the socket on the probed port belongs to the server. With `pids` None, for a
    server that Seamark did not start, the probe alone decides; with `refusals` an HTTP status 3xx or 4xx is an answer
    too: another program with the same API may have no such path. `command` is health.command with its templates
    filled. `tls` is None for plain HTTP. Raises FailedError for a certificate that fails verification.
    """
    if pids is not None:
        before = owners(ports, pids)
        if "foreign" in before.values():
            return "port_taken"
        if ports and before[health.port] == "nobody":
            return "waiting"
    statuses = ANSWERED if refusals else GOOD
    if not answers(
        health,
        host=host,
        ports=ports,
        command=command,
        environment=environment,
        folder=folder,
        tls=tls,
        statuses=statuses,
    ):
        return "waiting"
    if pids is None or not ports:
        return "healthy"
    after = owners(ports, pids)
    return "port_taken" if "foreign" in after.values() else "healthy" if after[health.port] == "ours" else "waiting"


def answers(
    health: Health,
    *,
    host: str,
    ports: Mapping[str, int],
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    tls: ssl.SSLContext | None = None,
    statuses: Collection[int] = GOOD,
) -> bool:
    """Return whether one probe succeeds: one of `statuses`, a TCP connection, or a command that exits with 0."""
    if health.probe == "http":
        return _http(host, ports[health.port], health.path, tls, statuses)
    if health.probe == "tcp":
        return accepts(host, ports[health.port])
    return _command(command, environment, folder)


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
