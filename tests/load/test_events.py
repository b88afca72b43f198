"""Events: which stage each request was in, from a driver's own threads into one file; nothing where none are kept."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from seamark.load.coordinator.coordinator import LoadError
from seamark.load.workers.events import EVENT_BYTES, EventFile
from seamark.load.workers.records import read_segment, read_segments, segment_state
from seamark.load.workers.segments import PlacedSegment, gather_events
from seamark.model.sample import EVENT, EventKind

STAGED = {"encode_ms": 4, "search_ms": 2, "keep_events": True, "concurrency": 3, "requests": 60, "duration_s": 20.0}


@pytest.fixture(autouse=True)
def drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def test_an_event_has_at_most_40_bytes() -> None:
    assert EVENT.itemsize == EVENT_BYTES <= 40


@pytest.mark.services
@pytest.mark.parametrize("more", [{}, {"shards": 2}, {"pattern": "constant", "rate_rps": 100.0}])
def test_each_stage_of_each_request_is_recorded_once_and_inside_of_it(load: Callable, more: dict) -> None:
    measured = load("staged_driver:Staged", workers="threads", **STAGED | more)
    samples, events = measured.samples, read_segments(measured.outcome.files["events"], EVENT)
    assert measured.outcome.stages == ("encode", "search")
    assert sorted(events["query"].tolist()) == sorted(4 * samples["index"].tolist())
    for sample in samples:
        own = np.sort(events[events["query"] == sample["index"]], order=["stage", "what"])
        assert own[["stage", "what"]].tolist() == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert sample["sent_ns"] <= own["begin_ns"].min() < own["end_ns"].max() <= sample["last_ns"]
        assert (own["begin_ns"][1:] >= own["end_ns"][:-1]).all(), "the stages follow one another"
        assert set(own["worker"]) == {sample["worker"]}
    runs = events[events["what"] == EventKind.RUN]
    spent_ms = (runs["end_ns"] - runs["begin_ns"]) / 1e6
    least_ms = [spent_ms[runs["stage"] == number].min() for number in range(2)]
    assert 2 <= least_ms[1] < 4 <= least_ms[0]


@pytest.mark.services
def test_events_are_not_kept_unless_asked_for(load: Callable, tmp_path: Path) -> None:
    measured = load("staged_driver:Staged", workers="threads", **STAGED | {"keep_events": False})
    assert measured.outcome.completed == 60
    assert (measured.outcome.files["events"], measured.outcome.stages) == ((), ())
    assert list(tmp_path.rglob("*.events")) == []


@pytest.mark.services
@pytest.mark.parametrize("driver", ["odd_drivers:Sleeping", "seamark.drivers.null:Null"])
def test_a_driver_without_stages_says_that_it_records_none(load: Callable, driver: str) -> None:
    with pytest.raises(LoadError, match=r"keep_events: the driver of this service records none\. Remove it\."):
        load(driver, workers="threads", keep_events=True, requests=2, duration_s=2.0, port=1)


def test_events_before_the_start_of_load_are_dropped_and_later_ones_count_from_it(tmp_path: Path) -> None:
    path = tmp_path / "w.events"
    with EventFile(path, worker=3) as events:
        track = events.track()
        for number in range(3000):
            track.add(number, 0, EventKind.PREPARE, 5, 6)
        events.started(lambda: 1_000)()
        track.add(1, 2, EventKind.RUN, 1_400, 1_500, visit=7)
        events.track().add(2, 1, EventKind.WAIT, 1_300, 1_400)
        events.flush()
    records = read_segments([path], EVENT)
    assert segment_state(path, EVENT) == (len(records), True)
    late = records[records["begin_ns"] >= 0]
    assert sorted(late.tolist()) == [(1, 400, 500, 0, 7, 2, 1, 3), (2, 300, 400, 1, 0, 1, 0, 3)]
    assert len(records) - len(late) < 1024


def test_whole_events_before_a_cut_are_read(tmp_path: Path) -> None:
    path = tmp_path / "w.events"
    with EventFile(path, worker=0) as events:
        events.started(lambda: 0)()
        track = events.track()
        for number in range(10):
            track.add(number, 0, EventKind.RUN, number, number + 1)
        events.flush()
    whole = path.read_bytes()
    path.write_bytes(whole[: 16 + 7 * EVENT_BYTES + 11])
    assert [record["query"] for part in read_segment(path, form=EVENT) for record in part] == list(range(7))


def test_events_of_all_workers_and_sessions_come_into_one_file_with_the_names_of_their_stages(tmp_path: Path) -> None:
    paths = []
    for worker in range(2):
        with EventFile(tmp_path / f"{worker}.events", worker=worker) as events:
            events.started(lambda: 100)()
            track = events.track()
            for query in range(4):
                track.add(query, 1, EventKind.STEP, 200, 300)
            events.flush()
        paths.append(tmp_path / f"{worker}.events")
    only = np.array([False, True, True])
    target = tmp_path / "events.parquet"
    placed = PlacedSegment(path=paths[1], offset_ns=1_000, only=only)
    assert gather_events([paths[0], placed], target, ("a", "b")) == 6
    table = pq.read_table(target)
    assert table["query"].to_pylist() == [0, 1, 2, 3, 1, 2]
    assert table["begin_ns"].to_pylist() == [100] * 4 + [1_100] * 2
    assert table["worker"].to_pylist() == [0] * 4 + [1] * 2
    about = table.schema.metadata[b"seamark"].decode()
    assert '"stages": ["a", "b"]' in about
    assert '"what": ["wait", "run", "blocked", "first_unit", "prepare", "step"]' in about
