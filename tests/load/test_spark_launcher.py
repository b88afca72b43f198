"""Shards as the tasks of a barrier stage of a real Spark, alone in a process and as a cluster of several."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from clusters import environment, loads_below, spark

from seamark.load.coordinator.command_launcher import launcher_of
from seamark.load.coordinator.handle import LoadError, WorkerLauncher
from seamark.model.sample import Failure

pytestmark = pytest.mark.services
OPEN = {"pattern": "poisson", "rate_rps": 300.0, "concurrency": 8, "duration_s": 1.0}


@pytest.fixture(autouse=True)
def _java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take none of this machine, and one that starts fast rather than runs fast."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def on(address: str) -> WorkerLauncher:
    return launcher_of("spark", address, environment("spark") / "bin" / "python")


@pytest.mark.sweep
@pytest.mark.covers("E-FR25", "E-CLI01")
def test_shards_on_spark_send_the_same_schedule_as_one_worker(null_server: Callable, load: Callable) -> None:
    port = null_server().port
    single, four = load(port=port, **OPEN), load(port=port, **OPEN, shards=4, launcher=on("local[4]"))
    assert four.samples["due_ns"].tolist() == single.samples["due_ns"].tolist()
    assert set(four.failures()) == {Failure.NONE}
    assert [(report.ok, report.carrier) for report in four.outcome.reports] == [(True, "spark")] * 4


@pytest.mark.sweep
def test_a_spark_with_too_few_cores_is_said_so(null_server: Callable, load: Callable) -> None:
    with pytest.raises(LoadError, match=r"3 shards were requested, but Spark at local\[2\] has fewer free cores"):
        load(port=null_server().port, concurrency=8, shards=3, launcher=on("local[2]"))


@pytest.mark.sweep
@pytest.mark.covers("E-FR25", "E-CLI05")
def test_a_lost_executor_takes_its_shard_and_no_other(
    null_server: Callable, load: Callable, running_s: Callable[[], float], tmp_path: Path
) -> None:
    lost: list[psutil.Process] = []
    with spark(tmp_path, [1, 1]) as (address, nodes):

        def lose_one() -> None:
            """End a node of the cluster and all that runs there, as a machine that goes."""
            if running_s() > 1.6 and not lost:
                node = psutil.Process(nodes[1].pid)
                lost.extend(loads_below(node))
                for each in (node, *node.children(recursive=True)):
                    each.kill()

        port = null_server("--delay-ms", 2).port
        measured = load(port=port, **OPEN | {"duration_s": 5.0}, shards=2, launcher=on(address), on_tick=lose_one)
    assert len(lost) == measured.outcome.died == 1, "one shard ran on that node"
    gone = next(report.worker for report in measured.outcome.reports if not report.ok)
    for k in range(2):
        last_s = measured.samples["last_ns"][measured.samples["worker"] == k].max() / 1e9
        assert (last_s < 4.0) == (k == gone)
