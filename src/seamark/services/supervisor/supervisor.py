"""Supervisor of one deployment: owns its server's processes, keeps them while they are needed, records their end.

Run as `python -m seamark.services.supervisor.supervisor FOLDER` with a pickled LaunchSpec on standard input. It
forks: the parent stays as the guard, which ends what a killed supervisor leaves behind. Both are subreapers, so that
a server process in a session of its own stays below them.
"""

import contextlib
import os
import pickle
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from seamark.config.secrets import secrets_of
from seamark.errors import UserError
from seamark.model.failure_categories import STATED_BY_SERVERS
from seamark.model.results.deployment_record import ServerEnd
from seamark.platform.process_tree import (
    alive_below,
    become_subreaper,
    kill_below,
    reap,
    send,
    set_parent_death_signal,
    wait_until_none,
)
from seamark.services.supervisor.control_files import (
    ControlFiles,
    acquire_lock,
    control_files_of,
    write_control_file,
)
from seamark.services.supervisor.events import (
    EndedError,
    FailedError,
    exit_text,
    log_event,
    log_tail,
    stated_failure,
    timestamp,
)
from seamark.services.supervisor.launch_spec import LaunchSpec
from seamark.services.supervisor.liveness import TICK_S, LivenessMonitor
from seamark.services.supervisor.node_locks import claim_gpus
from seamark.services.supervisor.startup import Startup
from seamark.storage.documents import write
from seamark.storage.redaction import hidden

CHILDREN_GRACE_S = 2.0


def supervise(spec: LaunchSpec, guard: int) -> None:
    """Serve until there is a reason to end, then end every process. The exit record has that reason."""
    liveness = LivenessMonitor(spec.folder, spec.site.lease_s, guard)
    liveness.install_signal_handlers()
    startup = Startup(spec, liveness)
    log = spec.folder.server_log
    log_start = log.stat().st_size if log.exists() else 0
    data_lock, gpus = None, contextlib.ExitStack()
    end = ServerEnd(why="crash", reason=f"The supervisor failed; see its log {liveness.control.log}.")
    try:
        liveness.tick()
        if spec.site.placement == "share":
            claim_gpus(spec.deployment.gpus, gpus)
        data_lock = _lock_data(spec.data)
        if data_lock is None:
            raise FailedError("setup_failed", f"{spec.data}: the server of another run is using this folder.")
        startup.run()
        write(liveness.control.answer, startup.answer("ok"))
        log_event("server-up", phases=startup.phases, ports=startup.ports)
        while True:
            liveness.tick()
            if startup.group:
                startup.group.keep_niceness()
            reap(but=startup.group.pids() if startup.group else ())
            time.sleep(TICK_S)
    except EndedError as ended:
        end = ServerEnd(why=ended.why, reason=ended.reason)
    except FailedError as failed:
        tail = tuple(failed.log_tail)
        end = ServerEnd(why="failed", category=failed.category, reason=failed.reason, log_tail=tail)
    except (UserError, OSError) as cause:
        end = ServerEnd(why="failed", category="setup_failed", reason=str(cause))
    finally:
        exited_log = startup.group.exited_log if startup.group else None
        if exited_log is not None and exited_log != log:
            log, log_start = exited_log, 0
        if not end.log_tail and end.why in ("crash", "failed"):
            end = replace(end, log_tail=tuple(log_tail(log, log_start)))
        if end.category == "server_never_healthy" and (
            stated := stated_failure(end.log_tail, (*startup.spec.service.failures, *STATED_BY_SERVERS))
        ):
            end = replace(end, category=stated[0], reason=stated[1])
        _shut_down(startup, end)
        gpus.close()
        if data_lock:
            data_lock.close()
            _clear_data(spec.data)


def _shut_down(startup: Startup, end: ServerEnd) -> None:
    """Write the exit record at once, for the load to see; end every process; add the server's exit code."""
    control = startup.liveness.control
    returncode = _returncode(startup)
    end = hidden(replace(end, returncode=returncode, at=timestamp()), secrets_of(startup.spec.deployment.settings))
    write_control_file(control.exit_record, end)
    log_event("server-down", why=end.why, reason=end.reason)
    if startup.sampler:
        startup.sampler.stop()
    if not control.answer.exists():
        category = end.category or ("server_died" if end.why == "crash" else "interrupted")
        answer = replace(startup.answer("failed"), category=category, reason=end.reason, log_tail=end.log_tail)
        write_control_file(control.answer, answer)
    _end_processes(startup)
    if returncode is None and (returncode := _returncode(startup)) is not None:
        write_control_file(control.exit_record, replace(end, returncode=returncode))


def _end_processes(startup: Startup) -> None:
    """Send the server its stop signal; then SIGTERM, and at last SIGKILL, to the remaining processes below this
    one."""
    if startup.group:
        startup.group.end(startup.liveness.heartbeat)
        _returncode(startup)
        startup.group.close()
    if left := alive_below(os.getpid()):
        send(left, signal.SIGTERM)
        wait_until_none(os.getpid(), CHILDREN_GRACE_S)
    if not kill_below(os.getpid()):
        log_event("left-behind", pids=alive_below(os.getpid()))


def _returncode(startup: Startup) -> int | None:
    """Return the exit code of the main process, None when it runs, was never started, or its node was lost."""
    with contextlib.suppress(EndedError, OSError):
        return startup.group.main.handle.poll() if startup.group and startup.group.main else None
    return None


def _lock_data(data: Path) -> TextIO | None:
    """Return the lock of a data folder, None while a server of another run holds it."""
    return acquire_lock(data.with_name(f".{data.name}.lock"))


def _clear_data(data: Path) -> None:
    """Remove a server's data, unless another run has locked the folder since."""
    if data.exists() and (lock := _lock_data(data)):
        with lock:
            shutil.rmtree(data, ignore_errors=True)


def guard(supervisor: int, control: ControlFiles, data: Path) -> int:
    """Wait for the supervisor, forwarding signals to it; end and record what it leaves; return an exit code.

    The guard is a subreaper: every process that a killed supervisor leaves is below it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: send([supervisor], number))
    _, status = os.waitpid(supervisor, 0)
    kill_below(os.getpid())
    reap()
    returncode = os.waitstatus_to_exitcode(status)
    if not control.exit_record.exists():
        reason = f"The supervisor ended with {exit_text(returncode)}; its server was ended with it."
        write_control_file(control.exit_record, ServerEnd(why="crash", reason=reason, at=timestamp()))
        log_event("supervisor-killed", reason=reason)
    _clear_data(data)
    control.heartbeat.unlink(missing_ok=True)
    return 0 if returncode == 0 else 1


def main(argv: list[str]) -> int:
    """Lock the deployment until this process ends, fork guard and supervisor, and supervise."""
    spec: LaunchSpec = pickle.load(sys.stdin.buffer)
    control = control_files_of(spec.folder)
    lock = acquire_lock(control.lock, wait_s=2.0)
    if lock is None:
        print(f"{argv[0]}: another supervisor holds this deployment", file=sys.stderr)
        return 3
    become_subreaper()
    parent = os.getpid()
    if supervisor := os.fork():
        os._exit(guard(supervisor, control, spec.data))  # without clean-up, so that only the exit releases the lock
    os.setsid()
    become_subreaper()
    set_parent_death_signal(signal.SIGTERM)
    if os.getppid() == parent:
        supervise(spec, parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
