"""A worker process of a load: `main(["worker-0.json"])`, run through isolated_main.py in the service's environment,
or `run("worker-0.json")` in a process of a fork server.

It makes its driver and requests, prints `ready`, waits for `go EPOCH_NS` on standard input, runs its assignment (with
lines `progress` where wanted), writes segment and report, prints `loaded` and ends. Worker 0 then waits for `judge`,
which comes when no worker has a request in flight, and calls the driver module's `quality`.
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
from seamark.load.workers.assignment import WorkerAssignment, WorkerCounters, seed_for
from seamark.load.workers.hooks import call_hook
from seamark.load.workers.records import Segment
from seamark.load.workers.trace_bodies import RowBodies, row_bodies
from seamark.model.service import Value
from seamark.platform.process_tree import die_with_parent

PROGRESS_INTERVAL_NS = 90_000_000


class Line:
    """Line protocol between a worker and its coordinator. `write` sends a line; `read` returns the next one, "" when
    the coordinator is gone."""

    def __init__(self, write: Callable[[str], object], read: Callable[[], str]) -> None:
        self._write = write
        self._read = read
        self._next_progress_ns = 0

    @classmethod
    def of_pipes(cls) -> "Line":
        """Use standard input and output. Output of libraries goes to stderr instead."""
        sys.stdout.flush()
        out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        return cls(out.write, sys.stdin.readline)

    def send(self, word: str, rest: str = "") -> None:
        """Send a line to the coordinator."""
        self._write(f"{word} {rest}".strip().replace("\n", " | ") + "\n")

    def wait_for_go(self) -> int:
        """Return the epoch that the coordinator sets; exit when it is gone."""
        word, _, epoch_ns = self._read().partition(" ")
        if word != "go":
            raise SystemExit(1)
        return int(epoch_ns)

    def wait_for_judge(self) -> bool:
        """Return True when every worker has ended its load; False when the coordinator is gone."""
        return self._read().strip() == "judge"

    def report_progress(self, at_ns: int, due: int, completed: int) -> None:
        """Send the progress of the load, at most every PROGRESS_INTERVAL_NS."""
        if at_ns >= self._next_progress_ns:
            self._next_progress_ns = at_ns + PROGRESS_INTERVAL_NS
            self.send("progress", f"{at_ns} {due} {completed}")


def make_driver(assignment: WorkerAssignment) -> Wire | Call:
    """Import and make the driver of the job."""
    make = make_of(assignment.job.driver)
    target = assignment.job.target(assignment.worker, assignment.workers)
    if target.load.mix:
        from seamark.load.engine.mix import mixed  # imported only where needed, for a fast start

        return mixed(make, target)
    return make(target)


def bodies_of(assignment: WorkerAssignment, driver: Wire | Call) -> Sequence[Body] | RowBodies:
    """Return the bodies that this worker sends, by request index: the same for all workers, except for rows of a
    trace."""
    job, seed = assignment.job, seed_for(assignment.job.seed, "bodies")
    rows = row_bodies(driver, job.load, seed=seed, worker=assignment.worker, workers=assignment.workers)
    return rows or driver.bodies(job.bodies if driver.body_count is None else driver.body_count, seed)


def quality(assignment: WorkerAssignment) -> Mapping[str, float]:
    """Return the quality of the answers by the driver module's hook."""
    driver, target, seed = assignment.job.driver, assignment.job.target(), assignment.job.seed
    if target.load.mix:
        from seamark.load.engine.mix import classes_of, mixed_quality

        def ask(settings: Mapping[str, Value]) -> Mapping[str, float]:
            return call_hook(driver, "quality", replace(target, settings=settings), seed)

        return mixed_quality(classes_of(target.load.mix), target.settings, ask)
    return call_hook(driver, "quality", target, seed)


def main(argv: list[str]) -> int:
    """Run one assignment in a process that the coordinator started."""
    die_with_parent(json.loads(Path(argv[0]).read_text(encoding="utf-8"))["parent_pid"])
    return run(argv[0])


def run(path: str) -> int:
    """Run one assignment; the coordinator reads standard output."""
    line = Line.of_pipes()
    code = work(WorkerAssignment.from_json(json.loads(Path(path).read_text(encoding="utf-8"))), line)
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a call cannot delay the exit


