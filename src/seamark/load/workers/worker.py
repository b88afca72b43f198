"""One worker process of a load: `main(["share.json"])`, run through isolated_main.py in the service's environment, or
`run("share.json")` in a process of a fork server.

It makes its driver and requests, says `ready` on its standard output, waits for `go EPOCH_NS` on its standard input,
runs its share (and says how `far` it is, where that is asked for), writes its segment and its report, says `loaded`
and ends. The first worker waits for `judge`, which comes when no other has a request in flight, and asks the driver's
module for `quality`.
"""

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.load.driver import Body, Call, Wire, make_of
from seamark.load.engine.schedule_lag import schedule_lag
from seamark.load.engine.schedule_share import ran_out
from seamark.load.workers.assignment import Share, seed_for
from seamark.load.workers.hooks import call_hook
from seamark.load.workers.records import Segment
from seamark.load.workers.trace_bodies import RowBodies, row_bodies
from seamark.load.workers.worker_counters import Observed
from seamark.model.service import Value
from seamark.platform.parent_death import die_with_parent

TELL_EVERY_NS = 90_000_000


class Line:
    """What a worker and its parent say to each other. `write` sends a line; `read` waits for the parent's next, and
    returns "" when the parent has gone."""

    def __init__(self, write: Callable[[str], object], read: Callable[[], str]) -> None:
        self._write = write
        self._read = read
        self._tell_at_ns = 0

    @classmethod
    def of_pipes(cls) -> "Line":
        """Speak through standard input and output. What libraries print goes to stderr instead."""
        sys.stdout.flush()
        out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        return cls(out.write, sys.stdin.readline)

    def say(self, word: str, rest: str = "") -> None:
        """Tell the parent."""
        self._write(f"{word} {rest}".strip().replace("\n", " | ") + "\n")

    def wait_for_go(self) -> int:
        """Return the epoch that the parent names; exit when the parent has gone."""
        word, _, epoch_ns = self._read().partition(" ")
        if word != "go":
            raise SystemExit(1)
        return int(epoch_ns)

    def wait_for_judge(self) -> bool:
        """Return when every worker has ended its load; False when the parent has gone."""
        return self._read().strip() == "judge"

    def tell(self, at_ns: int, due: int, completed: int) -> None:
        """Tell the parent how far the load is, if it was not told just now."""
        if at_ns >= self._tell_at_ns:
            self._tell_at_ns = at_ns + TELL_EVERY_NS
            self.say("far", f"{at_ns} {due} {completed}")


def make_driver(share: Share) -> Wire | Call:
    """Import the driver that the job names and make it."""
    make = make_of(share.job.driver)
    target = share.job.target(share.worker, share.workers)
    if target.settings.get("mix"):
        from seamark.load.engine.mix import mixed  # few loads have one, and a worker starts fast

        return mixed(make, target)
    return make(target)


def bodies_of(share: Share, driver: Wire | Call) -> Sequence[Body] | RowBodies:
    """Return what this worker sends, in the order of requests: the same for all workers, but for rows of a trace."""
    job, seed = share.job, seed_for(share.job.seed, "bodies")
    rows = row_bodies(
        driver,
        job.settings,
        seed=seed,
        until_s=job.until_s,
        requests=job.requests,
        worker=share.worker,
        workers=share.workers,
    )
    return rows or driver.bodies(job.bodies if driver.body_count is None else driver.body_count, seed)


def quality(share: Share) -> Mapping[str, float]:
    """Ask the driver's module what the answers were worth."""
    driver, target, seed = share.job.driver, share.job.target(), share.job.seed
    if target.settings.get("mix"):
        from seamark.load.engine.mix import classes_of, mixed_quality

        def ask(settings: Mapping[str, Value]) -> Mapping[str, float]:
            return call_hook(driver, "quality", replace(target, settings=settings), seed)

        return mixed_quality(classes_of(str(target.settings["mix"])), target.settings, ask)
    return call_hook(driver, "quality", target, seed)


def main(argv: list[str]) -> int:
    """Run one share of a load in a process that our parent started."""
    die_with_parent(json.loads(Path(argv[0]).read_text(encoding="utf-8"))["parent_pid"])
    return run(argv[0])


def run(path: str) -> int:
    """Run one share of a load for a parent that hears our standard output."""
    line = Line.of_pipes()
    code = work(Share.from_json(json.loads(Path(path).read_text(encoding="utf-8"))), line)
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a call cannot keep us


def work(share: Share, line: Line) -> int:
    """Run one share of a load and write its report; return the exit code of its process, 0 when all went well."""
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
            report["quality"] = quality(share)
        except Exception as error:
            traceback.print_exc()
            report["quality_error"] = f"{type(error).__name__}: {error}"
        write_report(share, report)
    return 0 if report["ok"] else 1


def measure(share: Share, line: Line) -> dict[str, Any]:
    """Make ready, wait for the clock, run, and return the WorkerReport."""
    job = share.job
    allowed = os.sched_getaffinity(0)
    if share.cores:
        os.sched_setaffinity(0, share.cores)  # before there is a thread: each that starts later inherits it
    driver = make_driver(share)
    bodies = bodies_of(share, driver)
    began: dict[str, float] = {}

    def begin() -> int:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # collects only where a library leaks cycles
        line.say("ready", json.dumps({"unit": driver.unit, "kinds": list(driver.kinds)}))
        epoch_ns = line.wait_for_go()
        began["epoch_ns"], began["cpu_s"] = epoch_ns, time.process_time()
        return epoch_ns

    tell = line.tell if job.settings.get("stop_when_saturated") else None
    with Segment(share.segment) as segment:
        if driver.speaks == "wire":  # a service may be spoken to both ways: its driver says which
            from seamark.load.engine.event_loop import (
                run_wire,  # each kind imports what it needs: a worker starts fast
            )

            observed = run_wire(share, driver, bodies, segment, begin, tell)
        else:
            from seamark.load.engine.supervisor import run_calls

            if job.turns > 1:
                raise UserError(f"turns: {job.turns} turns need a driver that sends from an event loop. Set it to 1.")
            calls = bodies.whole() if isinstance(bodies, RowBodies) else bodies
            observed = run_calls(share, driver, calls, segment, begin, tell)
        cpu_s, end_ns = time.process_time(), time.monotonic_ns()
    os.sched_setaffinity(0, allowed)
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
        "held_open_s": observed.held_open_s,
        "max_rss_bytes": largest_rss_bytes(),
        "lag_ns": None if closed else schedule_lag(share.segment),
        "loop_lag_ns": observed.loop_lag_ns,
        "stalls_ns": observed.stalls_ns,
        "backlog_max": observed.backlog_max,
        "survivors": observed.survivors,
        "written_off": observed.written_off,
        "network": observed.network,
        "scheduled": observed.scheduled,
        "ran_out": fault is None and (observed.ran_out or ran_out(share)),
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
