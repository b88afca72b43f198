"""A worker process of a load: makes its driver and requests, waits for the clock, runs its assignment, reports.

`main`, run through isolated_main.py in the service's environment, or `run` in a process of a fork server. Its stream
to the coordinator (channel.py) is standard input on the coordinator's machine, a connection elsewhere. Worker 0 also
calls the driver module's `quality` when no worker has a request in flight.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark import __version__
from seamark.dispatch.identity import boot_id, node, task_rank
from seamark.errors import UserError
from seamark.load.driver import AnyDriver, Body, TaskFailure, make_of
from seamark.load.engine.schedule_share import last_sent_s, ran_out, schedule_lag
from seamark.load.workers.assignment import FILES, WorkerAssignment, WorkerCounters, WorkerRun
from seamark.load.workers.channel import LAUNCH_SPEC, Channel
from seamark.load.workers.events import EventFile
from seamark.load.workers.hooks import call_hook
from seamark.load.workers.records import ReplySegment, Segment, synced_each_second
from seamark.load.workers.trace_bodies import RowBodies, row_bodies
from seamark.load.workers.work_list import Passes, WorkList, work_list
from seamark.model.digest import seed_for
from seamark.model.service import Value
from seamark.platform.process_tree import die_with_parent, lower_own_priority, pin
from seamark.platform.rendezvous import connect

OF_A_TASK = ("fault", "category", "quality", "began_ns")
"""Counters that a report has in another form, or only where they are known."""


def main(argv: list[str]) -> int:
    """Run one assignment in a process of its own: `main([NUMBER])` for a parent on this machine, `main([])` for the
    coordinator of the launch spec in the environment."""
    if argv:
        die_with_parent()
        return run(*argv)
    spec = json.loads(os.environ.pop(LAUNCH_SPEC))
    if spec.get("parent_pid"):
        die_with_parent(spec["parent_pid"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_stderr()
    worker = spec["worker"] if "worker" in spec else task_rank()
    about = {"worker": worker, "host": node(), "pid": os.getpid(), "machine": boot_id(), "version": __version__}
    return serve(Channel(connect(spec["addresses"], spec["token"], about)))


def run(number: str) -> int:
    """Run the assignment that comes over standard input. `number` identifies the worker in lists of processes."""
    stream = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # a child of the driver must not keep the stream open
    return serve(Channel(stream))


def serve(channel: Channel) -> int:
    """Take the assignment, work, and end this process."""
    message = json.loads(channel.read().removeprefix("assignment "))
    assignment, channel.folder = choose_files(WorkerAssignment.from_json(message["assignment"]), message["probe"])
    if channel.folder is not None:
        channel.send("apart")
    try:
        code = work(assignment, channel)
    finally:
        channel.remove_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that hang in a call cannot delay the exit


def work(assignment: WorkerAssignment, channel: Channel) -> int:
    """Run one assignment and deliver what it leaves; return the exit code, 0 for success."""
    allowed = os.sched_getaffinity(0)
    try:
        report = measure(assignment, channel)
    except TaskFailure as failure:
        channel.send("category", failure.category)
        channel.send("failed", " ".join(str(failure).split()))
        return 1
    except Exception as error:
        traceback.print_exc()
        channel.send_stderr_tail()
        channel.send("failed", f"{type(error).__name__}: {error}")
        return 1
    channel.send("report", json.dumps(report))
    channel.send("loaded")
    while (line := channel.read()) != "bye":
        if line == "judge" and report["ok"]:
            pin(os.getpid(), allowed)  # not before: other workers of this load may still send
            try:
                report["quality"] = {**report.get("quality", {}), **quality(assignment)}
            except Exception as error:
                traceback.print_exc()
                report["quality_error"] = f"{type(error).__name__}: {error}"
            channel.send("report", json.dumps(report))
    if channel.folder is not None:
        for kind, path in assignment.files.items():
            channel.send_file(kind, path)
    channel.finish()
    return 0 if report["ok"] else 1


def choose_files(
    assignment: WorkerAssignment, probe: Mapping[str, str] | None
) -> tuple[WorkerAssignment, Path | None]:
    """Return the assignment with writable files, and the temporary folder that has them where the coordinator's
    folder cannot be written from here. `probe` is a file there with its content; None on the same machine."""
    if probe is None:
        return assignment, None
    mark = assignment.segment.with_suffix(".here")
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if Path(probe["path"]).read_text(encoding="ascii") == probe["content"]:
            mark.touch()
            mark.unlink()
            return assignment, None
    folder = Path(tempfile.mkdtemp(prefix="seamark-shard-"))
    return replace(assignment, segment=folder / assignment.segment.name), folder


def keep_stderr() -> None:
    """Redirect stderr, and stdout with it, to a file that can be read back for its last lines."""
    if not stat.S_ISREG(os.fstat(2).st_mode):
        with tempfile.TemporaryFile() as log:
            os.dup2(log.fileno(), 2)
    os.dup2(2, 1)


def make_driver(assignment: WorkerAssignment, events: EventFile | None) -> AnyDriver:
    """Import and make the driver of the job. Raises UserError if it has no stages and is to record events."""
    make = make_of(assignment.job.driver)
    target = assignment.job.target(assignment.worker, assignment.workers, events)
    target = replace(target, files=assignment.segment.parent / FILES)
    if target.load.mix:
        from seamark.load.engine.mix import mixed  # imported only where needed, for a fast start

        driver: AnyDriver = mixed(make, target)
    else:
        driver = make(target)
    if events is not None:
        events.stages = len(driver.stages)
        if driver.speaks == "wire" or not driver.stages:
            raise UserError("keep_events: the driver of this service records none. Remove it.")
    return driver


def bodies_of(assignment: WorkerAssignment, driver: AnyDriver) -> Sequence[Body] | RowBodies:
    """Return the bodies that this worker sends, by request index: the same for all workers, except for rows of a
    trace."""
    job, seed = assignment.job, seed_for(assignment.job.seed_of_bodies, "bodies")
    worker, workers = assignment.worker, assignment.workers
    rows = row_bodies(driver, job.load, seed=seed, worker=worker, workers=workers, repeated=job.keep_busy)
    counts = (driver.body_count, driver.work_count, job.bodies)
    return rows or driver.bodies(next(count for count in counts if count is not None), seed)


def warmed(
    assignment: WorkerAssignment, driver: AnyDriver, bodies: Sequence[Body] | RowBodies | WorkList
) -> dict[str, float] | None:
    """Let worker 0 warm the caches of the server for the whole load; return a Warmed, None where nothing is sent."""
    if driver.warm is None or assignment.worker:
        return None
    began_s = time.monotonic()
    whole: Sequence[Body] | RowBodies = bodies.bodies if isinstance(bodies, WorkList) else bodies
    if isinstance(whole, RowBodies):
        whole = replace(whole, workers=1)  # the rows of other workers too
    requests = driver.warm(body for body in whole if body is not None)
    return {"requests": requests, "took_s": round(time.monotonic() - began_s, 4)}


def quality(assignment: WorkerAssignment) -> Mapping[str, float]:
    """Return the quality of the answers by the driver module's hook."""
    driver, seed = assignment.job.driver, assignment.job.seed_of_bodies
    target = replace(assignment.job.target(), files=assignment.segment.parent / FILES)
    if target.load.mix:
        from seamark.load.engine.mix import classes_of, mixed_quality

        def ask(settings: Mapping[str, Value]) -> Mapping[str, float]:
            return call_hook(driver, "quality", replace(target, settings=settings), seed)

        return mixed_quality(classes_of(target.load.mix), target.settings, ask)
    return call_hook(driver, "quality", target, seed)


