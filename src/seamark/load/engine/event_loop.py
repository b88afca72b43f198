"""Load of one worker with a wire driver: encodes requests, opens connections, runs the generator on an event loop."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from time import monotonic_ns

from seamark.errors import UserError
from seamark.load.driver import Body, Wire
from seamark.load.engine.connection import Outgoing
from seamark.load.engine.generator import Generator, LoadLoop
from seamark.load.engine.loops import ClosedLoop, OpenLoop
from seamark.load.engine.schedule_share import (
    due_requests_of_lost,
    lag_summary,
    own_schedule,
    record_rest,
    record_unsent,
)
from seamark.load.engine.sessions import ClosedSessions, OpenSessions, SessionGenerator
from seamark.load.workers.assignment import WorkerCounters, WorkerRun
from seamark.load.workers.records import CHUNK_RECORD, ChunkRecorder, Recorder, Segment
from seamark.load.workers.trace_bodies import LARGEST_BYTES, RowBodies
from seamark.load.workers.work_list import WorkList
from seamark.platform.connection_limits import ConnectionBudget, connection_budget

LARGEST_BODIES_BYTES = 256 << 20
NOT_OURS = Outgoing((b"",), 0, 0)
"""Placeholder for a request that another worker sends."""


Bodies = Sequence[Body] | RowBodies | WorkList


def encode_all(driver: Wire, bodies: Bodies) -> list[Outgoing]:
    """Encode bodies in order, up to 256 MiB; where that limit cuts them, requests repeat sooner.

    A piece shared by several requests counts once. Rows of a trace and items are never repeated, so UserError is
    raised when they exceed their own limit.
    """
    requests: list[Outgoing] = []
    seen: set[int] = set()
    total_bytes = 0
    rows = bodies if isinstance(bodies, (RowBodies, WorkList)) else None
    limit_bytes = LARGEST_BODIES_BYTES if rows is None else LARGEST_BYTES
    for body in bodies:
        request = NOT_OURS
        if body is not None:
            data = driver.encode(body)
            pieces = data if isinstance(data, tuple) else (data,)
            request = Outgoing(pieces, sum(map(len, pieces)), body.kind, driver.asked_units)
        for piece in request.data:
            total_bytes += 0 if id(piece) in seen else len(piece)
            seen.add(id(piece))
        if requests and total_bytes > limit_bytes:
            if rows is not None:
                raise rows.too_large(len(requests))
            break
        requests.append(request)
    return requests


def whole_sessions(requests: list[Outgoing], turns: int) -> list[Outgoing]:
    """Return the longest prefix of `requests` that consists of whole sessions. Raises UserError if not even one
    fits."""
    if len(requests) < turns:
        most = LARGEST_BODIES_BYTES >> 20
        raise UserError(f"turns: the {turns} requests of one session take more than {most} MiB. Lower turns.")
    return requests[: len(requests) // turns * turns]


def run_wire(run: WorkerRun, driver: Wire, bodies: Bodies) -> WorkerCounters:
    """Prepare requests and connections, begin, run the load."""
    assignment = run.assignment
    room = connection_budget(driver.address(), assignment.concurrency)
    requests = encode_all(driver, bodies)
    if not isinstance(bodies, (RowBodies, WorkList)) and len(requests) < len(bodies):
        requests = whole_sessions(requests, assignment.load.turns)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with contextlib.ExitStack() as held:
        chunks: ChunkRecorder | None = None
        if driver.decoder().streams:
            chunks = ChunkRecorder(held.enter_context(Segment(assignment.chunks, CHUNK_RECORD.size)))
        with runner:
            return runner.run(_run(run, driver, requests, chunks, room))


async def _run(
    run: WorkerRun, driver: Wire, requests: list[Outgoing], chunks: ChunkRecorder | None, room: ConnectionBudget
) -> WorkerCounters:
    assignment, segment, replies = run.assignment, run.segment, run.replies
    sessions = assignment.load.turns > 1
    generator = (SessionGenerator if sessions else Generator)(
        driver=driver,
        requests=requests,
        recorder=Recorder(segment, first=[file.flush for file in (chunks, replies) if file is not None]),
        chunks=chunks,
        worker=assignment.worker,
        timeout_ns=int(assignment.load.timeout_s * 1e9),
        replies=replies,
    )
    connections = await generator.open(assignment.concurrency, room.at_once)
    arrivals = own_schedule(assignment)
    flow: LoadLoop
    if arrivals is None:
        flow = (ClosedSessions if sessions else ClosedLoop)(generator, connections, assignment)
    else:
        loop = OpenSessions if sessions else OpenLoop
        flow = loop(generator, connections, assignment, arrivals, run.report_progress)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, generator.stop)
    epoch_ns = run.begin()
    until_ns = epoch_ns + int(assignment.load.length_s * 1e9)
    fault: BaseException | None = None
    try:
        end_ns = await generator.run(flow, epoch_ns, until_ns, int(assignment.load.late_s * 1e9))
        kinds = [request.kind for request in requests]
        record_rest(segment, assignment, kinds, taken=flow.begun(), until_ns=end_ns - epoch_ns)
        record_unsent(segment, assignment.worker, kinds, *flow.unsent(end_ns - epoch_ns))
    except Exception as error:
        fault, end_ns = error, max(until_ns, monotonic_ns())  # the rest of the schedule counts as lost requests
    finally:
        flow.close()
        for connection in connections:
            connection.close()
    scheduled = flow.scheduled(end_ns)
    if fault is not None:
        scheduled = max(scheduled, due_requests_of_lost(assignment, end_ns - epoch_ns) or 0)
    return WorkerCounters(
        scheduled=scheduled,
        sent=flow.sent,
        completed=generator.completed,
        survivors=generator.survivors or 0,
        backlog_max=flow.backlog_max,
        loop_lag_ns=lag_summary(generator.loop_lag.histogram()),
        stalls_ns=generator.stalls.longest(),
        spin_s=flow.spin_ns / 1e9,
        held_open_s=generator.held_open_ns / 1e9,
        asked_units=generator.asked_units,
        network=room.after(generator.connected_anew, (end_ns - epoch_ns) / 1e9),
        ran_out=flow.ran_out,
        ran_out_s=None if flow.ran_out_ns is None else (flow.ran_out_ns - epoch_ns) / 1e9,
        fault=fault,
        errors=generator.errors or None,
    )
