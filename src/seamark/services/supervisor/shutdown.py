"""How a keeper is ended from outside: asked, waited for, and cleaned up after when it was killed."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

from seamark.dispatch.identity import node
from seamark.platform.process_tree import marked, send
from seamark.services.supervisor.control_files import Signs, beating, hold, read_beat, write_sign
from seamark.services.supervisor.launch_spec import MARK


def keepers(results_root: Path) -> Iterator[Signs]:
    """Give the signs of every keeper below a root of results that has not said its last word."""
    for beat in sorted(results_root.resolve().glob("*/deployments/*/.keeper/beat.json")):
        yield Signs(root=beat.parent)


def end_strays(signs: Signs) -> None:
    """Kill what carries this deployment's mark though no keeper of it lives."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline and (left := marked(f"{MARK}={signs.root}")):
        send(left, signal.SIGKILL)
        time.sleep(0.02)


def ask_to_stop(signs: Signs, why: str) -> None:
    """Leave the word that a living keeper should end; `why` is what it will record."""
    if signs.beat.exists() and not signs.end.exists():
        write_sign(signs.stop, {"why": why})


def wait_until_gone(signs: Signs, wait_s: float) -> bool:
    """Wait until keeper and guard have gone, and kill what they left on this node. False after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while beating(signs):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    if guarded := hold(signs.lock, wait_s=max(0.0, deadline - time.monotonic())):
        guarded.close()
    beat = read_beat(signs)
    if beat and beat.node == node():
        end_strays(signs)
        signs.beat.unlink(missing_ok=True)
    return True
