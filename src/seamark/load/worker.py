"""One worker process of a load: `main(["share.json"])`, run through outside.py in the service's environment.

It makes its driver and requests, says `ready` on its standard output, waits for `go EPOCH_NS` on its standard input,
runs its share, writes its segment and its report, says `loaded` and ends. The first worker waits for `judge`, which
comes when no other has a request in flight, and asks the driver's module for `quality`.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, cast

from seamark.load.driver import Call, Driver, Wire
from seamark.load.job import Share, seed_for
from seamark.load.lag import schedule_lag
from seamark.load.observed import Observed
from seamark.load.parent import die_with_parent
from seamark.load.preparation import call_hook
from seamark.load.records import Segment


class Line:
    """The two pipes to the parent. What libraries print goes to stderr instead."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, word: str, rest: str = "") -> None:
        """Tell the parent."""
        self._out.write(f"{word} {rest}".strip().replace("\n", " | ") + "\n")
        self._out.flush()

    def wait_for_share(self, module: str) -> str:
        """Import the driver's `module`, then return the file of the share; exit when the parent has gone."""
        die_with_parent()
        with contextlib.suppress(Exception):  # said again, and told, when the driver is made
            importlib.import_module(module)
        word, _, path = sys.stdin.readline().partition(" ")
        if word != "share":
            raise SystemExit(1)
        return path.strip()

    def wait_for_go(self) -> int:
        """Return the epoch that the parent names; exit when the parent has gone."""
        word, _, epoch_ns = sys.stdin.readline().partition(" ")
        if word != "go":
            raise SystemExit(1)
        return int(epoch_ns)

    def wait_for_judge(self) -> bool:
        """Return when every worker has ended its load; False when the parent has gone."""
        return sys.stdin.readline().strip() == "judge"


def make_driver(share: Share) -> Driver:
    """Import the driver that the job names and make it."""
    module, _, name = share.job.driver.partition(":")
    driver = getattr(importlib.import_module(module), name)(share.job.target(share.worker, share.workers))
    return cast(Driver, driver)


def main(argv: list[str]) -> int:
    """Run one share of a load."""
    line = Line()
    path = line.wait_for_share(argv[1]) if argv[0] == "--stand-by" else argv[0]
    share = Share.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
    die_with_parent(share.parent_pid)
    try:
        report = measure(share, line)
    except Exception as error:
        traceback.print_exc()
        line.say("failed", f"{type(error).__name__}: {error}")
        return 1
    write_report(share, report)
    line.say("loaded")
    if share.worker == 0 and report["ok"] and line.wait_for_judge():
        try:
            module = share.job.driver.partition(":")[0]
            report["quality"] = call_hook(module, "quality", share.job.target(), share.job.seed)
        except Exception as error:
            traceback.print_exc()
            report["quality_error"] = f"{type(error).__name__}: {error}"
        write_report(share, report)
    sys.stderr.flush()
    os._exit(0 if report["ok"] else 1)  # threads that hang in a call cannot keep us


def measure(share: Share, line: Line) -> dict[str, Any]:
    """Make ready, wait for the clock, run, and return the WorkerReport."""
    job = share.job
    driver = make_driver(share)
    bodies = driver.bodies(getattr(driver, "body_count", job.bodies), seed_for(job.seed, "bodies"))
    began: dict[str, float] = {}

    def begin() -> int:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # collects only where a library leaks cycles
        line.say("ready", json.dumps({"unit": driver.unit, "kinds": list(driver.kinds)}))
        epoch_ns = line.wait_for_go()
        began["epoch_ns"], began["cpu_s"] = epoch_ns, time.process_time()
        return epoch_ns

    with Segment(share.segment) as segment:
        if hasattr(driver, "encode"):  # a service may speak both ways: its driver says which
            from seamark.load.eventloop import run_wire  # each kind imports what it needs: a worker starts fast

            observed = run_wire(share, cast(Wire, driver), bodies, segment, begin)
        else:
            from seamark.load.supervisor import run_calls

            observed = run_calls(share, cast(Call, driver), bodies, segment, begin)
        cpu_s, end_ns = time.process_time(), time.monotonic_ns()
    if observed.fault is not None:
        traceback.print_exception(observed.fault)
    return worker_report(share, observed, wall_s=(end_ns - began["epoch_ns"]) / 1e9, cpu_s=cpu_s - began["cpu_s"])


def worker_report(share: Share, observed: Observed, *, wall_s: float, cpu_s: float) -> dict[str, Any]:
    """Return the WorkerReport as JSON has it. An open loop has a schedule lag, a closed one null."""
    fault = observed.fault
    closed = (share.job.settings.get("pattern") or "closed") == "closed"
    return {
        "worker": share.worker,
        "pid": os.getpid(),
        "ok": fault is None,
        "reason": None if fault is None else f"{type(fault).__name__}: {fault}",
        "errno": getattr(fault, "errno", None),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "spin_s": observed.spin_s,
        "max_rss_bytes": largest_rss_bytes(),
        "lag_ns": None if closed else schedule_lag(share.segment),
        "loop_lag_ns": observed.loop_lag_ns,
        "backlog_max": observed.backlog_max,
        "survivors": observed.survivors,
        "written_off": observed.written_off,
        "scheduled": observed.scheduled,
        "sent": observed.sent,
        "completed": observed.completed,
    }


def largest_rss_bytes() -> int:
    """Return this program's largest resident size. getrusage would count the parent's, which was ours until exec."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def write_report(share: Share, report: dict[str, Any]) -> None:
    """Write the report, whole or not at all."""
    temporary = share.report.with_suffix(".tmp")
    temporary.write_text(json.dumps(report), encoding="utf-8")
    temporary.replace(share.report)
