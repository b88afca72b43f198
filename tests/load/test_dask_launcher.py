"""Shards as tasks of a real Dask cluster, whose environment has no package of ours."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from clusters import dask, environment, loads_below

from seamark.load.coordinator.cluster_tasks import spread
from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.handle import LoadError, WorkerLauncher
from seamark.model.sample import Failure

OPEN = {"pattern": "poisson", "rate_rps": 300.0, "concurrency": 8, "duration_s": 1.0}
Cluster = tuple[str, list["subprocess.Popen[bytes]"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with dask(tmp_path_factory.mktemp("dask"), [2, 2]) as found:
        yield found


def on(address: str) -> WorkerLauncher:
    return launcher_of("dask", address, environment("dask") / "bin" / "python")


def loads_of(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Return the workers of our load that a worker of Dask has started."""
    return loads_below(psutil.Process(process.pid))


@pytest.mark.covers("E-FR25", "E-CLI01")
@pytest.mark.services
def test_shards_on_dask_send_the_same_schedule_and_lie_on_all_its_workers(
    null_server: Callable, load: Callable, cluster: Cluster
) -> None:
    address, workers = cluster
    port = null_server().port
    seen: list[int] = []

    def look() -> None:
        seen[:] = max(seen, [len(loads_of(worker)) for worker in workers], key=sum)

    single, four = load(port=port, **OPEN), load(port=port, **OPEN, shards=4, launcher=on(address), on_tick=look)
    assert four.samples["due_ns"].tolist() == single.samples["due_ns"].tolist()
    assert set(four.failures()) == {Failure.NONE}
    assert [(report.ok, report.carrier) for report in four.outcome.reports] == [(True, "dask")] * 4
    assert seen == [2, 2]


@pytest.mark.covers("E-FR25", "E-CLI05")
@pytest.mark.services
def test_a_dask_worker_that_is_killed_takes_its_shards_and_no_other(
    null_server: Callable, load: Callable, tmp_path: Path, running_s: Callable[[], float]
) -> None:
    port = null_server("--delay-ms", 2).port
    with dask(tmp_path, [2, 2]) as (address, workers):

        def kill_one() -> None:
            if running_s() > 1.6 and workers[0].poll() is None:
                workers[0].kill()
                workers[0].wait()

        measured = load(port=port, **OPEN | {"duration_s": 4.0}, shards=4, launcher=on(address), on_tick=kill_one)
    lost = [report.worker for report in measured.outcome.reports if not report.ok]
    assert len(lost) == measured.outcome.died == 2
    for k in range(4):
        last_s = measured.samples["last_ns"][measured.samples["worker"] == k].max() / 1e9
        assert (last_s < 3.3) == (k in lost)
    for k in lost:
        assert "connection was closed" in measured.outcome.reports[k].reason
        assert measured.outcome.reports[k].scheduled > 200


@pytest.mark.covers("E-FR25", "E-CLI05")
@pytest.mark.services
def test_how_a_shard_ended_is_told_by_its_task(
    null_server: Callable, load: Callable, cluster: Cluster, running_s: Callable[[], float]
) -> None:
    address, workers = cluster
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 0.5 and not killed:
            victim = loads_of(workers[1])[0]
            killed.append(victim.pid)
            victim.kill()

    port = null_server("--delay-ms", 2).port
    measured = load(port=port, **OPEN | {"duration_s": 2.0}, shards=2, launcher=on(address), on_tick=kill_one)
    lost = next(report for report in measured.outcome.reports if not report.ok)
    assert lost.pid == killed[0]
    assert "was killed by SIGKILL" in lost.reason
    assert measured.outcome.died == 1


@pytest.mark.sweep
@pytest.mark.services
def test_a_cluster_that_cannot_carry_the_load_is_said_so(
    null_server: Callable, load: Callable, cluster: Cluster
) -> None:
    address, _ = cluster
    port = null_server().port
    with pytest.raises(LoadError, match=r"5 shards were requested, but the cluster at .* has 4 threads in 2 workers"):
        load(port=port, concurrency=8, shards=5, launcher=on(address))
    with pytest.raises(LoadError, match="no Dask scheduler answers at tcp"):
        load(port=port, concurrency=8, shards=2, launcher=on("tcp://127.0.0.1:9"))


def test_shards_go_to_all_hosts_then_to_all_workers_then_to_all_threads() -> None:
    threads = {"a1": ("a", 2), "a2": ("a", 1), "b1": ("b", 4)}
    assert spread(threads, 2) == ["a1", "b1"]
    assert spread(threads, 5) == ["a1", "b1", "a2", "b1", "a1"]
    assert sorted(spread(threads, 7) or []) == ["a1", "a1", "a2", "b1", "b1", "b1", "b1"]
    assert spread(threads, 8) is None
    assert spread({}, 1) is None