def measure(assignment: WorkerAssignment, channel: Channel) -> dict[str, Any]:
    """Prepare, wait for the clock, run, and return the WorkerReport."""
    job = assignment.job
    pin(os.getpid(), assignment.cores)  # the threads of the channel too; later ones inherit it
    lower_own_priority(job.niceness)
    events = None if assignment.events is None else EventFile(assignment.events, assignment.worker)
    driver = make_driver(assignment, events)
    bodies: Sequence[Body] | RowBodies | WorkList
    if driver.speaks == "task":
        bodies = ()
    elif job.load.finite:
        assignment, bodies = work_list(assignment, driver, lambda: channel.send("again"))
        if assignment.replies is not None and driver.item_ids is not None:
            ids = driver.item_ids()
            asked = {item: ids[item] for item in sorted(bodies.own)}
            assignment.path("asked").write_text(json.dumps(asked), encoding="utf-8")
        if isinstance(assignment.items, Passes):
            channel.on_enough = assignment.items.end
    else:
        bodies = bodies_of(assignment, driver)
    sent_before = warmed(assignment, driver, bodies)
    began: dict[str, float] = {}

    def begin() -> int:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # collects only where a library leaks cycles
        about: dict[str, Any] = {
            "unit": driver.unit,
            "kinds": list(driver.kinds),
            "items": driver.work_count,
            "warmed": sent_before,
            "stages": [] if events is None else list(driver.stages),
        }
        if driver.clock is not None:
            about["slowest"] = driver.clock.slowest
        channel.send("ready", json.dumps(about))
        epoch_ns = int(channel.read().removeprefix("go "))
        began["epoch_ns"], began["cpu_s"] = epoch_ns, time.process_time()
        return epoch_ns

    with ExitStack() as held:
        segment = held.enter_context(Segment(assignment.segment))
        if events is not None:
            held.enter_context(events)
            begin = events.started(begin)
        replies = None if assignment.replies is None else held.enter_context(ReplySegment(assignment.replies))
        if job.load.finite:
            kept = (segment, replies, events)
            held.enter_context(synced_each_second(*(file.sync for file in kept if file is not None)))
        run = WorkerRun(
            assignment=assignment,
            segment=segment,
            begin=begin,
            report_progress=channel.report_progress if job.load.stop_when_saturated else None,
            replies=replies,
            events=events,
        )
        if driver.speaks == "wire":  # a service may have both kinds of driver
            from seamark.load.engine.event_loop import (
                run_wire,  # imported only where needed, for a fast start
            )

            counters = run_wire(run, driver, bodies)
        elif driver.speaks == "task":
            from seamark.load.engine.task import run_task

            counters = run_task(run, driver)
        else:
            from seamark.load.engine.supervisor import run_calls

            if job.load.turns > 1:
                text = f"turns: {job.load.turns} turns need a driver that sends from an event loop. Set it to 1."
                raise UserError(text)
            calls = bodies.whole() if isinstance(bodies, RowBodies) else bodies
            calls = calls.bodies if isinstance(calls, WorkList) else calls
            counters = run_calls(run, driver, calls)
        cpu_s, end_ns = time.process_time(), time.monotonic_ns()
        if driver.ended is not None:
            driver.ended()
        if events is not None:
            try:
                events.flush()
            except OSError as error:  # no space
                counters = replace(counters, fault=counters.fault or error)
            if events.fault is not None and counters.fault is None:
                counters = replace(counters, fault=events.fault, category=events.fault.category)
    if counters.fault is not None and not isinstance(counters.fault, TaskFailure):
        traceback.print_exception(counters.fault)
    return worker_report(
        assignment, counters, wall_s=(end_ns - began["epoch_ns"]) / 1e9, cpu_s=cpu_s - began["cpu_s"]
    )


