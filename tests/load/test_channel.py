"""The line protocol of a worker, spoken by hand over a socket pair: what any launcher's stream carries."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.records import segment_state
from seamark.platform.fork_server.client import ISOLATED_MAIN

pytestmark = pytest.mark.services
COMMAND = [sys.executable, ISOLATED_MAIN, "seamark.load.workers.worker", "0"]


class Spoken:
    """A worker process, and the coordinator's end of its stream."""

    def __init__(self, stream: socket.socket, process: "subprocess.Popen[bytes]") -> None:
        self.stream = stream
        self.process = process
        self.lines: list[str] = []
        self.received = stream.makefile("rb")

    def send(self, line: str) -> None:
        self.stream.sendall(line.encode() + b"\n")

    def until(self, word: str) -> str:
        """Read lines up to one that begins with the word; return the rest of that."""
        for line in self.received:
            first, _, rest = line.decode().strip().partition(" ")
            self.lines.append(first)
            if first == word:
                return rest
        raise AssertionError(f"no line {word}, only {self.lines}")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Spoken]:
    ours, theirs = socket.socketpair()
    with ours, (tmp_path / "log").open("w+b") as log:
        process = subprocess.Popen(COMMAND, stdin=theirs.fileno(), stdout=log, stderr=log)
        theirs.close()
        ours.settimeout(30)
        yield Spoken(ours, process)
        process.kill()
        process.wait()


def assignment(tmp_path: Path, *, elsewhere: bool, duration_s: float = 0.2) -> str:
    settings = {"concurrency": 1, "duration_s": duration_s, "warmup_s": 0.0}
    job = LoadJob(driver="seamark.drivers.null:NullCall", workers="threads", settings=settings, seed=1, data=tmp_path)
    share = WorkerAssignment(job=job, worker=0, workers=1, segment=tmp_path / "worker-0.samples")
    probe = {"path": "/no/such/file", "content": "none"} if elsewhere else None
    return "assignment " + json.dumps({"assignment": share.to_json(), "probe": probe})


@pytest.mark.parametrize("elsewhere", [False, True], ids=["shared folder", "folder of its own"])
def test_a_worker_answers_line_by_line_and_sends_what_the_coordinator_lacks(
    worker: Spoken, tmp_path: Path, elsewhere: bool
) -> None:
    worker.send(assignment(tmp_path, elsewhere=elsewhere))
    said = {"unit": "reply", "kinds": ["call"], "items": None, "stages": [], "warmed": None}
    assert json.loads(worker.until("ready")) == said
    worker.send("ping 7")
    number, at_ns = map(int, worker.until("pong").split())
    assert number == 7
    assert abs(time.monotonic_ns() - at_ns) < 30 * 10**9
    worker.send(f"go {time.monotonic_ns()}")
    first = json.loads(worker.until("report"))
    assert first["ok"]
    assert "quality" not in first, "it is measured when no worker has a request in flight"
    worker.until("loaded")
    worker.send("judge")
    assert json.loads(worker.until("report")) == first | {"quality": {}}
    worker.send("bye")
    segment = tmp_path / "worker-0.samples"
    if elsewhere:
        assert not segment.exists()
        kind, size_bytes = worker.until("file").split()
        assert kind == "samples"
        segment.write_bytes(worker.received.read(int(size_bytes)))
    worker.until("done")
    assert ("apart" in worker.lines) == elsewhere
    assert segment_state(segment) == (first["sent"], True)
    worker.stream.shutdown(socket.SHUT_RDWR)
    assert worker.process.wait(10) == 0


def test_a_worker_ends_with_its_stream(worker: Spoken, tmp_path: Path) -> None:
    worker.send(assignment(tmp_path, elsewhere=False, duration_s=60.0))
    worker.until("ready")
    worker.send(f"go {time.monotonic_ns()}")
    worker.stream.shutdown(socket.SHUT_RDWR)
    assert worker.process.wait(10) == 1


def test_a_worker_that_is_stopped_reports_what_it_did(worker: Spoken, tmp_path: Path) -> None:
    worker.send(assignment(tmp_path, elsewhere=False, duration_s=60.0))
    worker.until("ready")
    worker.send(f"go {time.monotonic_ns()}")
    time.sleep(0.2)
    worker.send("stop")
    assert json.loads(worker.until("report"))["sent"] > 0
    worker.until("loaded")
