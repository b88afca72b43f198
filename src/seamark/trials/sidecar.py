"""A server in a container beside the load's, as the sidecar of a pod: they have a folder in common, and no processes.

The load asks there for a start, since a server that it started itself would end with its container.
"""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from seamark.platform.process_tree import reap
from seamark.storage.documents import write_text

FOLDER = "SEAMARK_SIDECAR"
"""Environment variable of loads: the folder in common. Unset: servers start where the load runs."""
WAIT_S = "SEAMARK_SIDECAR_WAIT_S"
"""Environment variable: seconds within which a start must be answered; 900 by default."""
LOST_S = 20.0
"""A sidecar whose `alive` file has not changed for this long has ended."""
POLL_S = 0.1


def ask(folder: Path, deployment: str) -> str | None:
    """Let the sidecar start the server of a deployment; return once endpoint.json has the outcome, with the reason
    once the time of WAIT_S is over. Raises SystemExit where the sidecar refuses or has ended.
    """
    answer, alive, wait_s = folder / "answer", folder / "alive", float(os.environ.get(WAIT_S, "900"))
    answer.unlink(missing_ok=True)
    write_text(folder / "start", deployment)
    until_s = time.monotonic() + wait_s
    while not answer.exists():
        if alive.exists() and time.time() - alive.stat().st_mtime > LOST_S:
            raise SystemExit(f"{deployment}: the container of its server has ended; its log says why.")
        if time.monotonic() > until_s:
            return f"its server was not up within {wait_s:g} s, the time that its pod was given"
        time.sleep(POLL_S)
    if why := answer.read_text(encoding="utf-8"):
        raise SystemExit(why)
    return None


def attend(folder: Path, start: Callable[[str], "subprocess.Popen[bytes] | str"]) -> None:
    """Start servers as they are asked for, until there is a file `end`.

    `start` begins the start of a deployment's server, or says why it refuses.
    """
    while not (folder / "end").exists():
        (folder / "alive").touch()
        if (request := folder / "start").exists():
            deployment = request.read_text(encoding="utf-8")
            request.unlink()
            begun = start(deployment)
            while not isinstance(begun, str) and begun.poll() is None:
                (folder / "alive").touch()
                time.sleep(POLL_S)
            broken = "" if isinstance(begun, str) or not begun.returncode else f"{deployment}: its start broke off."
            write_text(folder / "answer", begun if isinstance(begun, str) else broken)
        reap()  # as the first process of its container
        time.sleep(POLL_S)
