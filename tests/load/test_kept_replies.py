"""Kept replies: the bytes of each, as they came, under the index of its request; nothing where they are not kept."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from seamark.load.workers.records import REPLY_BLOCK, ReplySegment, read_replies
from seamark.load.workers.segments import PlacedSegment, gather_asked, gather_replies
from seamark.model.sample import MISSING_NS, Failure
from seamark.services.ephemeral_server import ephemeral_server


def replies_of(measured: SimpleNamespace) -> dict[int, bytes]:
    pairs = [pair for path in measured.outcome.files["replies"] for pair in read_replies(path)]
    assert len(dict(pairs)) == len(pairs), "a reply was kept twice"
    return dict(pairs)


@pytest.mark.services
@pytest.mark.parametrize("settings", [{}, {"turns": 4}, {"pattern": "constant", "rate_rps": 400.0}, {"shards": 2}])
def test_every_reply_from_the_wire_is_kept_as_it_came(null_server: Callable, load: Callable, settings: dict) -> None:
    port = null_server("--reply-bytes", 70_000).port
    measured = load(port=port, concurrency=3, requests=120, duration_s=20.0, keep_replies=True, **settings)
    kept = replies_of(measured)
    assert sorted(kept) == measured.samples["index"].tolist()
    sizes = dict(zip(measured.samples["index"].tolist(), measured.samples["bytes_received"].tolist(), strict=True))
    assert {index: len(reply) for index, reply in kept.items()} == sizes
    assert all(reply.startswith(b"HTTP/1.1 200") for reply in kept.values())
    assert {len(reply.partition(b"\r\n\r\n")[2]) for reply in kept.values()} == {70_000}


@pytest.mark.services
def test_the_reply_of_a_request_that_failed_is_kept_as_far_as_it_came(null_server: Callable, load: Callable) -> None:
    port = null_server("--error-every", 5, "--reset-every", 7).port
    measured = load(port=port, requests=70, duration_s=20.0, keep_replies=True)
    kept = replies_of(measured)
    ended = measured.samples["index"][measured.samples["failure"] != Failure.RESET].tolist()
    refused = measured.samples["index"][measured.samples["failure"] == Failure.SERVER_ERROR].tolist()
    assert set(ended) <= set(kept)
    assert len(refused) > 5
    assert all(kept[index].startswith(b"HTTP/1.1 503") for index in refused)


@pytest.mark.services
def test_the_parts_of_a_stream_are_kept_in_order(load: Callable) -> None:
    with ephemeral_server("seamark.testservers.reference", "--gap-ms", 5) as port:
        settings = {"gen_tokens": 6, "keep_replies": True, "requests": 8, "duration_s": 20.0, "concurrency": 2}
        measured = load("seamark.drivers.openai:OpenAi", port=port, **settings)
    kept = replies_of(measured)
    assert sorted(kept) == list(range(8))
    for reply in kept.values():
        assert reply.count("tøken".encode()) + reply.count(b"t\\u00f8ken") == 6
        assert reply.rstrip().endswith((b"[DONE]", b"0"))


@pytest.mark.services
def test_replies_are_not_kept_unless_asked_for(null_server: Callable, load: Callable, tmp_path: Path) -> None:
    assert load(port=null_server().port, requests=10).outcome.files["replies"] == ()
    assert list(tmp_path.rglob("*.replies")) == []


@pytest.mark.services
def test_a_call_says_its_first_unit_and_what_is_kept_of_it(load: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    settings = {"requests": 40, "duration_s": 20.0, "concurrency": 3}
    measured = load("odd_drivers:Telling", workers="threads", keep_replies=True, **settings)
    samples, kept = measured.samples, replies_of(measured)
    assert sorted(kept) == [index for index in range(40) if index % 2]
    assert kept[1] == b"answer 1 "
    assert len(kept[13]) == 450_000 > REPLY_BLOCK
    assert (samples["first_ns"] != MISSING_NS).all()
    until_first_ms = (samples["first_ns"] - samples["sent_ns"]) / 1e6
    assert ((until_first_ms >= 0) & (until_first_ms < (samples["last_ns"] - samples["sent_ns"]) / 1e6)).all()


@pytest.mark.services
def test_a_call_without_first_unit_has_none_and_what_it_offers_is_dropped_unless_asked_for(
    load: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    assert load("odd_drivers:Telling", workers="threads", requests=4, duration_s=9.0).outcome.files["replies"] == ()
    plain = load("odd_drivers:Sleeping", workers="threads", requests=4, duration_s=9.0).samples
    assert (plain["first_ns"] == MISSING_NS).all()


def write_replies(path: Path, replies: dict[int, bytes]) -> Path:
    with ReplySegment(path) as segment:
        for index, reply in replies.items():
            segment.add(index, (reply[:1], reply[1:]))
        segment.flush()
    return path


def test_whole_replies_before_a_cut_are_read(tmp_path: Path) -> None:
    path = write_replies(tmp_path / "w.replies", {7: b"seven", 1: b"", 2: b"two"})
    whole = path.read_bytes()
    for cut in range(8, len(whole) + 1):
        path.write_bytes(whole[:cut])
        found = list(read_replies(path))
        assert found == [(7, b"seven"), (1, b""), (2, b"two")][: len(found)]
    assert len(found) == 3
    path.write_bytes(b"SEAMARK1" + whole[8:])
    with pytest.raises(ValueError, match="not a segment of replies"):
        list(read_replies(path))


def test_replies_of_all_workers_and_sessions_come_into_one_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("seamark.load.workers.segments.REPLIES_BYTES", 10)
    one = write_replies(tmp_path / "a.replies", {0: b"zero" * 5, 4: b"\xff\x00"})
    two = write_replies(tmp_path / "b.replies", {2: b"two", 3: b"three", 9: b"nine"})
    only = np.array([False, False, True, True])
    target = tmp_path / "replies.parquet"
    assert gather_replies([one, PlacedSegment(path=two, offset_ns=0, only=only)], target) == 4
    table = pq.read_table(target)
    assert table["index"].to_pylist() == [0, 4, 2, 3]
    assert table["reply"].to_pylist() == [b"zero" * 5, b"\xff\x00", b"two", b"three"]


def test_what_was_asked_is_that_of_the_session_that_sent_it(tmp_path: Path) -> None:
    names = ("first", "torn", "last")
    first, torn, last = (tmp_path / f"{name}.asked" for name in names)
    first.write_text(json.dumps({"0": "old zero", "1": "old one", "2": "old two"}))
    torn.write_text('{"1": "torn')
    last.write_text(json.dumps({"1": "new one", "2": "new two"}))
    done = np.array([True, False])
    parts = [PlacedSegment(path=first, offset_ns=0, only=done), torn, PlacedSegment(path=last, offset_ns=5)]
    assert gather_asked(parts) == {"0": "old zero", "1": "new one", "2": "new two"}
    assert gather_asked([tmp_path / "none.asked"]) == {}
