"""Raw segments: what is written is read, a cut is seen, nothing but a block is kept in memory."""

from pathlib import Path

import numpy as np
import pytest

from seamark.load.engine.schedule_share import lag_summary, schedule_lag
from seamark.load.workers.records import BLOCK, RECORD, Recorder, Segment, read_segment, segment_state
from seamark.model.sample import MISSING_NS, SAMPLE, Failure
from seamark.stats.histogram import Accumulator


def write(path: Path, count: int) -> None:
    with Segment(path) as segment:
        recorder = Recorder(segment)
        for n in range(count):
            recorder.add(
                n,
                n * 10,
                n * 10 + 1,
                MISSING_NS,
                n * 10 + 3,
                n * 10 + 5,
                2,
                1,
                True,
                3,
                1 << 40,
                503,
                Failure.SERVER_ERROR,
                1,
                9,
            )
        recorder.flush()


def test_a_record_is_packed_exactly_as_the_sample_type_says(tmp_path: Path) -> None:
    assert RECORD.size == SAMPLE.itemsize
    write(tmp_path / "a", 3)
    records = np.concatenate(list(read_segment(tmp_path / "a")))
    counts = (2, 1, 1, 3, 1 << 40, 503, Failure.SERVER_ERROR, 1, 9)
    assert records[2].tolist() == (2, 20, 21, MISSING_NS, 23, 25, *counts, 0)


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 1])
def test_all_records_come_back_in_order(tmp_path: Path, count: int) -> None:
    write(tmp_path / "a", count)
    read = [n for block in read_segment(tmp_path / "a", block=100) for n in block["index"].tolist()]
    assert read == list(range(count))
    assert segment_state(tmp_path / "a") == (count, True)


@pytest.mark.parametrize("cut_bytes", [1, 16, 17, 16 + RECORD.size, 16 + RECORD.size * 2 - 1])
def test_a_truncated_tail_is_seen_and_the_whole_records_before_it_are_kept(tmp_path: Path, cut_bytes: int) -> None:
    write(tmp_path / "a", 10)
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data[:-cut_bytes])
    count, complete = segment_state(tmp_path / "a")
    assert not complete
    assert count == 10 - max(0, -(-(cut_bytes - 16) // RECORD.size))
    records = np.concatenate(list(read_segment(tmp_path / "a")))
    assert records["index"].tolist() == list(range(count))


def test_a_file_that_is_no_segment_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"PAR1" * 100)
    with pytest.raises(ValueError, match="not a segment"):
        list(read_segment(tmp_path / "a"))


def test_a_full_disk_is_an_error_and_not_silence(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"), Segment(tmp_path / "full"):
        pass


def test_lag_quantiles_are_within_a_percent_and_the_maximum_is_exact() -> None:
    lags_ns = np.random.default_rng(3).lognormal(10, 2, 100_000).astype(np.int64)
    lags = Accumulator()
    for part in np.array_split(lags_ns, 7):
        lags.add(part)
    summary = lag_summary(lags.histogram())
    assert summary is not None
    assert summary["max"] == lags_ns.max()
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        true_ns = np.quantile(lags_ns, share, method="inverted_cdf")
        assert summary[name] == pytest.approx(true_ns, rel=0.006, abs=1)


def test_lag_of_a_segment_is_sent_less_due_and_none_without_requests(tmp_path: Path) -> None:
    write(tmp_path / "a", 5)
    assert schedule_lag(tmp_path / "a") == {"p50": 1, "p99": 1, "max": 1}
    write(tmp_path / "b", 0)
    assert schedule_lag(tmp_path / "b") is None