def worker_report(
    assignment: WorkerAssignment, counters: WorkerCounters, *, wall_s: float, cpu_s: float
) -> dict[str, Any]:
    """Return the WorkerReport as a JSON document. An open loop has a schedule lag, a closed one null."""
    fault = counters.fault
    has_run_out = fault is None and (counters.ran_out or ran_out(assignment))
    ran_out_s = counters.ran_out_s
    has_sent_all = has_run_out or (assignment.load.turns == 1 and counters.sent == assignment.requests)
    is_open = not assignment.load.closed and assignment.job.kind != "program"
    if is_open and has_sent_all and counters.sent == counters.scheduled:
        ran_out_s = last_sent_s(assignment.segment)  # with a backlog at its end, the load was sending all the time
    return {
        **{name: value for name, value in vars(counters).items() if name not in OF_A_TASK},
        **{name: value for name in OF_A_TASK[1:] if (value := getattr(counters, name)) is not None},
        "worker": assignment.worker,
        "pid": os.getpid(),
        "ok": fault is None,
        "reason": None if fault is None else _reason(fault),
        "errno": getattr(fault, "errno", None),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "max_rss_bytes": largest_rss_bytes(),
        "lag_ns": None if assignment.load.closed else schedule_lag(assignment.segment),
        "ran_out": has_run_out,
        "ran_out_s": ran_out_s if fault is None else None,
    }


def _reason(fault: BaseException) -> str:
    return str(fault) if isinstance(fault, TaskFailure) else f"{type(fault).__name__}: {fault}"


def largest_rss_bytes() -> int:
    """Return the largest resident size of this program. getrusage would include the parent's, inherited until
    exec."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
