"""From a load on a real server to its figures: what was due and never sent is in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import load_worker

from seamark.analysis.metrics.document import DerivedMetrics as Figures
from seamark.analysis.metrics.document import derive_metrics
from seamark.load.engine.schedule_share import record_rest
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.records import Segment, read_segments
from seamark.load.workers.segments import gather_samples
from seamark.model.results.load_record import LoadRecord
from seamark.model.scenario import Slo
from seamark.model.trial import Trial
from seamark.storage.paths import TrialFolder

SETTINGS: dict[str, Any] = {"pattern": "constant", "warmup_s": 0.0, "timeout_s": 5.0}


@pytest.fixture
def figures(tmp_path: Path) -> Callable[..., Figures]:
    """Derive the figures of a measured load."""

    def derive(measured: Any, settings: dict[str, Any], slos: tuple[Slo, ...] = ()) -> Figures:
        folder = TrialFolder(root=tmp_path / "trial")
        outcome = measured.outcome
        written = gather_samples(outcome.segments, folder.samples, {"config_hash": "cafe"})
        assert (written.rows, written.unsent) == (len(measured.sent), len(measured.unsent))
        trial = Trial(
            id="d-1--w-1--r1",
            trial_id="00000000-0000-5000-8000-000000000001",
            deployment="d-1",
            workload="w-1",
            component="null",
            service="null",
            settings=settings,
            changed={},
            repetition=1,
            block=1,
            position=1,
            seed=1,
            config_hash="cafe",
            group="null",
            slos=slos,
        )
        load = LoadRecord(
            status="ok",
            workers=outcome.reports,
            scheduled=outcome.scheduled,
            sent=outcome.sent,
            failures=dict(written.failures),
            unit=outcome.unit,
            kinds=outcome.kinds,
        )
        return derive_metrics(trial, load, folder, scenario="s")

    return derive


@pytest.mark.services
@pytest.mark.covers("E-FR09", "E-CLI02")
@pytest.mark.parametrize("limit", [None, 1500], ids=["by-time", "by-requests"])
def test_twice_what_a_server_can_serve_is_offered_whole_and_saturated(
    null_server: Callable, load: Callable, figures: Callable[..., Figures], limit: int | None
) -> None:
    settings = SETTINGS | {"rate_rps": 1000.0, "concurrency": 10, "duration_s": 1.5, "requests": limit}
    measured = load(port=null_server("--delay-ms", 20).port, **settings)
    derived = figures(measured, settings, (Slo(metric="latency_s", op="<=", limit=60.0),))
    metrics = derived.metrics
    assert metrics.status == "ok"
    assert metrics.offered_rps == pytest.approx(1000, rel=0.01)
    assert metrics.achieved_rps < 520
    assert metrics.saturated is True
    assert "saturated" in {reason.code for reason in metrics.reasons}
    counts = metrics.counts
    assert counts.requests == 1500
    assert counts.unfinished == len(measured.unsent) > 200
    assert counts.ok == measured.outcome.sent == len(measured.sent)
    assert (counts.failed, counts.lost, metrics.errors.rate) == (0, 0, 0)
    assert metrics.goodput.ratio == pytest.approx(counts.ok / 1500), "what was never sent met nothing"
    response_ns = measured.sent["last_ns"] - measured.sent["due_ns"]
    assert metrics.latency_ms.max == pytest.approx(response_ns.max() / 1e6)
    lag_ns = measured.sent["sent_ns"] - measured.sent["due_ns"]
    assert metrics.schedule_lag_ms.max == pytest.approx(lag_ns.max() / 1e6)
    assert sum(second.failures for second in derived.series) == 0, "failures are of requests that were sent"


@pytest.mark.services
@pytest.mark.covers("E-FR25", "E-CLI05")
def test_the_rest_of_a_killed_shards_schedule_is_lost_and_counted(
    null_server: Callable, load: Callable, running_s: Callable[[], float], figures: Callable[..., Figures]
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 0.5 and not killed:
            victim = load_worker("1")
            killed.append(victim.pid)
            victim.kill()

    settings = SETTINGS | {"rate_rps": 200.0, "concurrency": 4, "duration_s": 2.0, "shards": 2}
    measured = load(port=null_server().port, on_tick=kill_one, **settings)
    assert [report.ok for report in measured.outcome.reports] == [True, False]
    assert [report.scheduled for report in measured.outcome.reports] == [200, 200]
    metrics = figures(measured, settings).metrics
    written = int((measured.samples["worker"] == 1).sum())
    assert metrics.counts.lost == 200 - written >= 100
    assert metrics.errors.rate > 0.2


@pytest.mark.parametrize("pattern", ["constant", "poisson"])
def test_what_is_unsent_is_the_schedule_without_what_was_taken(tmp_path: Path, pattern: str) -> None:
    settings = {"pattern": pattern, "rate_rps": 1000.0, "duration_s": 5.0, "concurrency": 3, "shards": 3}
    job = LoadJob(driver="d:D", workers="wire", settings=settings, seed=1, data=tmp_path)
    share = WorkerAssignment(job=job, worker=1, workers=3, segment=tmp_path)

    def rest(taken: int, until_s: float) -> tuple[list[int], list[int]]:
        with Segment(tmp_path / "rest") as segment:
            record_rest(segment, share, [0], taken=taken, until_ns=int(until_s * 1e9))
        records = read_segments([tmp_path / "rest"])
        return records["index"].tolist(), records["due_ns"].tolist()

    indexes, due_ns = rest(0, 9.0)
    assert indexes == [1 + 3 * number for number in range(len(due_ns))]
    assert len(due_ns) > 1500
    for taken in (1, 340, 341, 342, 1000, len(due_ns)):
        assert rest(taken, 9.0) == (indexes[taken:], due_ns[taken:])
    half = sum(at_ns <= 2.5e9 for at_ns in due_ns)
    assert rest(100, 2.5) == (indexes[100:half], due_ns[100:half])
    assert rest(half, 2.5) == rest(half + 50, 2.5) == ([], [])
