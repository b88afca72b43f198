"""What a Task may record: times in order, kinds that there are, finite figures; anything else fails the trial."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.load.driver import TaskFailure
from seamark.load.engine.task import VirtualClockRecorder, WallClockRecorder
from seamark.load.workers.events import EventFile
from seamark.load.workers.records import Segment, read_segments
from seamark.model.sample import EventKind

GOOD = {"sent_ns": 20, "last_ns": 40}


@pytest.fixture
def recorder(tmp_path: Path) -> VirtualClockRecorder:
    return VirtualClockRecorder(Segment(tmp_path / "w.samples"), tmp_path / "files", seed=7, worker=0, kinds=2)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sent_ns": -5}, "it must be 0 <= due <= sent <= first <= last, and is (-5, -5, 40) ns"),
        ({"last_ns": 19}, "it must be 0 <= due <= sent <= first <= last"),
        ({"due_ns": 21}, "it must be 0 <= due <= sent <= first <= last"),
        ({"first_ns": 41}, "it must be 0 <= due <= sent <= first <= last, and is (20, 20, 41, 40) ns"),
        ({"units": -7}, "-7 units of kind 0, where the driver has 2 kinds"),
        ({"kind": 2}, "1 units of kind 2, where the driver has 2 kinds"),
        ({"last_ns": 40.5}, "times in ns and units are whole numbers"),
        ({"units": 1 << 40}, "times in ns and units are whole numbers"),
    ],
)
def test_a_sample_that_cannot_be_is_a_failure_that_names_it(
    recorder: VirtualClockRecorder, wrong: dict[str, Any], why: str
) -> None:
    recorder.sample(0, **GOOD)
    with pytest.raises(TaskFailure) as failure:
        recorder.sample(12, **GOOD | wrong)
    assert failure.value.category == "wrong_record"
    assert str(failure.value).startswith("sample 12: ")
    assert why in str(failure.value)


def test_numbers_of_numpy_are_whole_numbers(recorder: VirtualClockRecorder, tmp_path: Path) -> None:
    recorder.sample(np.int64(3), due_ns=np.int64(1), sent_ns=np.int64(2), last_ns=np.int64(9), units=np.int32(4))
    assert recorder.now_ns() == 9
    assert read_segments([tmp_path / "w.samples"]).size == 0, "samples on a virtual clock are written in blocks"
    recorder.flush()
    [sample] = read_segments([tmp_path / "w.samples"])
    assert [sample[name] for name in ("index", "due_ns", "sent_ns", "last_ns", "units")] == [3, 1, 2, 9, 4]


def test_samples_of_the_machines_clock_are_on_the_disk_at_once(tmp_path: Path) -> None:
    recorder = WallClockRecorder(Segment(tmp_path / "w.samples"), tmp_path / "files", seed=7, worker=0, kinds=1)
    recorder.sample(0, **GOOD)
    assert read_segments([tmp_path / "w.samples"]).size == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_is_a_finite_number(recorder: VirtualClockRecorder, value: float) -> None:
    with pytest.raises(TaskFailure, match=f"the figure 'x' is {value}"):
        recorder.quality("x", value)


def test_the_folder_of_files_is_there_when_it_is_asked_for(recorder: VirtualClockRecorder, tmp_path: Path) -> None:
    assert not (tmp_path / "files").exists()
    (recorder.folder / "a.txt").write_text("kept")
    assert (tmp_path / "files" / "a.txt").exists()


@pytest.mark.parametrize(
    ("query", "stage", "begin_ns", "end_ns"), [(1, 2, 0, 5), (1, -1, 0, 5), (1, 0, 6, 5), (-1, 0, 0, 5)]
)
def test_an_event_that_cannot_be_is_noted_with_its_request(
    tmp_path: Path, query: int, stage: int, begin_ns: int, end_ns: int
) -> None:
    with EventFile(tmp_path / "w.events", worker=0) as events:
        events.stages, events.epoch_ns = 2, 0
        track = events.track()
        track.add(0, 1, EventKind.RUN, 0, 5)
        events.flush()
        assert events.fault is None
        track.add(query, stage, EventKind.RUN, begin_ns, end_ns)
        events.flush()
    assert events.fault is not None
    assert events.fault.category == "wrong_record"
    assert f"an event of request {query} in stage {stage}, from {begin_ns} to {end_ns} ns" in str(events.fault)
