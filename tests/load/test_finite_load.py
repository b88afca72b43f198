"""Finite loads: each item once, in a seeded order, by any number of workers and users; what is left is done later."""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from processes import load_worker

from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError, LoadJob, run_load
from seamark.load.driver import Body, declared
from seamark.load.workers.assignment import WorkerAssignment
from seamark.load.workers.records import read_segments
from seamark.load.workers.work_list import as_text, done_items, items_in, work_list
from seamark.model.sample import Failure

ITEMS = 500


class Listed:
    """A driver with a work list of `count` items, which makes `made` bodies."""

    def __init__(self, count: int | None, made: int | None = None, groups: list[int] | None = None) -> None:
        self.work_count, self._made = count, count if made is None else made
        self.work_groups = groups

    def bodies(self, count: int, seed: int) -> list[Body]:
        return [Body(content=number) for number in range(self._made or 0)]


def assigned(worker: int = 0, workers: int = 1, *, seed: int = 1, done: str = "") -> WorkerAssignment:
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=seed, data=Path(), done=done)
    return WorkerAssignment(job=job, worker=worker, workers=workers, segment=Path("w"))


def items_of(assignment: WorkerAssignment, count: int = ITEMS) -> list[int]:
    return list(work_list(assignment, Listed(count))[0].items)


def test_the_workers_share_one_seeded_order_of_all_items() -> None:
    alone = items_of(assigned())
    shares = [items_of(assigned(worker, 3)) for worker in range(3)]
    assert sorted(alone) == list(range(ITEMS))
    assert alone != sorted(alone)
    assert [alone[worker::3] for worker in range(3)] == shares
    assert items_of(assigned()) == alone
    assert items_of(assigned(seed=2)) != alone


def test_a_driver_of_neither_kind_has_no_ids_of_items_unless_it_names_them() -> None:
    assert declared(Listed(3)).item_ids is None
    named = Listed(3)
    named.item_ids = lambda: ["a", "b", "c"]  # type: ignore[attr-defined]
    ids = declared(named).item_ids
    assert ids is not None
    assert ids() == ["a", "b", "c"]


def test_items_that_are_done_are_left_out_and_the_others_keep_their_order() -> None:
    done = np.zeros(ITEMS, dtype=bool)
    done[[0, 7, 499]] = True
    assert (done_items(as_text(done), ITEMS) == done).all()
    assert not done_items("", 3).any()
    alone = items_of(assigned())
    assert items_of(assigned(done=as_text(done))) == [item for item in alone if not done[item]]


def test_a_worker_keeps_the_bodies_of_its_own_items_only() -> None:
    assignment, bodies = work_list(assigned(1, 4), Listed(ITEMS))
    kept = [number for number, body in enumerate(bodies) if body is not None]
    assert kept == sorted(assignment.items)
    assert [body.content for body in bodies if body is not None] == kept


def test_items_of_a_group_are_sent_in_a_row_by_one_worker_and_groups_in_a_seeded_order() -> None:
    groups = [item % 10 for item in range(ITEMS)]

    def sent(assignment: WorkerAssignment) -> list[int]:
        return list(work_list(assignment, Listed(ITEMS, groups=groups))[0].items)

    alone = sent(assigned())
    assert sorted(alone) == list(range(ITEMS))
    in_turn = [group for group, _ in groupby(groups[item] for item in alone)]
    assert sorted(in_turn) == list(range(10))
    assert in_turn != sorted(in_turn)
    assert [item for item in alone if groups[item] == 4] == list(range(4, ITEMS, 10))
    assert sent(assigned(seed=2)) != alone
    shares = [sent(assigned(worker, 3)) for worker in range(3)]
    assert sorted(item for share in shares for item in share) == list(range(ITEMS))
    owners = [{groups[item] for item in share} for share in shares]
    assert sum(map(len, owners)) == 10
    done = np.zeros(ITEMS, dtype=bool)
    done[alone[:75]] = True
    assert sent(assigned(done=as_text(done))) == alone[75:]


