"""How a keeper is ended from outside: asked, waited for, and cleaned up after when it was killed."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

from seamark.dispatch.identity import node
from seamark.platform.process_tree import marked, send
from seamark.services.supervisor.control_files import (
    ControlFiles,
    acquire_lock,
    is_alive,
    read_heartbeat,
    write_control_file,
)
from seamark.services.supervisor.launch_spec import MARK


def supervisors_below(results_root: Path) -> Iterator[ControlFiles]:
    """Give the signs of every keeper below a root of results that has not said its last word."""
    for beat in sorted(results_root.resolve().glob("*/deployments/*/.keeper/beat.json")):
        yield ControlFiles(root=beat.parent)


def kill_strays(control: ControlFiles) -> None:
    """Kill what carries this deployment's mark though no keeper of it lives."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and (left := marked(f"{MARK}={control.root}")):
        send(left, signal.SIGKILL)
        time.sleep(0.02)


def request_stop(control: ControlFiles, why: str) -> None:
    """Leave the word that a living keeper should end; `why` is what it will record."""
    if control.heartbeat.exists() and not control.exit_record.exists():
        write_control_file(control.stop_request, {"why": why})


def wait_until_gone(control: ControlFiles, wait_s: float) -> bool:
    """Wait until keeper and guard have gone, and kill what they left on this node. False after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while is_alive(control):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    if guarded := acquire_lock(control.lock, wait_s=max(0.0, deadline - time.monotonic())):
        guarded.close()
    beat = read_heartbeat(control)
    if beat and beat.node == node():
        kill_strays(control)
        control.heartbeat.unlink(missing_ok=True)
    return True
