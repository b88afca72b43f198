"""The null drivers and the null server: what they say of themselves is so, and a load of them stays small."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import seamark
from seamark.drivers.null import Null
from seamark.load.coordinator.coordinator import LoadJob, LoadOutcome, run_load
from seamark.load.driver import Target
from seamark.load.workers.records import read_segments
from seamark.model.sample import CHUNK
from seamark.model.service import Value
from seamark.services.ephemeral_server import ephemeral_server

ISOLATED_MAIN = Path(seamark.__file__).parent / "platform/isolated_main.py"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, str(ISOLATED_MAIN), "seamark.testservers.null", "--port", "0", "--reply-bytes", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield int(process.stdout.readline().split()[-1])
    process.terminate()
    assert process.wait(10) == 0
    process.stdout.close()


def run(driver: str, workers: str, folder: Path, port: int, **settings: object) -> LoadOutcome:
    given = {"duration_s": 60.0, "warmup_s": 0.0, "timeout_s": 10.0, "concurrency": 2} | settings
    job = LoadJob(
        driver=f"seamark.drivers.null:{driver}",
        workers=workers,  # type: ignore[arg-type]
        settings=given,  # type: ignore[arg-type]
        seed=1,
        data=folder,
        ports={"main": port},
    )
    return run_load(job, None, folder / f"parts-{given.get('requests')}")


@pytest.mark.slow
@pytest.mark.covers("E-NFR01")
@pytest.mark.parametrize(
    ("driver", "workers", "requests"), [("NullCall", "threads", 400_000), ("Null", "wire", 60_000)]
)
def test_memory_does_not_grow_with_the_requests(
    driver: str, workers: str, requests: int, port: int, tmp_path: Path
) -> None:
    few = run(driver, workers, tmp_path, port, requests=requests // 20)
    many = run(driver, workers, tmp_path, port, requests=requests)
    assert many.completed == requests
    grown_bytes = many.reports[0].max_rss_bytes - few.reports[0].max_rss_bytes
    assert grown_bytes / requests < 5, "bytes a request; one kept record would be 66, an object a hundred or more"
    assert many.reports[0].max_rss_bytes < 300e6


@pytest.mark.slow
def test_the_server_answers_health_and_counts_its_requests(port: int, tmp_path: Path) -> None:
    def counted() -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = reply.read().decode().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("null_requests_total "))

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as reply:
        assert reply.status == 200
    before = counted()
    run("Null", "wire", tmp_path, port, requests=123)
    assert counted() - before == 123


def test_the_server_takes_requests_with_bodies_cut_anywhere(port: int) -> None:
    import socket

    request = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n....."
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(5)
        for cut in (1, 20, len(request) - 11, len(request) - 3):
            connection.sendall(request[:cut])
            connection.sendall(request[cut:] + request)
            got = b""
            while len(got) < 2 * len(reply):
                got += connection.recv(1000)
            assert got == 2 * reply


@pytest.mark.slow
@pytest.mark.parametrize(("chunks", "joined"), [(100, 1), (100, 32), (1, 1), (5, 8)])
def test_a_stream_has_the_chunks_that_were_asked_for_however_they_are_joined(
    chunks: int, joined: int, tmp_path: Path
) -> None:
    with ephemeral_server("seamark.testservers.null", "--stream-chunks", chunks, "--stream-joined", joined) as port:
        settings: dict[str, Value] = {"warmup_s": 0.0, "duration_s": 60.0, "timeout_s": 10.0, "concurrency": 3}
        settings |= {"requests": 20, "prompt_len": 4, "gen_tokens": chunks}
        driver = "seamark.drivers.openai:OpenAi"
        job = LoadJob(driver=driver, workers="wire", settings=settings, seed=1, data=tmp_path, ports={"main": port})
        outcome = run_load(job, None, tmp_path / "parts")
        samples, read = read_segments(outcome.segments), read_segments(outcome.files["chunks"], CHUNK)
    assert samples["failure"].tolist() == [0] * 20
    assert samples["units"].tolist() == [chunks] * 20
    assert np.bincount(read["index"], weights=read["events"]).tolist() == [chunks] * 20


def test_the_driver_makes_a_request_and_says_where_to(tmp_path: Path) -> None:
    driver = Null(Target(settings={}, data=tmp_path, host="10.0.0.1", ports={"main": 80}))
    assert driver.address() == ("10.0.0.1", 80)
    assert len(driver.bodies(3, seed=1)) == 3
    assert driver.encode(driver.bodies(1, seed=1)[0]).startswith(b"GET / HTTP/1.1\r\n")
