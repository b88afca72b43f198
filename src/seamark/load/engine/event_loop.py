"""One worker's load with a wire driver: builds requests and connections, then runs the generator on its loop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from time import monotonic_ns

from seamark.errors import UserError
from seamark.load.driver import Body, Wire
from seamark.load.engine.flow import Closed, Open
from seamark.load.engine.generator import Generator, Request
from seamark.load.engine.schedule_lag import lag_summary
from seamark.load.engine.schedule_share import own_schedule
from seamark.load.engine.sessions import ClosedSessions, OpenSessions, SessionGenerator
from seamark.load.engine.unsent_requests import record_rest, record_unsent
from seamark.load.workers.assignment import Share
from seamark.load.workers.lost_requests import due_of_lost
from seamark.load.workers.records import CHUNK_RECORD, ChunkRecorder, Recorder, Segment
from seamark.load.workers.trace_bodies import LARGEST_BYTES, RowBodies
from seamark.load.workers.worker_counters import Observed
from seamark.platform.connection_limits import Room, room_for

LARGEST_BODIES_BYTES = 256 << 20
NOT_OURS = Request(data=b"", kind=0)
"""Stands in the place of another worker's request."""


def encode_all(driver: Wire, bodies: Sequence[Body] | RowBodies) -> list[Request]:
    """Encode bodies in order until they take 256 MiB: big ones are used again the sooner. A piece that several
    share counts once. Rows of a trace are not used again: UserError when they do not fit into what they may take."""
    requests: list[Request] = []
    seen: set[int] = set()
    total_bytes = 0
    rows = bodies if isinstance(bodies, RowBodies) else None
    limit_bytes = LARGEST_BODIES_BYTES if rows is None else LARGEST_BYTES
    for body in bodies:
        request = NOT_OURS if body is None else Request(data=driver.encode(body), kind=body.kind)
        for piece in request.pieces:
            total_bytes += 0 if id(piece) in seen else len(piece)
            seen.add(id(piece))
        if requests and total_bytes > limit_bytes:
            if rows is not None:
                raise rows.too_large(len(requests))
            break
        requests.append(request)
    return requests


def whole_sessions(requests: list[Request], turns: int) -> list[Request]:
    """Return as many requests, which are not all that were made, as are whole sessions. Raises UserError for none."""
    if len(requests) < turns:
        most = LARGEST_BODIES_BYTES >> 20
        raise UserError(f"turns: the {turns} requests of one session take more than {most} MiB. Lower turns.")
    return requests[: len(requests) // turns * turns]


def run_wire(
    share: Share,
    driver: Wire,
    bodies: Sequence[Body] | RowBodies,
    segment: Segment,
    begin: Callable[[], int],
    tell: Callable[[int, int, int], None] | None = None,
) -> Observed:
    """Make ready, call `begin` (it returns the epoch, CLOCK_MONOTONIC ns), run the load.

    `tell` hears at every tick of an open loop nanoseconds since the epoch, requests due and requests completed.
    """
    room = room_for(driver.address(), share.concurrency)
    requests = encode_all(driver, bodies)
    if not isinstance(bodies, RowBodies) and len(requests) < len(bodies):
        requests = whole_sessions(requests, share.job.turns)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with contextlib.ExitStack() as held:
        chunks: ChunkRecorder | None = None
        if driver.decoder().streams:
            chunks = ChunkRecorder(held.enter_context(Segment(share.chunks, CHUNK_RECORD.size)))
        with runner:
            return runner.run(_run(share, driver, requests, segment, chunks, begin, tell, room))


async def _run(
    share: Share,
    driver: Wire,
    requests: list[Request],
    segment: Segment,
    chunks: ChunkRecorder | None,
    begin: Callable[[], int],
    tell: Callable[[int, int, int], None] | None,
    room: Room,
) -> Observed:
    sessions = share.job.turns > 1
    generator = (SessionGenerator if sessions else Generator)(
        driver=driver,
        requests=requests,
        recorder=Recorder(segment),
        chunks=chunks,
        worker=share.worker,
        timeout_ns=int(share.job.timeout_s * 1e9),
    )
    connections = await generator.open(share.concurrency, room.at_once)
    arrivals = own_schedule(share)
    flow: Closed | Open
    if sessions and arrivals is None:
        flow = ClosedSessions(generator, connections, share)
    elif sessions and arrivals is not None:
        flow = OpenSessions(generator, connections, share, arrivals, tell)
    elif arrivals is None:
        flow = Closed(
            generator,
            connections,
            worker=share.worker,
            workers=share.workers,
            requests=share.requests,
            think_time_s=share.job.think_time_s,
        )
    else:
        flow = Open(
            generator,
            connections,
            worker=share.worker,
            workers=share.workers,
            schedule=arrivals,
            tell=tell,
            alone=len(share.cores) == 1,
        )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, generator.stop)
    epoch_ns = begin()
    deadline_ns = epoch_ns + int(share.job.until_s * 1e9)
    fault: BaseException | None = None
    try:
        end_ns = await generator.run(flow, epoch_ns, deadline_ns)
        kinds = [request.kind for request in requests]
        record_rest(segment, share, kinds, taken=flow.begun(), until_ns=end_ns - epoch_ns)
        record_unsent(segment, share.worker, kinds, *flow.unsent(end_ns - epoch_ns))
    except Exception as error:
        fault, end_ns = error, max(deadline_ns, monotonic_ns())  # the whole schedule counts: the rest of it is lost
    finally:
        flow.close()
        for connection in connections:
            connection.close()
    scheduled = flow.scheduled(end_ns)
    if fault is not None:
        scheduled = max(scheduled, due_of_lost(share, end_ns - epoch_ns) or 0)
    return Observed(
        scheduled=scheduled,
        sent=flow.sent,
        completed=generator.completed,
        survivors=generator.survivors or 0,
        backlog_max=flow.backlog_max,
        loop_lag_ns=lag_summary(generator.loop_lag.histogram()),
        stalls_ns=generator.stalls.longest(),
        spin_s=flow.spin_ns / 1e9,
        held_open_s=generator.held_open_ns / 1e9,
        network=room.after(generator.connected_anew, (end_ns - epoch_ns) / 1e9),
        ran_out=flow.ran_out,
        fault=fault,
    )
