"""A null server as a process and loads against it, for the tests of the load engine."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seamark
from seamark.load.coordinator.coordinator import LoadJob, LoadOutcome, run_load
from seamark.load.coordinator.handle import WorkerLauncher
from seamark.load.workers.records import read_segments
from seamark.model.sample import MISSING_NS

ISOLATED_MAIN = Path(seamark.__file__).parent / "platform/isolated_main.py"


@dataclass(frozen=True, kw_only=True)
class Served:
    process: "subprocess.Popen[str]"
    port: int

    @classmethod
    def start(cls, *arguments: object) -> "Served":
        command = [
            sys.executable,
            str(ISOLATED_MAIN),
            "seamark.testservers.null",
            "--port",
            "0",
            *map(str, arguments),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process=process, port=int(process.stdout.readline().split()[-1]))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Served]:
    """A null server that all tests of a module load."""
    server = Served.start()
    yield server
    server.end()


@pytest.fixture
def null_server(plain_server: Served) -> Iterator[Callable[..., Served]]:
    """Start null servers: `null_server("--delay-ms", 20)` returns one; without arguments it is that of the module."""
    started: list[Served] = []

    def start(*arguments: object) -> Served:
        if not arguments:
            return plain_server
        started.append(Served.start(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture
def running_s(tmp_path: Path) -> Callable[[], float]:
    """Say for how long the load's clock has been running: for `on_tick`s that do something in mid-load."""
    first_seen: list[float] = []

    def since_go() -> float:
        if not first_seen and (tmp_path / "parts" / "client.csv").exists():
            first_seen.append(time.monotonic())
        return time.monotonic() - first_seen[0] if first_seen else 0.0

    return since_go


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A load's outcome and all its samples in the order of their index."""

    outcome: LoadOutcome
    samples: Any

    @property
    def sent(self) -> Any:
        return self.samples[self.samples["sent_ns"] != MISSING_NS]

    @property
    def unsent(self) -> Any:
        return self.samples[self.samples["sent_ns"] == MISSING_NS]

    def failures(self) -> dict[int, int]:
        """How many of the requests that were sent ended in which way."""
        values, counts = np.unique(self.sent["failure"], return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Measured]:
    """Run a load: settings as keywords; `driver`, `workers` and `port` say on what."""

    def run(
        driver: str = "seamark.drivers.null:Null",
        *,
        workers: str = "wire",
        port: int = 1,
        on_tick: Callable[[], str | None] = lambda: None,
        seed: int = 1,
        launcher: WorkerLauncher | None = None,
        **settings: Any,
    ) -> Measured:
        settings = {"duration_s": 0.4, "warmup_s": 0.0, "timeout_s": 5.0, "concurrency": 1} | settings
        job = LoadJob(
            driver=driver,
            workers=workers,  # type: ignore[arg-type]
            settings=settings,
            seed=seed,
            data=tmp_path,
            ports={"main": port},
        )
        outcome = run_load(job, None, tmp_path / "parts", on_tick, launcher=launcher)
        return Measured(outcome=outcome, samples=np.sort(read_segments(outcome.segments), order="index"))

    return run
