"""One worker's load with a wire driver: builds requests and connections, then runs the generator on its loop."""

import asyncio
import resource
import signal
from collections.abc import Callable, Sequence
from time import monotonic_ns

from seamark.load.driver import Body, Wire
from seamark.load.due import own_schedule
from seamark.load.flow import Closed, Open
from seamark.load.generator import Generator, Request
from seamark.load.job import Share
from seamark.load.observed import Observed
from seamark.load.records import Recorder, Segment
from seamark.load.unsent import record_rest

LARGEST_BODIES_BYTES = 256 << 20
SPARE_FILES = 64


def encode_all(driver: Wire, bodies: Sequence[Body]) -> list[Request]:
    """Encode bodies in order until they take 256 MiB: big ones are used again the sooner. A piece that several
    share counts once."""
    requests: list[Request] = []
    seen: set[int] = set()
    total_bytes = 0
    for body in bodies:
        request = Request(data=driver.encode(body), kind=body.kind)
        for piece in request.pieces:
            total_bytes += 0 if id(piece) in seen else len(piece)
            seen.add(id(piece))
        if requests and total_bytes > LARGEST_BODIES_BYTES:
            break
        requests.append(request)
    return requests


def allow_files(count: int) -> None:
    """Raise the limit of open files to what `count` connections need. Raises OSError with the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise OSError(f"{count} connections need {wanted} open files and the limit is {hard}: see ulimit -Hn")
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_wire(
    share: Share, driver: Wire, bodies: Sequence[Body], segment: Segment, begin: Callable[[], int]
) -> Observed:
    """Make ready, call `begin` (it returns the epoch, CLOCK_MONOTONIC ns), run the load."""
    allow_files(share.concurrency)
    requests = encode_all(driver, bodies)
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        return runner.run(_run(share, driver, requests, segment, begin))


async def _run(
    share: Share, driver: Wire, requests: list[Request], segment: Segment, begin: Callable[[], int]
) -> Observed:
    generator = Generator(
        driver=driver,
        requests=requests,
        recorder=Recorder(segment),
        worker=share.worker,
        timeout_ns=int(share.job.timeout_s * 1e9),
    )
    connections = await generator.open(share.concurrency)
    arrivals = own_schedule(share)
    flow: Closed | Open
    if arrivals is None:
        flow = Closed(
            generator,
            connections,
            worker=share.worker,
            workers=share.workers,
            requests=share.requests,
            think_time_s=share.job.think_time_s,
        )
    else:
        flow = Open(generator, connections, worker=share.worker, workers=share.workers, schedule=arrivals)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, generator.stop)
    epoch_ns = begin()
    deadline_ns = epoch_ns + int(share.job.until_s * 1e9)
    fault: BaseException | None = None
    try:
        end_ns = await generator.run(flow, epoch_ns, deadline_ns)
        kinds = [request.kind for request in requests]
        record_rest(segment, share, kinds, taken=flow.sent, until_ns=end_ns - epoch_ns)
    except Exception as error:
        fault, end_ns = error, max(deadline_ns, monotonic_ns())  # the whole schedule counts: the rest of it is lost
    finally:
        flow.close()
        for connection in connections:
            connection.close()
    return Observed(
        scheduled=flow.scheduled(end_ns),
        sent=flow.sent,
        completed=generator.completed,
        survivors=generator.survivors or 0,
        backlog_max=flow.backlog_max,
        loop_lag_ns=generator.loop_lag.summary(),
        spin_s=flow.spin_ns / 1e9,
        fault=fault,
    )
