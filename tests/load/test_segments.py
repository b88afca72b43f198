"""Segments become one Parquet file: columns, nulls, metadata, all or nothing."""

import json
import tracemalloc
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from seamark.load.workers.records import BLOCK, Recorder, Segment
from seamark.load.workers.segments import gather_samples, read_samples
from seamark.model.sample import MISSING_NS, SAMPLE, Failure

METADATA = {"config_hash": "abc", "trial": "a--b--r1", "unit": "reply", "kinds": ["get"], "schema_version": 1}


def write(path: Path, worker: int, count: int) -> Path:
    with Segment(path) as segment:
        recorder = Recorder(segment)
        for n in range(count):
            failure = Failure.TIMEOUT if n % 4 == 3 else Failure.NONE
            first_ns = MISSING_NS if failure else n + 2
            recorder.add(n, n, n + 1, first_ns, first_ns, n + 3, 1, 0, False, 2, 3, 200, failure, 0, worker)
        recorder.flush()
    return path


def test_samples_hold_every_column_with_its_type_and_missing_times_are_null(tmp_path: Path) -> None:
    segments = [write(tmp_path / "w0", 0, 8), write(tmp_path / "w1", 1, 4)]
    gathered = gather_samples(segments, tmp_path / "samples.parquet", METADATA)
    table = pq.read_table(tmp_path / "samples.parquet")
    assert table.schema.names == list(SAMPLE.names)
    assert [str(kind) for kind in table.schema.types] == [
        "int64", "int64", "int64", "int64", "int64", "int64", "int32", "int32", "int8",
        "int64", "int64", "int16", "int8", "int8", "int16", "int16",
    ]  # fmt: skip
    assert table["answer_ns"].to_pylist()[:4] == [2, 3, 4, None]
    assert table["first_ns"].to_pylist()[:4] == [2, 3, 4, None]
    assert table["worker"].to_pylist() == [0] * 8 + [1] * 4
    assert gathered.rows == 12
    assert gathered.failures == {"timeout": 3}
    assert gathered.last_ns == 10
    assert gathered.cut == ()


def test_metadata_is_json_under_the_key_seamark(tmp_path: Path) -> None:
    gather_samples([write(tmp_path / "w0", 0, 1)], tmp_path / "samples.parquet", METADATA)
    assert json.loads(pq.read_schema(tmp_path / "samples.parquet").metadata[b"seamark"]) == METADATA


def test_no_request_at_all_makes_an_empty_file_with_its_schema(tmp_path: Path) -> None:
    gathered = gather_samples([write(tmp_path / "w0", 0, 0)], tmp_path / "samples.parquet", METADATA)
    assert gathered.rows == 0
    assert list(read_samples(tmp_path / "samples.parquet")) == []


def test_a_cut_segment_gives_its_whole_records_and_is_named(tmp_path: Path) -> None:
    good, cut = write(tmp_path / "w0", 0, 5), write(tmp_path / "w1", 1, 5)
    cut.write_bytes(cut.read_bytes()[:-30])
    gathered = gather_samples([good, cut], tmp_path / "samples.parquet", METADATA)
    assert gathered.cut == ("w1",)
    assert gathered.rows == 9


def test_a_failure_while_writing_leaves_neither_a_part_nor_the_old_file_changed(tmp_path: Path) -> None:
    target = tmp_path / "out" / "samples.parquet"
    gather_samples([write(tmp_path / "w0", 0, 5)], target, METADATA)
    before = target.read_bytes()
    (tmp_path / "w1").write_bytes(b"rubbish that is no segment")
    with pytest.raises(ValueError, match="not a segment"):
        gather_samples([tmp_path / "w0", tmp_path / "w1"], target, METADATA)
    assert target.read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["samples.parquet"]


@pytest.mark.slow
def test_ten_times_the_records_take_no_more_memory_to_gather(tmp_path: Path) -> None:
    peaks = []
    for count in (BLOCK * 150, BLOCK * 1500):
        segment = tmp_path / f"w{count}"
        block = write(tmp_path / "one", 0, BLOCK).read_bytes()
        header, footer, records = block[:16], block[-16:], block[16:-16]
        with segment.open("wb") as file:
            file.write(header)
            for _ in range(count // BLOCK):
                file.write(records)
            file.write(footer[:8] + count.to_bytes(8, "little"))
        tracemalloc.start()
        assert gather_samples([segment], tmp_path / "samples.parquet", METADATA).rows == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
