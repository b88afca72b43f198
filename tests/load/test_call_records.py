"""Replies of one thread: what was kept while calls went on is, record by record, what is read from the segment."""

from pathlib import Path

import numpy as np
import pytest

from seamark.load.driver import Reply
from seamark.load.engine.threads import FinishedRequests
from seamark.load.workers.records import Segment, read_segments
from seamark.model.sample import MISSING_NS, Failure

EPOCH_NS = 1_000_000
GOOD = Reply(units=3, bytes_sent=10, bytes_received=1 << 40, status=200)


def written(path: Path, seen: list[Reply], *, flush_after: int = 1 << 30) -> np.ndarray:
    """Keep replies of requests 7, 9, 11 ... and give what was written of them."""
    with Segment(path) as segment:
        replies = FinishedRequests(segment, worker=5, kinds=np.array([1, 0, 2], dtype=np.int8))
        for number, reply in enumerate(seen):
            due_ns = EPOCH_NS + 100 * number
            replies.claims.append((7 + 2 * number, due_ns, due_ns + 10))
            replies.ends_ns.append(due_ns + 50)
            replies.seen.append(reply)
            if (number + 1) % flush_after == 0:
                replies.flush(EPOCH_NS)
        assert replies.count == len(seen)
        replies.flush(EPOCH_NS)
        replies.flush(EPOCH_NS)
        assert replies.count == len(seen)
    return read_segments([path])


@pytest.mark.covers("E-FR09")
def test_each_record_has_the_times_and_the_kind_of_its_request(tmp_path: Path) -> None:
    records = written(tmp_path / "segment", [GOOD] * 4)
    assert records["index"].tolist() == [7, 9, 11, 13]
    assert records["due_ns"].tolist() == [0, 100, 200, 300]
    assert records["sent_ns"].tolist() == [10, 110, 210, 310]
    assert records["last_ns"].tolist() == [50, 150, 250, 350]
    assert set(records["first_ns"].tolist()) == {MISSING_NS}
    assert records["kind"].tolist() == [0, 1, 2, 0]
    assert set(records["worker"].tolist()) == {5}


@pytest.mark.parametrize("flush_after", [1, 2, 100])
def test_replies_that_differ_are_not_taken_for_each_other(tmp_path: Path, flush_after: int) -> None:
    other = Reply(units=0, bytes_sent=1, bytes_received=2, status=404, failure=Failure.CLIENT_ERROR)
    records = written(tmp_path / "segment", [GOOD, other, GOOD, GOOD, Reply()], flush_after=flush_after)
    assert records["units"].tolist() == [3, 0, 3, 3, 1]
    assert records["bytes_sent"].tolist() == [10, 1, 10, 10, 0]
    assert records["bytes_received"].tolist() == [1 << 40, 2, 1 << 40, 1 << 40, 0]
    assert records["status"].tolist() == [200, 404, 200, 200, 0]
    assert records["failure"].tolist() == [0, Failure.CLIENT_ERROR, 0, 0, 0]


def test_equal_replies_need_not_be_the_same_object(tmp_path: Path) -> None:
    records = written(tmp_path / "segment", [Reply(units=9) for _ in range(5)])
    assert records["units"].tolist() == [9] * 5
