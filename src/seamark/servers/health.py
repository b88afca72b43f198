"""Whether the server answers, and the proof that what answers is the process we started. Waits for nothing."""

import http.client
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from seamark.model.service import Health
from seamark.servers.ports import owners

PROBE_TIMEOUT_S = 2.0
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
) -> State:
    """Return the state of a server whose processes are `pids`.

    It is 'taken' as soon as a socket of any other process listens on one of its ports, whatever the probe would
    say; 'healthy' when the probe succeeds and the socket on the probed port is ours. `pids` None means a server
    that we did not start: then the probe alone counts. `command` is health.command with its templates filled in.
    """
    if pids is not None:
        before = owners(ports, pids)
        if "foreign" in before.values():
            return "taken"
        if ports and before[health.port] == "nobody":
            return "waiting"
    if not answers(health, host=host, ports=ports, command=command, environment=environment, folder=folder):
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
) -> bool:
    """Return whether one probe succeeds now: HTTP 2xx, a TCP connection, or a command that ends with 0."""
    if health.probe == "http":
        return _http(host, ports[health.port], health.path)
    if health.probe == "tcp":
        return _tcp(host, ports[health.port])
    return _command(command, environment, folder)


def _http(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tcp(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _command(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environment),
            cwd=folder,
            timeout=PROBE_TIMEOUT_S * 2,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
