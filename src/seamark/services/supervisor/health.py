"""Whether the server answers, and the proof that what answers is the process we started. Waits for nothing."""

import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from seamark.load.fetch import connect, fetch
from seamark.model.service import Health
from seamark.platform.ports import owners
from seamark.platform.tls import said
from seamark.services.supervisor.failure import FailedError

PROBE_TIMEOUT_S = 2.0
"""How long an HTTP or TCP probe takes at most, all of it; a command may take twice as long."""
State = Literal["waiting", "healthy", "taken"]


def look(
    health: Health,
    *,
    host: str,
    ports: Mapping[str, int],
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    pids: Sequence[int] | None,
    tls: ssl.SSLContext | None = None,
) -> State:
    """Return the state of a server whose processes are `pids`.

    It is 'taken' as soon as a socket of any other process listens on one of its ports, whatever the probe would
    say; 'healthy' when the probe succeeds and the socket on the probed port is ours. `pids` None means a server
    that we did not start: then the probe alone counts. `command` is health.command with its templates filled in.
    `tls` is how an HTTP probe connects, None plainly. Raises FailedError for a certificate that is not believed.
    """
    if pids is not None:
        before = owners(ports, pids)
        if "foreign" in before.values():
            return "taken"
        if ports and before[health.port] == "nobody":
            return "waiting"
    if not answers(health, host=host, ports=ports, command=command, environment=environment, folder=folder, tls=tls):
        return "waiting"
    if pids is None or not ports:
        return "healthy"
    after = owners(ports, pids)
    return "taken" if "foreign" in after.values() else "healthy" if after[health.port] == "ours" else "waiting"


def answers(
    health: Health,
    *,
    host: str,
    ports: Mapping[str, int],
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    tls: ssl.SSLContext | None = None,
) -> bool:
    """Return whether one probe succeeds now: HTTP 2xx, a TCP connection, or a command that ends with 0."""
    if health.probe == "http":
        return _http(host, ports[health.port], health.path, tls)
    if health.probe == "tcp":
        return _tcp(host, ports[health.port])
    return _command(command, environment, folder)


def _http(host: str, port: int, path: str, tls: ssl.SSLContext | None) -> bool:
    try:
        return 200 <= fetch(host, port, path, limit_s=PROBE_TIMEOUT_S, tls=tls, head_alone=True).status < 300
    except ssl.SSLCertVerificationError as error:
        text = f"The certificate of {host}:{port} is not believed ({said(error)})."
        remedy = "Name its authority in tls_ca_file, or set tls: unverified."
        raise FailedError("server_never_healthy", f"{text} {remedy}") from error
    except OSError:
        return False


def _tcp(host: str, port: int) -> bool:
    try:
        connect(host, port, None, time.monotonic() + PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _command(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> bool:
    try:
        done = subprocess.run(
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
    return done.returncode == 0