@pytest.mark.parametrize(
    ("driver", "error", "said"),
    [
        (Listed(None), UserError, "has no work list"),
        (Listed(0), UserError, "has an empty work list"),
        (Listed(5, 4), ValueError, "says that it has 5 items, and makes 4"),
        (Listed(3, groups=[0, 1]), ValueError, "says that it has 3 items, and names the groups of 2"),
    ],
)
def test_a_driver_without_a_usable_work_list_is_refused(driver: Listed, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        work_list(assigned(), driver)


@pytest.mark.services
@pytest.mark.parametrize("users", [1, 8])
@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize(("driver", "workers"), [("Null", "wire"), ("NullCall", "threads")])
def test_each_item_is_done_once(
    null_server: Callable, load: Callable, driver: str, workers: str, shards: int, users: int
) -> None:
    port = null_server().port
    settings = {"items": ITEMS, "limit_s": 30.0, "shards": shards, "concurrency": users}
    measured = load(f"seamark.drivers.null:{driver}", workers=workers, port=port, **settings)
    assert measured.samples["index"].tolist() == list(range(ITEMS))
    assert measured.failures() == {Failure.NONE: ITEMS}
    assert (measured.outcome.items, measured.outcome.sent, measured.outcome.completed) == (ITEMS, ITEMS, ITEMS)
    by_worker = np.bincount(measured.samples["worker"])
    assert by_worker.tolist() == [ITEMS // min(shards, users)] * min(shards, users)
    assert measured.samples["last_ns"].max() < 25e9, "it ends when its items are done"


@pytest.mark.services
def test_an_item_that_fails_is_recorded_and_not_sent_again(null_server: Callable, load: Callable) -> None:
    port = null_server("--error-every", 10).port
    measured = load(port=port, items=100, limit_s=30.0, concurrency=2)
    assert measured.samples["index"].tolist() == list(range(100))
    assert measured.failures() == {Failure.NONE: 90, Failure.SERVER_ERROR: 10}


@pytest.mark.services
def test_the_time_limit_ends_the_load(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--delay-ms", 20).port, items=ITEMS, limit_s=0.5)
    assert 0 < measured.outcome.completed < 50
    assert measured.samples["sent_ns"].max() < 0.55e9


@pytest.mark.services
def test_a_worker_that_dies_ends_the_load_and_the_next_one_does_the_rest(
    null_server: Callable, tmp_path: Path
) -> None:
    port = null_server("--delay-ms", 10).port
    settings = {"items": 1000, "limit_s": 60.0, "shards": 2, "concurrency": 2, "timeout_s": 5.0}
    job = LoadJob(
        driver="seamark.drivers.null:Null",
        workers="wire",
        settings=settings,
        seed=1,
        data=tmp_path,
        ports={"main": port},
    )
    segment = tmp_path / "parts" / "worker-1.samples"

    killed: list[int] = []

    def kill_one() -> None:
        if not killed and segment.exists() and segment.stat().st_size > 1000:
            victim = load_worker("1")
            killed.append(victim.pid)
            victim.kill()

    broken = run_load(job, None, tmp_path / "parts", kill_one)
    assert broken.died == 1
    done = items_in(broken.segments[0], 1000) | items_in(broken.segments[1], 1000)
    assert 15 < done.sum() < 1000, "the other worker ends then"
    rest = run_load(replace(job, done=as_text(done)), None, tmp_path / "rest")
    items = read_segments(rest.segments)["index"]
    assert sorted(items.tolist()) == np.flatnonzero(~done).tolist()


@pytest.mark.services
def test_a_load_of_a_driver_without_a_work_list_does_not_begin(null_server: Callable, load: Callable) -> None:
    with pytest.raises(LoadError, match="has no work list"):
        load(port=null_server().port, limit_s=5.0)


@pytest.mark.services
@pytest.mark.parametrize(("driver", "workers"), [("Null", "wire"), ("odd_drivers:Slow", "threads")])
def test_what_is_done_is_written_while_the_load_runs(
    null_server: Callable, load: Callable, tmp_path: Path, driver: str, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    segment, written = tmp_path / "parts" / "worker-0.samples", []

    def on_tick() -> None:
        if segment.exists():
            written.append(int(items_in(segment).sum()))

    name = driver if ":" in driver else f"seamark.drivers.null:{driver}"
    port = null_server("--delay-ms", 100).port
    measured = load(name, workers=workers, port=port, items=40, limit_s=30.0, on_tick=on_tick)
    assert measured.outcome.completed == 40
    assert 5 < np.median(written) < 35
