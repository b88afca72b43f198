"""The guard: the keeper's parent, which ends whatever a killed keeper leaves behind, and records that."""

import os
import signal
from pathlib import Path

from seamark.model.trial import SCHEMA_VERSION
from seamark.platform.process_tree import kill_below, reap, send
from seamark.services.supervisor.control_files import ControlFiles, write_control_file
from seamark.services.supervisor.scratch import clear
from seamark.services.supervisor.supervisor_log import exit_text, say, timestamp


def guard(keeper: int, control: ControlFiles, data: Path) -> int:
    """Wait for the keeper to end, hand on signals meanwhile; return an exit code.

    We adopted the orphans of our whole tree, so everything a killed keeper leaves is below us.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: send([keeper], number))
    _, waited = os.waitpid(keeper, 0)
    kill_below(os.getpid())
    reap()
    returncode = os.waitstatus_to_exitcode(waited)
    if not control.exit_record.exists():
        reason = f"The keeper ended with {exit_text(returncode)}; its server was ended with it."
        end = {"schema_version": SCHEMA_VERSION, "why": "crash", "returncode": None, "reason": reason}
        write_control_file(control.exit_record, {**end, "log_tail": [], "at": timestamp()})
        say("keeper-killed", reason=reason)
    clear(data)
    control.heartbeat.unlink(missing_ok=True)
    return 0 if returncode == 0 else 1
