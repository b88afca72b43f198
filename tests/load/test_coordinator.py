"""The parent of a load: shards that die, loads that are ended early, nothing left behind."""

import csv
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from processes import load_worker, load_workers

from seamark.load.coordinator.coordinator import LoadError, run_load
from seamark.load.workers.assignment import LoadJob
from seamark.load.workers.records import segment_state
from seamark.model.sample import Failure

HERE = Path(__file__).parent
pytestmark = pytest.mark.services


@pytest.mark.covers("E-FR25")
def test_shards_send_the_same_schedule_as_one_worker(null_server: Callable, load: Callable) -> None:
    port = null_server().port
    settings = {"pattern": "poisson", "rate_rps": 300.0, "concurrency": 9, "requests": 99, "duration_s": 5.0}
    settings |= {"port": port}
    single, sharded = load(**settings), load(**settings, shards=3)
    assert sharded.samples["due_ns"].tolist() == single.samples["due_ns"].tolist()
    assert sharded.samples["index"].tolist() == list(range(len(single.samples)))
    assert len(sharded.outcome.reports) == 3
    assert (sharded.samples["worker"] == sharded.samples["index"] % 3).all()


@pytest.mark.covers("E-FR25", "E-CLI05")
def test_a_killed_shard_leaves_the_others_and_is_counted(
    null_server: Callable, load: Callable, running_s: Callable[[], float]
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 1.5 and not killed:
            victim = load_worker("1")
            killed.append(victim.pid)
            victim.kill()

    measured = load(port=null_server("--delay-ms", 2).port, shards=3, concurrency=3, duration_s=3.0, on_tick=kill_one)
    outcome = measured.outcome
    assert killed
    assert outcome.died == 1
    lost = outcome.reports[1]
    assert (lost.ok, lost.pid) == (False, killed[0])
    assert "SIGKILL" in lost.reason
    last_s = [measured.samples["last_ns"][measured.samples["worker"] == k].max() / 1e9 for k in range(3)]
    assert last_s[0] > 2.8
    assert last_s[2] > 2.8
    assert 0 < last_s[1] < 2.8, "what it had written before stays"
    assert outcome.aborted is None


def test_a_load_that_is_ended_early_keeps_its_samples_and_cancels_what_is_in_flight(
    null_server: Callable, load: Callable, running_s: Callable[[], float]
) -> None:
    measured = load(
        port=null_server("--silent-every", 20).port,
        concurrency=4,
        duration_s=60.0,
        timeout_s=60.0,
        on_tick=lambda: "server died" if running_s() > 0.5 else None,
    )
    assert running_s() < 5
    assert measured.outcome.aborted == "server died"
    assert measured.failures()[Failure.CANCELLED] == 4
    assert measured.outcome.reports[0].ok
    assert measured.outcome.completed == len(measured.samples)


def test_threads_that_are_ended_early_do_not_wait_for_a_call_that_hangs(
    load: Callable, running_s: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    measured = load(
        "odd_drivers:Sleeping",
        workers="threads",
        hang_at=2,
        concurrency=2,
        duration_s=60.0,
        timeout_s=60.0,
        on_tick=lambda: "enough" if running_s() > 0.5 else None,
    )
    assert running_s() < 5
    assert measured.failures() == {Failure.NONE: 2, Failure.CANCELLED: 2}


def test_an_exception_in_the_parent_leaves_no_worker_behind(
    null_server: Callable, load: Callable, running_s: Callable[[], float]
) -> None:
    seen: list[psutil.Process] = []

    def fail() -> None:
        if running_s() > 0.2:
            seen.extend(load_workers())
            raise RuntimeError("lease lost")

    with pytest.raises(RuntimeError, match="lease lost"):
        load(port=null_server().port, shards=2, concurrency=2, duration_s=60.0, on_tick=fail)
    assert len(seen) == 2
    assert not any(worker.is_running() for worker in seen)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_parent(null_server: Callable, tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from seamark.load.coordinator.coordinator import LoadJob, run_load\n"
        f"settings = {{'duration_s': 60.0, 'concurrency': 2, 'shards': 2}}\n"
        f"job = LoadJob(driver='seamark.drivers.null:Null', workers='wire', settings=settings, seed=1,\n"
        f"              data=Path('.'), ports={{'main': {null_server().port}}})\n"
        f"run_load(job, None, Path({str(tmp_path)!r}) / 'parts')\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)])
    try:
        workers: list[psutil.Process] = []
        limit_s = time.monotonic() + 20
        while len(workers) < 2 and time.monotonic() < limit_s:
            workers = psutil.Process(parent.pid).children()
            time.sleep(0.05)
        assert len(workers) == 2
        parent.send_signal(number)
        parent.wait(10)
        _, alive = psutil.wait_procs(workers, timeout=5)
        assert not alive
    finally:
        parent.kill()
        parent.wait()


def test_a_worker_that_is_never_ready_stops_the_load(null_server: Callable, tmp_path: Path) -> None:
    with_listener_only = null_server("--delay-ms", 0)
    os.kill(with_listener_only.process.pid, signal.SIGSTOP)
    try:
        job = LoadJob(
            driver="seamark.drivers.null:Null",
            workers="wire",
            settings={"concurrency": 5000},
            seed=1,
            data=tmp_path,
            ports={"main": with_listener_only.port},
            ready_timeout_s=1.0,
        )
        with pytest.raises(LoadError, match="not ready"):
            run_load(job, None, tmp_path / "parts")
    finally:
        os.kill(with_listener_only.process.pid, signal.SIGCONT)
    assert not load_workers()


@pytest.mark.covers("E-CLI05")
def test_the_clients_own_cost_is_watched(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server().port, duration_s=1.3, concurrency=2)
    with measured.outcome.client_csv.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["source"] for row in rows} == {"client"}
    values = {
        name: [float(row["value"]) for row in rows if row["name"] == name] for name in ("cpu_ratio", "rss_bytes")
    }
    assert len(values["cpu_ratio"]) >= 2
    assert 0 < max(values["cpu_ratio"]) <= 1.1
    assert min(values["rss_bytes"]) > 10e6
    report = measured.outcome.reports[0]
    assert 0.1 < report.cpu_s < 2 * report.wall_s
    assert 10e6 < report.max_rss_bytes < 200e6


def test_a_disk_that_is_full_before_the_load_stops_it(null_server: Callable, load: Callable, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "worker-0.samples").symlink_to("/dev/full")
    with pytest.raises(LoadError, match="No space left"):
        load(port=null_server().port)


def test_a_disk_that_fills_in_mid_load_fails_its_worker_with_a_reason_and_keeps_whole_records(
    load: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    measured = load(
        "odd_drivers:Filling", workers="processes", concurrency=2, shards=2, requests=2000, duration_s=20.0
    )
    good, bad = measured.outcome.reports
    assert good.ok
    assert not bad.ok
    assert "File too large" in bad.reason
    assert bad.errno == errno.EFBIG
    good_segment, bad_segment = measured.outcome.segments
    assert segment_state(good_segment)[1]
    count, complete = segment_state(bad_segment)
    assert not complete
    written = measured.samples[measured.samples["worker"] == 1]
    assert len(written) == count <= 20_000 // 66
    assert (written["index"] % 2 == 1).all()
    assert set(written["status"].tolist()) <= {7}
