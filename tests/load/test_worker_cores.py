"""CPUs of workers: their assignment, and where their threads really run."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.load.coordinator.coordinator import run_load
from seamark.load.workers.assignment import LoadJob, WorkerAssignment


@pytest.mark.parametrize(
    ("workers", "many", "kept"),
    [("wire", 2, [(4,), (5,)]), ("wire", 3, [(4, 5)] * 3), ("threads", 1, [(4, 5)]), ("processes", 2, [(4, 5)] * 2)],
)
def test_an_event_loop_has_a_core_of_its_own_where_there_are_enough(
    tmp_path: Path, workers: str, many: int, kept: list[tuple[int, ...]]
) -> None:
    job = LoadJob(driver="a:B", workers=workers, settings={}, seed=1, data=tmp_path, cores=(4, 5))  # type: ignore[arg-type]
    shares = [WorkerAssignment(job=job, worker=k, workers=many, segment=tmp_path) for k in range(many)]
    assert [share.cores for share in shares] == kept
    assert WorkerAssignment.from_json(shares[0].to_json()) == shares[0]


def test_processes_are_as_many_as_the_cores_of_the_load_can_hold(tmp_path: Path) -> None:
    job = LoadJob(driver="a:B", workers="processes", settings={"concurrency": 64}, seed=1, data=tmp_path)
    assert replace(job, cores=(4, 5, 6)).processes == 6


@pytest.mark.services
@pytest.mark.parametrize(
    ("driver", "workers"), [("where_driver:Where", "threads"), ("where_driver:Where", "processes")]
)
def test_every_thread_of_a_worker_runs_where_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    cpu = max(os.sched_getaffinity(0))
    job = LoadJob(
        driver=driver,
        workers=workers,  # type: ignore[arg-type]
        settings={"concurrency": 4, "duration_s": 5.0, "warmup_s": 0.0, "requests": 20},
        seed=1,
        data=tmp_path,
        cores=(cpu,),
    )
    outcome = run_load(job, Path(sys.executable), tmp_path / "parts")
    assert outcome.completed == 20
    assert outcome.quality["cpus_allowed"] == len(os.sched_getaffinity(0)), "answers are judged with every core"
    said = {path.read_text() for path in tmp_path.glob("cpus-*")}
    assert said == {str([cpu])}
    assert os.sched_getaffinity(0) >= {cpu}


@pytest.mark.services
def test_a_wire_load_is_kept_to_its_core_and_says_so(null_server: Callable, tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    job = LoadJob(
        driver="seamark.drivers.null:Null",
        workers="wire",
        settings={"concurrency": 2, "duration_s": 0.3, "warmup_s": 0.0},
        seed=1,
        data=tmp_path,
        ports={"main": null_server().port},
        cores=(cpu,),
    )
    pids: list[set[int]] = []

    def look() -> None:
        for path in Path("/proc/self/task").glob("*/children"):
            for pid in path.read_text().split():
                pids.append(os.sched_getaffinity(int(pid)))

    outcome = run_load(job, None, tmp_path / "parts", look)
    assert outcome.cores == (cpu,)
    assert {cpu} in pids