def work(assignment: WorkerAssignment, line: Line) -> int:
    """Run one assignment and write its report; return the exit code, 0 for success."""
    try:
        report = measure(assignment, line)
    except Exception as error:
        traceback.print_exc()
        line.send("failed", f"{type(error).__name__}: {error}")
        return 1
    write_report(assignment, report)
    line.send("loaded")
    if assignment.worker == 0 and report["ok"] and line.wait_for_judge():
        try:
            report["quality"] = quality(assignment)
        except Exception as error:
            traceback.print_exc()
            report["quality_error"] = f"{type(error).__name__}: {error}"
        write_report(assignment, report)
    return 0 if report["ok"] else 1


def measure(assignment: WorkerAssignment, line: Line) -> dict[str, Any]:
    """Prepare, wait for the clock, run, and return the WorkerReport."""
    job = assignment.job
    allowed = os.sched_getaffinity(0)
    if assignment.cores:
        os.sched_setaffinity(0, assignment.cores)  # before any thread starts, so that all inherit it
    driver = make_driver(assignment)
    bodies = bodies_of(assignment, driver)
    began: dict[str, float] = {}

    def begin() -> int:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # collects only where a library leaks cycles
        line.send("ready", json.dumps({"unit": driver.unit, "kinds": list(driver.kinds)}))
        epoch_ns = line.wait_for_go()
        began["epoch_ns"], began["cpu_s"] = epoch_ns, time.process_time()
        return epoch_ns

    report_progress = line.report_progress if job.load.stop_when_saturated else None
    with Segment(assignment.segment) as segment:
        if driver.speaks == "wire":  # a service may have both kinds of driver
            from seamark.load.engine.event_loop import (
                run_wire,  # imported only where needed, for a fast start
            )

            counters = run_wire(assignment, driver, bodies, segment, begin, report_progress)
        else:
            from seamark.load.engine.supervisor import run_calls

            if job.load.turns > 1:
                text = f"turns: {job.load.turns} turns need a driver that sends from an event loop. Set it to 1."
                raise UserError(text)
            calls = bodies.whole() if isinstance(bodies, RowBodies) else bodies
            counters = run_calls(assignment, driver, calls, segment, begin, report_progress)
        cpu_s, end_ns = time.process_time(), time.monotonic_ns()
    os.sched_setaffinity(0, allowed)
    if counters.fault is not None:
        traceback.print_exception(counters.fault)
    return worker_report(
        assignment, counters, wall_s=(end_ns - began["epoch_ns"]) / 1e9, cpu_s=cpu_s - began["cpu_s"]
    )


def worker_report(
    assignment: WorkerAssignment, counters: WorkerCounters, *, wall_s: float, cpu_s: float
) -> dict[str, Any]:
    """Return the WorkerReport as a JSON document. An open loop has a schedule lag, a closed one null."""
    fault = counters.fault
    return {
        "worker": assignment.worker,
        "pid": os.getpid(),
        "ok": fault is None,
        "reason": None if fault is None else f"{type(fault).__name__}: {fault}",
        "errno": getattr(fault, "errno", None),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "spin_s": counters.spin_s,
        "held_open_s": counters.held_open_s,
        "max_rss_bytes": largest_rss_bytes(),
        "lag_ns": None if assignment.load.closed else schedule_lag(assignment.segment),
        "loop_lag_ns": counters.loop_lag_ns,
        "stalls_ns": counters.stalls_ns,
        "backlog_max": counters.backlog_max,
        "survivors": counters.survivors,
        "written_off": counters.written_off,
        "network": counters.network,
        "scheduled": counters.scheduled,
        "ran_out": fault is None and (counters.ran_out or ran_out(assignment)),
        "sent": counters.sent,
        "completed": counters.completed,
    }


def largest_rss_bytes() -> int:
    """Return the largest resident size of this program. getrusage would include the parent's, inherited until
    exec."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def write_report(assignment: WorkerAssignment, report: dict[str, Any]) -> None:
    """Write the report atomically."""
    temporary = assignment.report.with_suffix(".tmp")
    temporary.write_text(json.dumps(report), encoding="utf-8")
    temporary.replace(assignment.report)
