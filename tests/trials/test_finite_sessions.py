"""Sessions of a finite load: which of its files count, which items are done, and one time axis for all of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, samples_of

from seamark.load.coordinator.coordinator import EPOCH, LoadJob, LoadOutcome
from seamark.load.workers.assignment import SEGMENTS
from seamark.load.workers.records import CHUNK_RECORD, ChunkRecorder, Segment
from seamark.load.workers.work_list import done_items
from seamark.model.sample import Failure
from seamark.model.server_identity import ServerRecord
from seamark.model.trial import Trial
from seamark.services.ephemeral_server import ephemeral_server
from seamark.storage.paths import TrialFolder
from seamark.trials.measure import measure, not_done
from seamark.trials.sessions import RecordedSessions
from seamark.trials.trial_record import keep_samples

SERVER = ServerRecord.of(runtime="venv", site="local", machine="m", service="s", version="1", driver="x:Y")
EPOCH_NS = 1_700_000_000_000_000_000


def trial(**changes: object) -> Trial:
    return replace(a_trial({"items": 8, "limit_s": 60.0}), **changes)


def write_segment(
    path: Path,
    items: Sequence[int],
    *,
    cancelled: Sequence[int] = (),
    failed: Failure = Failure.CANCELLED,
    cut: bool = False,
) -> Path:
    """One item after another, each of a second; those in `cancelled` have `failed`."""
    rows = samples_of(np.arange(len(items)), None, np.arange(len(items)) + 1.0)
    rows["index"] = items
    rows["failure"] = np.where(np.isin(items, cancelled), failed, Failure.NONE)
    with Segment(path) as segment:
        segment.append(memoryview(rows.tobytes()), len(rows))
    if cut:
        path.write_bytes(path.read_bytes()[: -16 - 10])
    return path


def a_session(folder: TrialFolder, items: Sequence[int], number: int, **facts: object) -> Path:
    sessions = RecordedSessions.of(folder, trial(), SERVER)
    own = sessions.begin()
    assert own.name == str(number)
    (own / EPOCH).write_text(str(EPOCH_NS + number * 100_000_000_000))
    write_segment(own / "worker-0.samples", items, **facts)
    return own


def outcome(folder: Path, items: int = 8) -> LoadOutcome:
    return LoadOutcome(
        epoch_ns=0,
        epoch_unix_ns=int((folder / EPOCH).read_text()),
        unit="reply",
        kinds=("get",),
        reports=(),
        files={kind: tuple(sorted(folder.glob(f"worker-*.{kind}"))) for kind in SEGMENTS},
        client_csv=folder / "client.csv",
        sent_until_s=60.0,
        items=items,
    )


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(root=tmp_path / "trial")


def test_the_next_session_has_what_is_left_of_items_and_of_the_time_limit(folder: TrialFolder) -> None:
    a_session(folder, [3, 0, 5], 1, cancelled=[5])
    a_session(folder, [6], 2)
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=1, data=Path())
    rest = RecordedSessions.of(folder, trial(), SERVER).rest_of(job)
    assert np.flatnonzero(done_items(rest.done, 8)).tolist() == [0, 3, 6]
    assert rest.load.limit_s == pytest.approx(60 - 3 - 1)


def done_by(folder: TrialFolder, *, independent: bool) -> list[int]:
    return np.flatnonzero(RecordedSessions.of(folder, trial(), SERVER, independent=independent).done).tolist()


@pytest.mark.parametrize("failed", [Failure.RESET, Failure.CONNECT, Failure.PROTOCOL])
def test_items_that_lost_their_server_are_left_where_items_are_independent(
    folder: TrialFolder, failed: Failure
) -> None:
    own = a_session(folder, [3, 0, 5], 1, cancelled=[5], failed=failed)
    assert done_by(folder, independent=False) == [0, 3, 5], "a failed request is a result"
    assert done_by(folder, independent=True) == [0, 3]
    alike, apart = (RecordedSessions.of(folder, trial(), SERVER, independent=each) for each in (False, True))
    assert not alike.keep_for_next("server_died", own), "the server's data went with it"
    assert apart.keep_for_next("server_died", own)
    assert alike.keep_for_next("interrupted", own)
    assert not apart.keep_for_next("timeout", own)


def test_errors_of_a_server_count_unless_it_died(folder: TrialFolder) -> None:
    own = a_session(folder, [3, 0, 5], 1, cancelled=[5], failed=Failure.SERVER_ERROR)
    assert done_by(folder, independent=True) == [0, 3, 5]
    RecordedSessions.of(folder, trial(), SERVER, independent=True).keep_for_next("server_died", own)
    assert done_by(folder, independent=True) == [0, 3]


def test_whole_records_of_a_segment_that_was_cut_count(folder: TrialFolder) -> None:
    a_session(folder, [3, 0, 5], 1, cut=True)
    assert np.flatnonzero(RecordedSessions.of(folder, trial(), SERVER).done).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("other", "server"),
    [(trial(config_hash="beef"), SERVER), (trial(), SERVER.changed(version="2")), (a_trial(), SERVER)],
)
def test_items_of_another_configuration_or_server_are_never_taken(
    folder: TrialFolder, other: Trial, server: ServerRecord
) -> None:
    own = a_session(folder, [3, 0, 5], 1)
    assert RecordedSessions.of(folder, other, server).made == ()
    assert not own.exists()


def test_a_session_without_an_item_leaves_nothing(folder: TrialFolder) -> None:
    a_session(folder, [4], 1, cancelled=[4])
    RecordedSessions.of(folder, trial(), SERVER).begin()  # killed before the clock started
    (folder.sessions / "9").mkdir()  # killed before it was marked
    assert RecordedSessions.of(folder, trial(), SERVER).made == ()
    assert list(folder.sessions.glob("*")) == []


def test_samples_of_all_sessions_lie_on_one_time_axis_each_item_once(folder: TrialFolder) -> None:
    first = a_session(folder, [3, 0, 5], 1, cancelled=[5])
    for number, own in ((1, first), (2, None)):
        if own is None:
            sessions = RecordedSessions.of(folder, trial(), SERVER)
            own = sessions.begin()
            (own / EPOCH).write_text(str(EPOCH_NS + 200_000_000_000))
            write_segment(own / "worker-0.samples", [5, 1, 2, 4, 6, 7])
        with Segment(own / "worker-0.chunks", CHUNK_RECORD.size) as segment:
            chunks = ChunkRecorder(segment)
            chunks.add(5, 500_000_000, 1)
            chunks.add(3 if number == 1 else 7, 600_000_000, 2)
            chunks.flush()
        (own / "client.csv").write_text(f"row of {number}\n")
    ended = sessions.with_outcome(outcome(own), own)
    load = keep_samples(folder, outcome(own), a_load(config_hash="cafe"), ended)
    table = pq.read_table(folder.samples)
    assert table["index"].to_pylist() == [3, 0, 5, 1, 2, 4, 6, 7]
    assert [value / 1e9 for value in table["due_ns"].to_pylist()] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert table["first_ns"].null_count == 8
    chunks = pq.read_table(folder.chunks)
    assert chunks["index"].to_pylist() == [3, 5, 7]
    assert [value / 1e9 for value in chunks["at_ns"].to_pylist()] == [0.6, 3.5, 3.6]
    assert folder.client_telemetry.read_text() == "row of 1\nrow of 2\n"
    assert (load.rows, load.items, load.duration_s) == (8, 8, 9.0)
    assert [(each.offset_s, each.length_s, each.items) for each in load.sessions] == [(0.0, 3.0, 2), (3.0, 6.0, 6)]
    about = json.loads(table.schema.metadata[b"seamark"])
    assert about["epoch_unix_ns"] == load.epoch_unix_ns == EPOCH_NS + 100_000_000_000


def test_items_that_an_earlier_session_has_sent_again_are_left_out_with_their_second_times(
    folder: TrialFolder,
) -> None:
    a_session(folder, [3, 0, 5, 8 + 3, 8 + 0], 1)
    sessions = RecordedSessions.of(folder, trial(), SERVER)
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=1, data=Path(), keep_busy=True)
    assert np.flatnonzero(done_items(sessions.rest_of(job).done, 8)).tolist() == [0, 3, 5]
    own = sessions.begin()
    (own / EPOCH).write_text(str(EPOCH_NS + 200_000_000_000))
    write_segment(own / "worker-0.samples", [1, 2, 4, 6, 7, 8 + 3, 8 + 0])
    assert not_done(sessions.rest_of(job), outcome(own)) is None
    load = keep_samples(folder, outcome(own), a_load(), sessions.with_outcome(outcome(own), own))
    assert pq.read_table(folder.samples)["index"].to_pylist() == [3, 0, 5, 1, 2, 4, 6, 7, 8 + 3, 8 + 0]
    assert [each.items for each in load.sessions] == [3, 5]
    assert load.rows == 10


@pytest.mark.services
def test_a_load_that_was_killed_after_its_last_item_has_nothing_to_send_and_is_whole(
    folder: TrialFolder, tmp_path: Path
) -> None:
    a_session(folder, range(8), 1)
    sessions = RecordedSessions.of(folder, trial(), SERVER)
    parts = sessions.begin()
    with ephemeral_server("seamark.testservers.null") as port:
        job = LoadJob(
            driver="seamark.drivers.null:Null",
            workers="wire",
            settings={"items": 8, "limit_s": 60.0, "concurrency": 2, "shards": 2},
            seed=1,
            data=tmp_path,
            ports={"main": port},
        )
        measured = measure(sessions.rest_of(job), parts)
    assert measured.failure is None
    load = keep_samples(folder, measured.outcome, a_load(), sessions.with_outcome(measured.outcome, parts))
    assert (load.rows, load.items, load.sent, load.duration_s) == (8, 8, 8, 8.0)
    assert [each.items for each in load.sessions] == [8, 0]


def test_items_that_are_left_make_the_load_fail(folder: TrialFolder) -> None:
    job = LoadJob(driver="x:Y", workers="wire", settings={"limit_s": 60.0}, seed=1, data=Path())
    own = a_session(folder, [3, 0, 5], 1, cancelled=[5])
    failure = not_done(job, outcome(own, items=4))
    assert failure is not None
    assert (failure.category, failure.reason[:24]) == ("timeout", "2 of 4 items were not do")
    rest = replace(job, done=RecordedSessions.of(folder, trial(), SERVER).rest_of(job).done)
    other = a_session(folder, [1, 2], 2)
    assert not_done(rest, outcome(other, items=4)) is None
