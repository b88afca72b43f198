"""Several loads on one clock: what ends one of them, loads that are kept busy, and nothing left behind."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from processes import load_workers

from seamark.load.coordinator.coordinator import LoadError, LoadJob, LoadOutcome, NamedLoad, run_load, run_loads
from seamark.load.coordinator.outcome import sent_until_s
from seamark.load.driver import Body
from seamark.load.engine.schedule_share import ran_out
from seamark.load.workers.assignment import WorkerAssignment
from seamark.load.workers.records import read_segments
from seamark.load.workers.trace_bodies import row_bodies
from seamark.load.workers.work_list import Passes, as_text, items_in, work_list
from seamark.model.results.load_record import WorkerReport
from seamark.model.sample import Failure
from seamark.patterns.patterns import Repeated, Steps, Trace
from seamark.storage.codec import encode, parse

HERE = Path(__file__).parent
NULL, SLEEPING, SLOW = "seamark.drivers.null:NullCall", "odd_drivers:Sleeping", "odd_drivers:Slow"


@pytest.fixture(autouse=True)
def _drivers_of_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture
def named(tmp_path: Path) -> Callable[..., NamedLoad]:
    """Make a load by its name, with settings as keywords."""

    def make(
        name: str,
        driver: str = NULL,
        *,
        workers: str = "threads",
        port: int = 1,
        on_tick: Callable[[], str | None] = lambda: None,
        keep_busy: bool = False,
        **settings: Any,
    ) -> NamedLoad:
        timed = {} if "limit_s" in settings else {"duration_s": 1.0, "warmup_s": 0.0}
        job = LoadJob(
            driver=driver,
            workers=workers,  # type: ignore[arg-type]
            settings={"timeout_s": 5.0, "concurrency": 1, **timed, **settings},
            seed=1,
            data=tmp_path,
            ports={"main": port},
            keep_busy=keep_busy,
        )
        return NamedLoad(name=name, job=job, parts=tmp_path / name, on_tick=on_tick)

    return make


def runs(load: NamedLoad) -> bool:
    """Whether the clock of the loads has started."""
    return (load.parts / "client.csv").exists()


def test_the_processes_of_a_load_are_shown_while_it_sends_and_once_at_least(named: Callable[..., NamedLoad]) -> None:
    seen: list[Any] = []
    load = replace(named("one", duration_s=0.3, concurrency=2, shards=2), on_sample=seen.append)
    outcome = run_loads([load])["one"]
    assert len(outcome.reports) == 2
    assert {*seen} == {tuple(report.pid for report in outcome.reports)}


def samples(outcome: LoadOutcome) -> Any:
    return np.sort(read_segments(outcome.segments), order="sent_ns")


@pytest.mark.services
def test_all_loads_have_one_epoch_and_each_its_own_files_and_counters(named: Callable, null_server: Callable) -> None:
    ticks: list[int] = []
    threads = named("threads", SLEEPING, sleep_s=0.01, concurrency=2, on_tick=lambda: ticks.append(0))
    settings = {"pattern": "constant", "rate_rps": 50.0, "shards": 2, "concurrency": 2}
    wire = named("wire", "seamark.drivers.null:Null", workers="wire", port=null_server().port, **settings)
    outcomes = run_loads([threads, wire])
    assert list(outcomes) == ["threads", "wire"]
    assert len({(each.epoch_ns, each.epoch_unix_ns) for each in outcomes.values()}) == 1
    assert [len(each.reports) for each in outcomes.values()] == [1, 2]
    assert [each.unit for each in outcomes.values()] == ["call", "reply"]
    assert outcomes["wire"].scheduled == 50
    assert outcomes["threads"].sent == len(samples(outcomes["threads"])) > 10
    for name, outcome in outcomes.items():
        assert outcome.client_csv.parent.name == name
        assert outcome.client_csv.read_text().count("cpu_ratio") >= 1
        assert (outcome.sent_until_s, outcome.aborted, outcome.died) == (1.0, None, 0)
    assert 3 < len(ticks) < 1000, "it waits for its workers, and does not spin"
    assert not load_workers()


@pytest.mark.services
def test_a_load_that_is_ended_leaves_the_others_complete(named: Callable) -> None:
    other = named("other", SLEEPING, sleep_s=0.01, duration_s=3.0)
    seen: list[float] = []

    def die() -> str | None:
        if runs(other):
            seen.append(time.monotonic())
        return "server died" if seen and time.monotonic() > seen[0] + 0.5 else None

    ended = named("ended", SLEEPING, sleep_s=0.01, duration_s=60.0, on_tick=die)
    outcomes = run_loads([ended, other])
    assert outcomes["ended"].aborted == "server died"
    assert 0.4 < outcomes["ended"].sent_until_s < 30
    assert samples(outcomes["ended"])["sent_ns"].max() / 1e9 < outcomes["ended"].sent_until_s + 20
    assert (outcomes["other"].aborted, outcomes["other"].sent_until_s) == (None, 3.0)
    assert samples(outcomes["other"])["last_ns"].max() > 2.5e9


@pytest.mark.services
def test_a_lost_worker_thins_its_own_load_only(named: Callable) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if runs(whole) and not killed and (broken.parts / "worker-1.samples").exists():
            marks = {child.pid: child for child in load_workers() if child.cmdline()[-1] == "1"}
            [(pid, victim)] = marks.items()
            killed.append(pid)
            victim.kill()

    whole = named("whole", SLEEPING, sleep_s=0.01, duration_s=2.0, on_tick=kill_one)
    broken = named("broken", SLEEPING, workers="processes", sleep_s=0.01, duration_s=2.0, shards=2, concurrency=2)
    outcomes = run_loads([broken, whole])
    assert [report.ok for report in outcomes["broken"].reports] == [True, False]
    assert outcomes["broken"].sent_until_s < 2.0
    assert (outcomes["whole"].died, outcomes["whole"].sent_until_s) == (0, 2.0)


@pytest.mark.services
def test_a_load_that_runs_out_has_sent_until_then_and_the_other_for_its_length(named: Callable) -> None:
    short = named("short", SLEEPING, sleep_s=0.005, requests=20, duration_s=3.0)
    items = named("items", SLOW, items=4, limit_s=60.0, concurrency=2)
    limited = named("limited", pattern="constant", rate_rps=50.0, requests=10, duration_s=3.0)
    whole = named("whole", SLEEPING, sleep_s=0.01, duration_s=3.0)
    outcomes = run_loads([short, items, limited, whole])
    for name in ("short", "items"):
        outcome, sent = outcomes[name], samples(outcomes[name])
        assert sent["sent_ns"].max() <= outcome.sent_until_s * 1e9 <= sent["last_ns"].max() + 1e9
        assert outcome.reports[0].ran_out_s == outcome.sent_until_s
    assert outcomes["items"].items == 4
    assert outcomes["short"].sent_until_s < 3.0
    limited_ns = samples(outcomes["limited"])["sent_ns"].max()
    assert outcomes["limited"].sent_until_s == pytest.approx(limited_ns / 1e9, abs=1e-6)
    assert outcomes["whole"].sent_until_s == 3.0


@pytest.mark.services
@pytest.mark.parametrize(("workers", "shards"), [("threads", 1), ("processes", 2), ("wire", 2)])
def test_a_work_list_that_is_kept_busy_begins_anew_until_the_others_have_ended(
    named: Callable, null_server: Callable, workers: str, shards: int
) -> None:
    driver = "seamark.drivers.null:Null" if workers == "wire" else SLOW
    settings = {"items": 6, "limit_s": 60.0, "shards": shards, "concurrency": shards, "keep_busy": True}
    port = null_server("--delay-ms", 100).port
    busy = named("busy", driver, workers=workers, port=port, **settings)
    timed = named("timed", SLEEPING, sleep_s=0.01, duration_s=3.0)
    outcomes = run_loads([busy, timed])
    outcome, sent = outcomes["busy"], samples(outcomes["busy"])
    assert sent["failure"].tolist() == [Failure.NONE] * len(sent), "what is in flight at the end is not cancelled"
    assert len(sent) == outcome.sent > 6
    assert len(set(sent["index"].tolist())) == len(sent)
    assert items_in(outcome.segments[0], 6).size == 6
    assert sorted(index for index in sent["index"].tolist() if index < 6) == list(range(6))
    for worker in {report.worker for report in outcome.reports}:
        own = sent["index"][sent["worker"] == worker]
        order = own[own < 6].tolist()
        assert own.tolist() == [order[k % len(order)] + k // len(order) * 6 for k in range(len(own))], (
            "the same order in every pass"
        )
    assert 2.9 < outcome.sent_until_s < 30
    assert sent["last_ns"].max() > 2.5e9


@pytest.mark.services
def test_work_lists_that_are_all_kept_busy_end_when_each_is_done_once(named: Callable) -> None:
    short = named("short", SLOW, items=2, limit_s=60.0, keep_busy=True)
    long = named("long", SLOW, items=12, limit_s=60.0, keep_busy=True)
    outcomes = run_loads([short, long])
    assert outcomes["short"].sent > 2
    assert sorted(samples(outcomes["long"])["index"].tolist()) == list(range(12)), "the last one begins no more"


@pytest.mark.services
def test_a_load_alone_that_is_kept_busy_does_its_work_once(named: Callable) -> None:
    alone = named("alone", SLOW, items=5, limit_s=60.0, keep_busy=True)
    outcome = run_load(alone.job, None, alone.parts)
    assert sorted(samples(outcome)["index"].tolist()) == list(range(5))


@pytest.mark.services
def test_a_timed_load_that_is_kept_busy_lasts_its_length(named: Callable, tmp_path: Path) -> None:
    trace = tmp_path / "rows.jsonl"
    trace.write_text("".join(json.dumps({"at_s": at_s}) + "\n" for at_s in (0.0, 0.1, 0.2)))
    replayed = named("replayed", pattern="trace", trace=str(trace), keep_busy=True)
    limited = named("limited", SLEEPING, sleep_s=0.01, requests=3, keep_busy=True)
    outcomes = run_loads([replayed, limited])
    due_ns = samples(outcomes["replayed"])["due_ns"]
    assert np.sort(due_ns) == pytest.approx(np.arange(10) * 1e8, abs=10)
    assert outcomes["limited"].sent > 3
    assert [outcome.sent_until_s for outcome in outcomes.values()] == [1.0, 1.0]
    assert not any(report.ran_out for outcome in outcomes.values() for report in outcome.reports)


@pytest.mark.services
@pytest.mark.parametrize("bad_first", [True, False])
def test_a_load_that_cannot_begin_is_named_and_ends_all(named: Callable, bad_first: bool) -> None:
    loads = [named("bad", "odd_drivers:Unmade"), named("good", concurrency=2)]
    with pytest.raises(LoadError, match=r"^bad: worker 0: ValueError: no such index: /nowhere") as raised:
        run_loads(loads if bad_first else loads[::-1])
    assert raised.value.load == "bad"
    assert not load_workers()
    with pytest.raises(LoadError, match=r"^worker 0: ValueError"):
        run_load(loads[0].job, None, loads[0].parts)


@pytest.mark.services
def test_a_tick_that_ends_a_load_before_the_clock_ends_all(named: Callable) -> None:
    with pytest.raises(LoadError, match=r"^second: lease lost"):
        run_loads([named("first"), named("second", on_tick=lambda: "lease lost")])
    assert not load_workers()


@pytest.mark.services
@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_an_exception_in_mid_load_leaves_no_worker_of_any_load(named: Callable, error: type[BaseException]) -> None:
    first = named("first", SLEEPING, sleep_s=0.01, duration_s=60.0)
    seen: list[psutil.Process] = []

    def fail() -> None:
        if runs(first) and runs(second):
            seen.extend(load_workers())
            raise error("enough")

    second = named("second", SLEEPING, sleep_s=0.01, duration_s=60.0, on_tick=fail)
    with pytest.raises(error, match="enough"):
        run_loads([first, second])
    assert len(seen) == 2
    assert not any(worker.is_running() for worker in seen)


def test_two_loads_of_one_name_or_folder_are_refused(named: Callable) -> None:
    load = named("twice")
    with pytest.raises(ValueError, match="the name twice"):
        run_loads([load, load])
    with pytest.raises(ValueError, match="the folder"):
        run_loads([load, replace(load, name="other")])
    assert run_loads([]) == {}


def test_a_program_cannot_be_kept_busy() -> None:
    with pytest.raises(ValueError, match="a program runs once"):
        LoadJob(driver="x:Y", workers="threads", settings={}, seed=1, data=Path(), kind="program", keep_busy=True)


def test_a_request_limit_is_lifted_and_the_number_of_workers_stays() -> None:
    settings = {"requests": 2, "concurrency": 8, "shards": 4}
    job = LoadJob(driver="x:Y", workers="wire", settings=settings, seed=1, data=Path())
    busy = replace(job, keep_busy=True)
    assert (job.load.requests, busy.load.requests) == (2, None)
    assert job.processes == busy.processes == 2
    assignment = WorkerAssignment(job=busy, worker=1, workers=2, segment=Path("w"))
    assert WorkerAssignment.from_json(json.loads(json.dumps(assignment.to_json()))) == assignment


class Listed:
    """A driver with a work list of `work_count` items."""

    work_groups = None

    def __init__(self, work_count: int) -> None:
        self.work_count = work_count

    def bodies(self, count: int, seed: int) -> list[Body]:
        return [Body(content=number) for number in range(count)]


def test_further_passes_are_over_all_items_and_the_first_over_those_that_are_left() -> None:
    done = np.zeros(10, dtype=bool)
    done[[2, 3, 7]] = True
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=1, data=Path(), done=as_text(done))
    firsts: list[int] = []
    again: list[int] = []
    for worker in range(3):
        share = WorkerAssignment(job=replace(job, keep_busy=True), worker=worker, workers=3, segment=Path("w"))
        begun: list[int] = []
        assignment, bodies = work_list(share, Listed(10), lambda begun=begun: begun.append(1))
        passes = assignment.indexes
        assert isinstance(passes, Passes)
        plain = work_list(replace(share, job=job), Listed(10))[0].items
        assert plain is not None
        count = len(plain)
        first = list(islice(passes, count))
        assert (first, begun) == (list(plain), [])
        own = sorted(number for number, body in enumerate(bodies) if body is not None)
        length = [4, 3, 3][worker]
        second = passes[count : count + length]
        third = [passes[count + length + number] for number in range(length)]
        assert [index - 10 for index in second] == [index - 20 for index in third]
        assert own == sorted({index % 10 for index in (*first, *second)})
        assert len(begun) == 1
        passes.end()
        assert len(passes) == count
        assert list(passes) == first
        firsts += first
        again += [index - 10 for index in second]
    assert sorted(firsts) == [0, 1, 4, 5, 6, 8, 9]
    assert sorted(again) == list(range(10))


def test_a_worker_without_an_item_has_none_in_any_pass() -> None:
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=1, data=Path(), keep_busy=True)
    share = WorkerAssignment(job=job, worker=1, workers=2, segment=Path("w"))
    assert list(work_list(share, Listed(1))[0].indexes) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([1.0, 1.5, 2.0], [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]),
        ([0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0]),
        ([0.5], [0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_a_pattern_that_ends_is_repeated_after_its_mean_gap(
    tmp_path: Path, rows: list[float], expected: list[float]
) -> None:
    trace = tmp_path / "rows.jsonl"
    trace.write_text("".join(json.dumps({"at_s": at_s}) + "\n" for at_s in rows))
    arrivals = Repeated(pattern=Trace(path=str(trace))).arrivals(np.random.default_rng(1))
    assert list(islice(arrivals, len(expected))) == pytest.approx(expected)
    trace.write_text("\n")
    assert list(Repeated(pattern=Trace(path=str(trace))).arrivals(np.random.default_rng(1))) == []


def test_steps_that_end_with_rate_0_begin_anew_while_a_party_is_kept_busy():
    ended = Repeated(pattern=Steps(rates_rps=(10.0, 0.0), lengths_s=(1.0, 1.0)))
    at_s = np.fromiter(islice(ended.arrivals(np.random.default_rng(1)), 45), float)
    assert np.isfinite(at_s).all()
    assert np.diff(at_s) == pytest.approx(0.1)


def test_every_worker_of_a_replayed_trace_has_the_requests_of_all_rows(tmp_path: Path) -> None:
    trace = tmp_path / "rows.jsonl"
    trace.write_text("".join(json.dumps({"at_s": k / 10, "prompt_tokens": k + 1}) + "\n" for k in range(3)))

    class Rows(Listed):
        def row_body(self, number: int, row: Any, seed: int) -> Body:
            return Body(content=row.prompt_tokens)

    settings = {"pattern": "trace", "trace": str(trace), "duration_s": 1.0, "warmup_s": 0.0}
    job = LoadJob(driver="x:Y", workers="wire", settings=settings, seed=1, data=Path(), keep_busy=True)
    share = WorkerAssignment(job=job, worker=1, workers=2, segment=Path("w"))
    bodies = row_bodies(Rows(0), job.load, seed=1, worker=1, workers=2, repeated=True)
    assert bodies is not None
    assert [body.content for body in bodies if body is not None] == [1, 2, 3]
    assert not ran_out(share)
    assert ran_out(replace(share, job=replace(job, keep_busy=False)))


@pytest.mark.parametrize(
    ("pattern", "ran_out_s", "thinner_from_s", "expected"),
    [
        ("closed", [None, None], None, 5.0),
        ("closed", [3.0, None], None, 3.0),
        ("closed", [3.0, 2.0], None, 2.0),
        ("closed", [3.0, 2.0], 1.5, 1.5),
        ("closed", [None, None], 9.0, 5.0),
        ("closed", [None, None], -0.01, 0.0),
        ("poisson", [1.0, 3.0], None, 3.0),
        ("poisson", [1.0, None], None, 5.0),
        ("poisson", [1.0, None], 4.0, 4.0),
    ],
)
def test_a_load_has_sent_until_it_was_thinner(
    pattern: str, ran_out_s: list[float | None], thinner_from_s: float | None, expected: float
) -> None:
    settings = {"pattern": pattern, "rate_rps": 5.0, "duration_s": 4.0, "warmup_s": 1.0}
    load = LoadJob(driver="x:Y", workers="wire", settings=settings, seed=1, data=Path()).load
    reports = [WorkerReport(worker=k, ran_out_s=each_s) for k, each_s in enumerate(ran_out_s)]
    assert sent_until_s(load, reports, thinner_from_s) == expected


def test_reports_of_older_versions_do_not_say_when_a_worker_ran_out() -> None:
    old = json.loads(json.dumps(encode(WorkerReport(worker=0))))
    assert "ran_out_s" not in old
    assert parse(json.dumps(old), WorkerReport).ran_out_s is None
