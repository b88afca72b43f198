"""Workers with a place: cores, niceness, threads and GPUs of their processes, started anew or by a fork server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import autogroup

from seamark.load.coordinator.coordinator import run_load
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.platform.pinning import gpu_variables

pytestmark = pytest.mark.services
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@pytest.fixture(params=[False, True], ids=["new", "forked"])
def owner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int | None]:
    """The process of a run whose fork server starts the workers; None: each is a new process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    if not request.param:
        yield None
        return
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


def job_in(folder: Path, **changes: Any) -> LoadJob:
    folder.mkdir(exist_ok=True)
    job = LoadJob(
        driver="placed_driver:Placed",
        workers="threads",
        settings={"concurrency": 2, "duration_s": 5.0, "warmup_s": 0.0, "requests": 4, "shards": 2},
        seed=1,
        data=folder,
    )
    return replace(job, **changes)


def seen_by(job: LoadJob, owner: int | None) -> list[dict[str, Any]]:
    """Return what each worker of a load has seen."""
    outcome = run_load(job, Path(sys.executable), job.data / "parts", owner=owner)
    assert (outcome.completed, outcome.died) == (4, 0)
    return [json.loads(path.read_text()) for path in sorted(job.data.glob("seen-*.json"))]


def test_an_assignment_with_a_place_is_read_as_it_was_written(tmp_path: Path) -> None:
    for variables in ({}, gpu_variables(()), gpu_variables((3, 1))):
        job = job_in(tmp_path, niceness=4, threads=2, gpu_variables=variables, cores=(1,))
        assignment = WorkerAssignment(job=job, worker=0, workers=1, segment=tmp_path)
        assert WorkerAssignment.from_json(json.loads(json.dumps(assignment.to_json()))) == assignment


def test_every_worker_has_the_cores_niceness_threads_and_gpus_of_its_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "64")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    cpu = max(os.sched_getaffinity(0))
    job = job_in(tmp_path / "load", cores=(cpu,), niceness=9, threads=3, gpu_variables=gpu_variables((1,)))
    seen = seen_by(job, owner)
    assert len(seen) == 2
    for each in seen:
        expected = {**dict.fromkeys(THREADS, "3"), "CUDA_VISIBLE_DEVICES": "1"}
        assert each["at_import"] == each["in_a_call"] == expected
        assert (each["cpus"], each["niceness"]) == ([cpu], 9)
        assert (each["parent"] == os.getpid()) == (owner is None)
    assert os.environ["OPENBLAS_NUM_THREADS"] == "64"
    assert os.getpriority(os.PRIO_PROCESS, 0) == psutil.Process(os.getppid()).nice()


def test_a_load_without_a_place_is_as_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    for each in seen_by(job_in(tmp_path / "load"), owner):
        assert each["in_a_call"]["OMP_NUM_THREADS"] == "64"
        assert each["in_a_call"]["MKL_NUM_THREADS"] is None
        assert each["niceness"] == os.getpriority(os.PRIO_PROCESS, 0)
        assert each["cpus"] == sorted(os.sched_getaffinity(0))


def test_loads_of_one_run_each_import_with_their_own_number_of_threads(tmp_path: Path, owner: int | None) -> None:
    for threads in (1, 2, 1):
        folder = tmp_path / f"{threads}-{len(list(tmp_path.iterdir()))}"
        seen = seen_by(job_in(folder, threads=threads, niceness=threads), owner)
        assert {each["at_import"]["OMP_NUM_THREADS"] for each in seen} == {str(threads)}
        assert {each["niceness"] for each in seen} == {threads}, "a fork server keeps its own"


def test_a_wire_worker_of_low_priority_has_a_session_of_that_priority(
    null_server: Callable, tmp_path: Path, owner: int | None
) -> None:
    job = LoadJob(
        driver="seamark.drivers.null:Null",
        workers="wire",
        settings={"concurrency": 2, "duration_s": 0.5, "warmup_s": 0.0, "shards": 2},
        seed=1,
        data=tmp_path,
        ports={"main": null_server().port},
        niceness=8,
    )
    seen: dict[int, tuple[int, int, bool]] = {}

    def look() -> None:
        if not (tmp_path / "parts" / "client.csv").exists():
            return  # the clock has not started
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if process.nice() == 8 and any("seamark" in word for word in words):
                    seen[process.pid] = (
                        process.nice(),
                        autogroup(process.pid),
                        os.getsid(process.pid) == process.pid,
                    )
            except (psutil.Error, OSError):
                continue

    outcome = run_load(job, None, tmp_path / "parts", look, owner=owner)
    assert outcome.died == 0
    pids = {report.pid for report in outcome.reports}
    assert {pid: seen[pid] for pid in pids} == dict.fromkeys(pids, (8, 8, True))


def test_a_program_of_low_priority_has_it_in_its_own_session(tmp_path: Path, owner: int | None) -> None:
    script = "sleep 0.3; nice > niceness; cat /proc/self/autogroup > session; taskset -cp $$ > cpus"
    cpu = max(os.sched_getaffinity(0))
    job = LoadJob(
        driver="seamark.drivers.command:Command",
        workers="processes",
        settings={"command": json.dumps({"argv": ["sh", "-c", script], "keep": ["*"]}), "limit_s": 20.0},
        seed=1,
        data=tmp_path,
        kind="program",
        cores=(cpu,),
        niceness=6,
    )
    outcome = run_load(job, None, tmp_path / "parts", owner=owner)
    assert outcome.completed == 1
    kept = {name: next(tmp_path.glob(f"parts/**/{name}")).read_text() for name in ("niceness", "session", "cpus")}
    assert kept["niceness"] == "6\n"
    assert kept["session"].endswith(" nice 6\n")
    assert kept["cpus"].endswith(f": {cpu}\n")
