"""Shards as the tasks of a step of a real Slurm with two nodes, where its programs can be had."""

import os
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest
from slurm import allocation, slurm, why_no_slurm

from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.handle import LoadError
from seamark.model.sample import Failure

pytestmark = pytest.mark.services
OPEN = {"pattern": "poisson", "rate_rps": 300.0, "concurrency": 8, "duration_s": 1.0}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=2) as told:
        yield told


@pytest.fixture
def job(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An allocation of both nodes, known to this process as to a job script."""
    for name in ("SLURM_CONF", "PATH", "LD_LIBRARY_PATH"):
        if name in cluster:
            monkeypatch.setenv(name, cluster[name])
    with allocation(cluster, nodes=2, tasks=4) as number:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        monkeypatch.setenv("SLURM_NTASKS", "1")
        yield number


def on_node(name: str) -> list[psutil.Process]:
    """Return the workers of our loads on that node."""
    found = []
    for each in psutil.process_iter():
        try:
            if (
                each.cmdline()[2:] == ["seamark.load.workers.worker"]
                and each.environ().get("SLURMD_NODENAME") == name
            ):
                found.append(each)
        except psutil.Error:
            continue
    return found


@pytest.mark.covers("E-FR25", "E-CLI01")
def test_shards_on_slurm_send_the_same_schedule_and_lie_on_all_nodes(
    null_server: Callable, load: Callable, job: str
) -> None:
    port = null_server().port
    single, four = load(port=port, **OPEN), load(port=port, **OPEN, shards=4, launcher=launcher_of("srun"))
    assert four.samples["due_ns"].tolist() == single.samples["due_ns"].tolist()
    assert set(four.failures()) == {Failure.NONE}
    assert [(report.ok, report.carrier) for report in four.outcome.reports] == [(True, "srun")] * 4
    assert sorted(report.host for report in four.outcome.reports) == ["n1", "n1", "n2", "n2"]


@pytest.mark.covers("E-FR25", "E-CLI05")
def test_a_lost_task_is_counted_and_slurm_ends_no_other(
    null_server: Callable, load: Callable, job: str, running_s: Callable[[], float]
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 1.6 and not killed:
            victim = on_node("n2")[0]
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)  # psutil may hold an older process of this number

    port = null_server("--delay-ms", 2).port
    carrier = launcher_of("srun")
    measured = load(port=port, **OPEN | {"duration_s": 4.0}, shards=4, launcher=carrier, on_tick=kill_one)
    lost = [report for report in measured.outcome.reports if not report.ok]
    assert [report.pid for report in lost] == killed
    for report in measured.outcome.reports:
        last_s = measured.samples["last_ns"][measured.samples["worker"] == report.worker].max() / 1e9
        assert (last_s < 3.3) == (report.pid in killed)


@pytest.mark.covers("E-FR25", "E-CLI05")
def test_a_lost_node_takes_its_shards_and_no_other(
    null_server: Callable, load: Callable, job: str, running_s: Callable[[], float]
) -> None:
    lost: list[int] = []

    def lose() -> None:
        if running_s() > 1.6 and not lost:
            tasks = on_node("n2")
            steps = {parent for task in tasks if (parent := task.parent()) is not None}
            assert {"slurmstepd" in step.cmdline()[0] for step in steps} == {True}
            for each in (*steps, *tasks):
                each.kill()
            lost.extend(task.pid for task in tasks)

    port = null_server("--delay-ms", 2).port
    carrier = launcher_of("srun")
    measured = load(port=port, **OPEN | {"duration_s": 4.0}, shards=4, launcher=carrier, on_tick=lose)
    assert len(lost) == measured.outcome.died == 2
    for report in measured.outcome.reports:
        assert report.ok == (report.host == "n1")
        last_s = measured.samples["last_ns"][measured.samples["worker"] == report.worker].max() / 1e9
        assert (last_s < 3.3) == (report.pid in lost)


def test_more_shards_than_the_allocation_has_room_for_are_said_so(
    null_server: Callable, load: Callable, job: str
) -> None:
    with pytest.raises(LoadError, match="More processors requested than permitted"):
        load(port=null_server().port, concurrency=8, shards=5, launcher=launcher_of("srun"))
