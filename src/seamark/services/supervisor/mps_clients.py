"""Clients of an MPS daemon: which processes are attached, and how one is ended without harm to the others.

The commands are those of NVIDIA's documentation (docs.nvidia.com/deploy/mps). Not run on a GPU here.
"""

import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator

from seamark.model.parties import GpuSharing
from seamark.platform.pinning import MPS_PIPES
from seamark.telemetry.gpu import working_on

CONTROL = "nvidia-cuda-mps-control"
CONTROL_S = 2.0
"""Longest wait for the answer to a command."""
DRAIN_S = 10.0
"""Longest wait for a party's work on GPUs to end before its SIGTERM."""
IDLE_S = 1.0
"""Time without work after which a party counts as drained; samples of NVML are 1/6 s to 1 s apart."""
POLL_S = 0.1


def clients(pipes: str) -> dict[int, int]:
    """Return the ids of the processes that are attached to a daemon, each with its MPS server's. {} without one."""
    servers = list(_numbers(_answer(pipes, "get_server_list")))
    return {pid: server for server in servers for pid in _numbers(_answer(pipes, f"get_client_list {server}"))}


def drain(share: GpuSharing, pids: Collection[int], heartbeat: Callable[[], object]) -> None:
    """Wait until those of some processes that are clients have no work on GPUs, then have their contexts closed.

    A signal to a client at work can leave the server, and the clients of other parties with it, in an undefined
    state. A party that goes on working is not waited for longer than DRAIN_S.
    """
    assert share.pipes is not None
    attached = {pid: server for pid, server in clients(share.pipes).items() if pid in pids}
    deadline_s = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline_s and any(working_on(gpu, IDLE_S) & attached.keys() for gpu in share.devices):
        heartbeat()
        time.sleep(POLL_S)
    for pid, server in attached.items():
        _answer(share.pipes, f"terminate_client {server} {pid}", DRAIN_S)


def _answer(pipes: str, command: str, within_s: float = CONTROL_S) -> str:
    """Return what a daemon answers to a command, "" where it does not."""
    try:
        return subprocess.run(
            [CONTROL],
            input=f"{command}\n",
            env={**os.environ, MPS_PIPES: pipes},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=within_s,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _numbers(text: str) -> Iterator[int]:
    return (int(word) for line in text.splitlines() if (word := line.strip()).isdigit())
