"""A client that stands still says so, however few requests it has sent."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from seamark.load.engine.schedule_share import MOST_STALLS, STALL_NS, Stalls
from seamark.storage.paths import TrialFolder
from seamark.trials.quick_load import Address, run_quick_load

MS = 1_000_000


def test_only_the_longest_standstills_are_kept_and_in_their_order():
    stalls = Stalls()
    stalls.add(0, STALL_NS - 1)
    for number in range(2 * MOST_STALLS):
        stalls.add(number, number + STALL_NS + number % MOST_STALLS)
    assert len(stalls.longest()) == MOST_STALLS
    assert stalls.longest() == sorted(stalls.longest())
    assert min(until - start for start, until in stalls.longest()) == STALL_NS + MOST_STALLS // 2


class StoppedFor:
    """Stops the only worker of this process once, for half a second."""

    def __init__(self) -> None:
        self.was_stopped = False

    def __call__(self, count: int = 1) -> None:
        """Called all the while a load runs; `count` is how many requests it has recorded."""
        if self.was_stopped or not count:
            return
        self.was_stopped = True
        workers = [child for child in psutil.Process().children(recursive=True) if self.owns(child)]
        for worker in workers:
            worker.suspend()
        time.sleep(0.5)
        for worker in workers:
            worker.resume()

    def owns(self, process: psutil.Process) -> bool:
        try:
            return "seamark.load.workers" in " ".join(process.cmdline())
        except psutil.Error:
            return False


@pytest.mark.serial
@pytest.mark.covers("E-FR09")
@pytest.mark.services
def test_a_short_trial_whose_client_stood_still_for_half_a_second_is_suspect(
    null_server: Callable, tmp_path: Path
) -> None:
    port = null_server().port
    address = Address(
        driver="seamark.drivers.http:Http",
        settings={"url": f"http://127.0.0.1:{port}/", "method": "GET", "headers": "{}", "body": None},
        host="127.0.0.1",
        port=port,
        service="http",
    )
    settings = {"think_time_s": 0.02, "duration_s": 3.0, "warmup_s": 0.0}
    folder = TrialFolder(root=tmp_path / "trial")
    stopped = StoppedFor()
    metrics = run_quick_load(
        address, settings, folder, on_progress=lambda recorded: stopped(sum(recorded.values()))
    ).metrics
    assert metrics.counts.requests < 1000, "too few for the p99 that loop_lag is held against"
    reason = next(reason for reason in metrics.reasons if reason.code == "client_stalled")
    assert reason.severity == "suspect"
    assert float(reason.text.split(" for ")[1].split(" s ")[0]) >= 0.4
    assert metrics.verdict == "SUSPECT"


@pytest.mark.serial
@pytest.mark.services
def test_threads_that_stood_still_are_seen_too(
    load: Callable, running_s: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    stopped = StoppedFor()
    measured = load(
        "odd_drivers:Sleeping",
        workers="threads",
        sleep_s=0.01,
        duration_s=2.0,
        on_tick=lambda: stopped(running_s() > 0.5),
    )
    [report] = measured.outcome.reports
    assert max(until - start for start, until in report.stalls_ns) >= 400 * MS
