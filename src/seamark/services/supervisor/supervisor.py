"""The keeper of one deployment: owns its server's processes, keeps them while they are needed, records their end.

Run as `python -m seamark.services.supervisor.supervisor FOLDER` with an Order on standard input. It forks: the parent
stays behind as a guard (guard.py). Both adopt orphans, so that no process can hide from them in a session of its own.
"""

import contextlib
import os
import pickle
import signal
import sys
import time
from typing import Any

from seamark.errors import UserError
from seamark.model.trial import SCHEMA_VERSION
from seamark.platform.process_stat import alive_below
from seamark.platform.process_tree import (
    become_subreaper,
    die_with_parent,
    kill_below,
    reap,
    send,
    wait_until_none,
)
from seamark.services.supervisor.control_files import acquire_lock, control_files_of, write_control_file
from seamark.services.supervisor.failure import EndedError, FailedError
from seamark.services.supervisor.gpu_pool import claim_gpus
from seamark.services.supervisor.guard import guard
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.liveness import TICK_S, LivenessMonitor
from seamark.services.supervisor.scratch import clear, data_folder, hold_data
from seamark.services.supervisor.startup import Startup
from seamark.services.supervisor.supervisor_log import say, tail, timestamp
from seamark.storage.paths import write_json

CHILDREN_GRACE_S = 2.0


def keep(spec: LaunchSpec, guard: int) -> None:
    """Serve until there is a reason to end, then end everything. What went wrong is in the signs."""
    liveness = LivenessMonitor(spec.folder, spec.site.lease_s, guard)
    liveness.install_signal_handlers()
    startup = Startup(spec, liveness)
    log = spec.folder.server_log
    log_start = log.stat().st_size if log.exists() else 0
    data_lock, gpus = None, contextlib.ExitStack()
    end: dict[str, Any] = {"why": "crash", "reason": "The keeper itself failed; its own log says how."}
    try:
        liveness.tick()
        if spec.site.placement == "share":
            claim_gpus(spec.deployment.gpus, gpus)
        data_lock = hold_data(startup.data)
        if data_lock is None:
            raise FailedError("setup_failed", f"{startup.data}: the server of another run is using this folder.")
        startup.run()
        write_json(liveness.control.answer, startup.answer("ok"))
        say("server-up", phases=startup.phases, ports=startup.ports)
        while True:
            liveness.tick()
            reap(but=startup.group.pids() if startup.group else ())
            time.sleep(TICK_S)
    except EndedError as ended:
        end = {"why": ended.why, "reason": ended.reason}
    except FailedError as failed:
        end = {"why": "failed", "category": failed.category, "reason": failed.reason, "log_tail": failed.log_tail}
    except (UserError, OSError) as cause:
        end = {"why": "failed", "category": "setup_failed", "reason": str(cause)}
    finally:
        fallen = startup.group.fallen if startup.group else None
        if fallen is not None and fallen != log:
            log, log_start = fallen, 0
        lines = end.get("log_tail") or (tail(log, log_start) if end["why"] in ("crash", "failed") else [])
        _take_down(startup, {**end, "log_tail": lines})
        gpus.close()
        if data_lock:
            data_lock.close()
            clear(startup.data)


def _take_down(startup: Startup, end: dict[str, Any]) -> None:
    """Say why at once, so that a load sees it; then end every process; then say how the server ended."""
    control = startup.liveness.control
    returncode = _returncode(startup)
    end = {"schema_version": SCHEMA_VERSION, **end, "returncode": returncode, "at": timestamp()}
    write_control_file(control.exit_record, end)
    say("server-down", why=end["why"], reason=end["reason"])
    if startup.sampler:
        startup.sampler.stop()
    if not control.answer.exists():
        category = end.get("category") or ("server_died" if end["why"] == "crash" else "interrupted")
        told = {"category": category, "reason": end["reason"], "log_tail": end["log_tail"]}
        write_control_file(control.answer, startup.answer("failed") | told)
    _end_processes(startup)
    if returncode is None and (returncode := _returncode(startup)) is not None:
        write_control_file(control.exit_record, end | {"returncode": returncode})


def _end_processes(startup: Startup) -> None:
    """Ask the server; then whatever it left behind; then insist."""
    if startup.group:
        startup.group.end(startup.liveness.heartbeat)
        _returncode(startup)
        startup.group.close()
    if left := alive_below(os.getpid()):
        send(left, signal.SIGTERM)
        wait_until_none(os.getpid(), CHILDREN_GRACE_S)
    if not kill_below(os.getpid()):
        say("left-behind", pids=alive_below(os.getpid()))


def _returncode(startup: Startup) -> int | None:
    """Return how the server's own process ended, None when it runs, was never started, or its node was lost."""
    with contextlib.suppress(EndedError, OSError):
        return startup.group.main.handle.poll() if startup.group and startup.group.main else None
    return None


def main(argv: list[str]) -> int:
    """Hold the deployment's lock until the process ends, fork guard and keeper, and keep."""
    spec: LaunchSpec = pickle.load(sys.stdin.buffer)
    control = control_files_of(spec.folder)
    held = acquire_lock(control.lock, wait_s=2.0)
    if held is None:
        print(f"{argv[0]}: another keeper holds this deployment", file=sys.stderr)
        return 3
    become_subreaper()
    parent = os.getpid()
    if keeper := os.fork():
        os._exit(guard(keeper, control, data_folder(spec)))  # so that the lock is given back by nothing but our end
    os.setsid()
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    if os.getppid() == parent:
        keep(spec, parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
