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
from seamark.services.supervisor.control_files import hold, signs_of, write_sign
from seamark.services.supervisor.failure import EndedError, FailedError
from seamark.services.supervisor.gpu_pool import claim_gpus
from seamark.services.supervisor.guard import guard
from seamark.services.supervisor.launch_spec import Order
from seamark.services.supervisor.liveness import TICK_S, Watch
from seamark.services.supervisor.scratch import clear, data_folder, hold_data
from seamark.services.supervisor.startup import BringUp
from seamark.services.supervisor.supervisor_log import say, tail, timestamp
from seamark.storage.paths import write_json

CHILDREN_GRACE_S = 2.0


def keep(order: Order, guard: int) -> None:
    """Serve until there is a reason to end, then end everything. What went wrong is in the signs."""
    watch = Watch(order.folder, order.site.lease_s, guard)
    watch.obey_signals()
    bringing = BringUp(order, watch)
    log = order.folder.server_log
    log_start = log.stat().st_size if log.exists() else 0
    data_lock, gpus = None, contextlib.ExitStack()
    end: dict[str, Any] = {"why": "crash", "reason": "The keeper itself failed; its own log says how."}
    try:
        watch.tick()
        if order.site.placement == "share":
            claim_gpus(order.deployment.gpus, gpus)
        data_lock = hold_data(bringing.data)
        if data_lock is None:
            raise FailedError("setup_failed", f"{bringing.data}: the server of another run is using this folder.")
        bringing.run()
        write_json(watch.signs.answer, bringing.answer("ok"))
        say("server-up", phases=bringing.phases, ports=bringing.ports)
        while True:
            watch.tick()
            reap(but=bringing.pieces.pids() if bringing.pieces else ())
            time.sleep(TICK_S)
    except EndedError as ended:
        end = {"why": ended.why, "reason": ended.reason}
    except FailedError as failed:
        end = {"why": "failed", "category": failed.category, "reason": failed.reason, "log_tail": failed.log_tail}
    except (UserError, OSError) as cause:
        end = {"why": "failed", "category": "setup_failed", "reason": str(cause)}
    finally:
        fallen = bringing.pieces.fallen if bringing.pieces else None
        if fallen is not None and fallen != log:
            log, log_start = fallen, 0
        lines = end.get("log_tail") or (tail(log, log_start) if end["why"] in ("crash", "failed") else [])
        _take_down(bringing, {**end, "log_tail": lines})
        gpus.close()
        if data_lock:
            data_lock.close()
            clear(bringing.data)


def _take_down(bringing: BringUp, end: dict[str, Any]) -> None:
    """Say why at once, so that a load sees it; then end every process; then say how the server ended."""
    signs = bringing.watch.signs
    returncode = _returncode(bringing)
    end = {"schema_version": SCHEMA_VERSION, **end, "returncode": returncode, "at": timestamp()}
    write_sign(signs.end, end)
    say("server-down", why=end["why"], reason=end["reason"])
    if bringing.sampler:
        bringing.sampler.stop()
    if not signs.answer.exists():
        category = end.get("category") or ("server_died" if end["why"] == "crash" else "interrupted")
        told = {"category": category, "reason": end["reason"], "log_tail": end["log_tail"]}
        write_sign(signs.answer, bringing.answer("failed") | told)
    _end_processes(bringing)
    if returncode is None and (returncode := _returncode(bringing)) is not None:
        write_sign(signs.end, end | {"returncode": returncode})


def _end_processes(bringing: BringUp) -> None:
    """Ask the server; then whatever it left behind; then insist."""
    if bringing.pieces:
        bringing.pieces.end(bringing.watch.beat)
        _returncode(bringing)
        bringing.pieces.close()
    if left := alive_below(os.getpid()):
        send(left, signal.SIGTERM)
        wait_until_none(os.getpid(), CHILDREN_GRACE_S)
    if not kill_below(os.getpid()):
        say("left-behind", pids=alive_below(os.getpid()))


def _returncode(bringing: BringUp) -> int | None:
    """Return how the server's own process ended, None when it runs, was never started, or its node was lost."""
    with contextlib.suppress(EndedError, OSError):
        return bringing.pieces.main.runs.poll() if bringing.pieces and bringing.pieces.main else None
    return None


def main(argv: list[str]) -> int:
    """Hold the deployment's lock until the process ends, fork guard and keeper, and keep."""
    order: Order = pickle.load(sys.stdin.buffer)
    signs = signs_of(order.folder)
    held = hold(signs.lock, wait_s=2.0)
    if held is None:
        print(f"{argv[0]}: another keeper holds this deployment", file=sys.stderr)
        return 3
    become_subreaper()
    parent = os.getpid()
    if keeper := os.fork():
        os._exit(guard(keeper, signs, data_folder(order)))  # so that the lock is given back by nothing but our end
    os.setsid()
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    if os.getppid() == parent:
        keep(order, parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
