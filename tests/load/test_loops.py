"""When the open loop wakes, sends and looks at its sockets: driven by hand, without a network."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import pytest

from seamark.drivers.null import Null
from seamark.load.driver import Target
from seamark.load.engine.connection import Connection, Outgoing
from seamark.load.engine.generator import NEVER_NS, Generator
from seamark.load.engine.loops import (
    LONGEST_EARLY_NS,
    LONGEST_EARLY_OWN_CORE_NS,
    MOST_AT_ONCE,
    SHORTEST_EARLY_NS,
    OpenLoop,
)
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.records import Recorder, Segment
from seamark.patterns.table import Nanoseconds

HOUR_NS = 3_600_000_000_000
GET = b"GET / HTTP/1.1\r\n\r\n"
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """A connection to nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def abort(self) -> None:
        pass


def driven(
    tmp_path: Path, due_ns: list[int], users: int, act: Callable[[OpenLoop, Generator, list[Connection]], None]
) -> None:
    """Have `act` drive an open loop whose load began an hour ago."""

    def schedule() -> Iterator[Nanoseconds]:
        yield np.array(due_ns, dtype=np.int64)

    async def run() -> None:
        driver = Null(Target(settings={}, data=tmp_path, ports={"main": 1}))
        with Segment(tmp_path / "samples") as segment:
            generator = Generator(
                driver=driver,
                requests=[Outgoing((GET,), len(GET), 0)],
                recorder=Recorder(segment),
                chunks=None,
                worker=0,
                timeout_ns=2 * HOUR_NS,
            )
            connections = [Connection(generator, driver.decoder()) for _ in range(users)]
            for connection in connections:
                connection.connection_made(Wire())
            job = LoadJob(driver="d:D", workers="wire", settings={}, seed=1, data=tmp_path)
            share = WorkerAssignment(job=job, worker=0, workers=1, segment=tmp_path / "samples")
            flow = OpenLoop(generator, list(connections), share, schedule)
            generator.flow, generator._free = flow, flow.free
            generator.epoch_ns, generator.deadline_ns = monotonic_ns() - HOUR_NS, NEVER_NS
            flow.start()
            act(flow, generator, connections)
            flow.close()

    asyncio.run(run())


def test_a_backlog_is_sent_in_parts_between_looks_at_the_sockets(tmp_path: Path) -> None:
    def act(flow: OpenLoop, generator: Generator, connections: list[Connection]) -> None:
        assert flow.sent == MOST_AT_ONCE
        flow._poll()
        assert flow.sent == 2 * MOST_AT_ONCE

    driven(tmp_path, list(range(1000)), users=1000, act=act)


@pytest.mark.serial
def test_what_is_due_goes_out_before_the_next_reply_is_read(tmp_path: Path) -> None:
    """Two replies are there to be read when a third request falls due."""
    soon_ns = HOUR_NS + 30_000_000

    def act(flow: OpenLoop, generator: Generator, connections: list[Connection]) -> None:
        assert (flow.sent, generator.due_ns) == (2, generator.epoch_ns + soon_ns)
        while monotonic_ns() < generator.due_ns:
            pass
        connections[0].data_received(REPLY)
        assert (flow.sent, generator.completed) == (3, 1)
        assert connections[2].busy
        connections[1].data_received(REPLY)
        assert generator.due_ns == NEVER_NS

    driven(tmp_path, [0, 1, soon_ns], users=3, act=act)


def test_without_a_free_connection_the_reply_that_frees_one_sends_what_waits(tmp_path: Path) -> None:
    def act(flow: OpenLoop, generator: Generator, connections: list[Connection]) -> None:
        assert (flow.sent, generator.due_ns) == (1, NEVER_NS), "no reply need ask again before one is free"
        for done in range(1, 4):
            connections[0].data_received(REPLY)
            assert (generator.completed, flow.sent) == (done, min(done + 1, 3))

    driven(tmp_path, [0, 1, 2], users=1, act=act)


@pytest.mark.serial
@pytest.mark.parametrize(("own_core", "longest_ns"), [(False, LONGEST_EARLY_NS), (True, LONGEST_EARLY_OWN_CORE_NS)])
def test_the_timer_is_set_the_earlier_the_later_it_fires_here(
    tmp_path: Path, own_core: bool, longest_ns: int
) -> None:
    def act(flow: OpenLoop, generator: Generator, connections: list[Connection]) -> None:
        flow._longest_early_ns = longest_ns

        def wake(late_ns: int) -> None:
            flow._timer.arm(1)
            flow._wakes_ns = monotonic_ns() - late_ns
            flow._wake()

        for _ in range(20):
            wake(longest_ns)
        assert flow._early_ns == longest_ns
        for _ in range(2000):
            wake(0)
        assert flow._early_ns < longest_ns / 2
        assert flow._early_ns >= SHORTEST_EARLY_NS

    driven(tmp_path, [2 * HOUR_NS], users=1, act=act)
