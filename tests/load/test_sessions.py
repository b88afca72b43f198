"""Sessions of several turns: order, pauses, when later turns are due, failures, limits, shards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import load_worker

from seamark.load.coordinator.coordinator import LoadError
from seamark.load.engine.schedule_share import due_requests_of_lost
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.records import Recorder, Segment
from seamark.model.sample import MISSING_NS, Failure
from seamark.services.ephemeral_server import ephemeral_server

MS = 1_000_000
OPENAI = {"driver": "seamark.drivers.openai:OpenAi", "prompt_len": 8, "gen_tokens": 4, "stream": False}


def turns_of(samples: Any, turns: int) -> dict[int, Any]:
    """Return the samples of each session, in the order of their turns."""
    sessions = samples["index"] // turns
    return {session: samples[sessions == session] for session in np.unique(sessions).tolist()}


@pytest.mark.services
@pytest.mark.covers("E-FR09")
def test_a_user_goes_through_session_after_session_and_thinks_after_each_reply(
    null_server: Callable, load: Callable
) -> None:
    measured = load(port=null_server("--delay-ms", 5).port, turns=3, think_time_s=0.03, concurrency=2, duration_s=0.6)
    samples = measured.samples
    sessions = turns_of(samples, 3)
    assert len(sessions) >= 4
    assert list(sessions) == list(range(len(sessions)))
    for session in list(sessions.values())[:-2]:
        assert (session["index"] % 3).tolist() == [0, 1, 2]
        pauses_ns = session["sent_ns"][1:] - session["last_ns"][:-1]
        assert (pauses_ns >= 29 * MS).all()
    assert (samples["due_ns"] == samples["sent_ns"]).all()
    events = np.sort(np.concatenate([samples["sent_ns"] * 2 + 1, samples["last_ns"] * 2]))
    assert np.cumsum(np.where(events % 2, 1, -1)).max() <= 2
    assert measured.outcome.reports[0].lag_ns is None


@pytest.mark.services
@pytest.mark.covers("E-FR09", "E-CLI02")
def test_arrivals_begin_sessions_and_later_turns_are_due_when_their_users_have_thought(
    null_server: Callable, load: Callable
) -> None:
    settings = {"pattern": "constant", "rate_rps": 20.0, "turns": 3, "think_time_s": 0.05, "concurrency": 32}
    measured = load(port=null_server("--delay-ms", 10).port, duration_s=1.0, **settings)
    samples = measured.samples
    assert measured.failures() == {Failure.NONE: len(samples)}
    first = samples[samples["index"] % 3 == 0]
    assert first["index"].tolist() == [3 * session for session in range(20)]
    assert first["due_ns"].tolist() == [50 * MS * session for session in range(20)]
    late_ns = []
    for session in turns_of(samples, 3).values():
        assert (session["index"] % 3).tolist() == list(range(len(session)))
        late_ns += (session["due_ns"][1:] - session["last_ns"][:-1] - 50 * MS).tolist()
    assert min(late_ns) >= 0
    assert np.median(late_ns) < 1 * MS
    assert (samples["sent_ns"] >= samples["due_ns"]).all()
    assert samples["due_ns"].max() < 1000 * MS, "what would be due after the end of load is not due"
    assert 55 <= len(samples) <= 57
    assert measured.outcome.scheduled == measured.outcome.sent == len(samples)
    assert np.median(samples["sent_ns"] - samples["due_ns"]) < 2 * MS


@pytest.mark.services
def test_without_thinking_a_turn_is_due_as_soon_as_the_reply_is_in(null_server: Callable, load: Callable) -> None:
    settings = {"pattern": "constant", "rate_rps": 10.0, "turns": 4, "concurrency": 4, "duration_s": 0.5}
    samples = load(port=null_server("--delay-ms", 5).port, **settings).samples
    assert samples["index"].tolist() == list(range(20))
    for session in turns_of(samples, 4).values():
        assert (session["due_ns"][1:] >= session["last_ns"][:-1]).all()
        assert np.median(session["sent_ns"][1:] - session["last_ns"][:-1]) < 2 * MS


@pytest.mark.services
@pytest.mark.parametrize("pattern", ["closed", "constant"])
def test_a_failed_turn_ends_its_session_and_what_follows_it_is_not_due(load: Callable, pattern: str) -> None:
    with ephemeral_server("seamark.testservers.reference", "--error-every", 5) as port:
        settings = {**OPENAI, "port": port, "pattern": pattern, "rate_rps": 100.0, "concurrency": 3}
        measured = load(**settings, turns=4, requests=80, duration_s=5.0)
    samples = measured.samples
    failed = samples["index"][samples["failure"] == Failure.SERVER_ERROR]
    assert len(failed) >= 8
    for session in turns_of(samples, 4).values():
        assert (session["index"] % 4).tolist() == list(range(len(session)))
        assert (session["failure"][:-1] == 0).all()
        assert session["failure"][-1] != 0 or len(session) == 4
    assert set(turns_of(samples, 4)) == set(range(20))
    assert len(samples) == 80 - (3 - failed % 4).sum()
    assert measured.outcome.scheduled == measured.outcome.sent == len(samples)
    assert measured.outcome.reports[0].ran_out


@pytest.mark.services
@pytest.mark.covers("E-FR25")
@pytest.mark.parametrize("pattern", ["closed", "poisson"])
def test_one_worker_or_three_send_the_same_turns_of_the_same_sessions(load: Callable, pattern: str) -> None:
    settings = {**OPENAI, "pattern": pattern, "rate_rps": 60.0, "concurrency": 9, "turns": 3, "requests": 61}
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 3) as port:
        single = load(**settings, port=port, duration_s=8.0).samples
        sharded = load(**settings, port=port, duration_s=8.0, shards=3).samples
    assert single["index"].tolist() == sharded["index"].tolist() == list(range(61))
    assert single["bytes_sent"].tolist() == sharded["bytes_sent"].tolist()
    assert single["kind"].tolist() == sharded["kind"].tolist() == [index % 3 for index in range(61)]
    assert (sharded["worker"] == sharded["index"] // 3 % 3).all()
    grown = single["bytes_sent"][:60].reshape(20, 3)
    assert (np.diff(grown) > 0).all(), "each turn tells all that was said before"
    if pattern == "poisson":
        assert single["due_ns"][::3].tolist() == sharded["due_ns"][::3].tolist()


@pytest.mark.services
def test_a_turn_waits_for_a_connection_and_its_lateness_shows(null_server: Callable, load: Callable) -> None:
    settings = {"pattern": "constant", "rate_rps": 10.0, "turns": 2, "think_time_s": 0.02, "concurrency": 1}
    measured = load(port=null_server("--delay-ms", 100).port, duration_s=0.95, timeout_s=0.25, **settings)
    samples, report = np.sort(measured.sent, order="sent_ns"), measured.outcome.reports[0]
    assert (samples["sent_ns"][1:] >= samples["last_ns"][:-1]).all()
    assert (np.diff(samples["due_ns"]) >= 0).all(), "in the order of their due times"
    lag_ns = samples["sent_ns"] - samples["due_ns"]
    assert lag_ns.max() == report.lag_ns.max > 200 * MS
    assert report.backlog_max >= 3
    unsent = measured.unsent
    assert len(unsent) >= 2
    assert (unsent["index"] % 2 == 1).any(), "later turns that were due are not passed over in silence"
    assert (unsent["last_ns"] == MISSING_NS).all()
    assert len(samples) + len(unsent) == len(np.unique(measured.samples["index"])) == measured.outcome.scheduled
    assert sorted(measured.samples["index"][measured.samples["index"] % 2 == 0].tolist()) == list(range(0, 20, 2))


@pytest.mark.services
def test_a_connection_that_closes_after_each_reply_does_not_end_its_session(
    null_server: Callable, load: Callable
) -> None:
    settings = {"turns": 5, "requests": 25, "duration_s": 5.0, "concurrency": 2}
    for pattern in ("closed", "constant"):
        measured = load(port=null_server("--close-every", 1).port, pattern=pattern, rate_rps=50.0, **settings)
        assert measured.samples["index"].tolist() == list(range(25))
        assert measured.failures() == {Failure.NONE: 25}


@pytest.mark.services
def test_a_turn_that_times_out_ends_its_session(null_server: Callable, load: Callable) -> None:
    server = null_server("--silent-every", 4)
    measured = load(port=server.port, turns=3, requests=9, timeout_s=0.1, duration_s=3.0)
    assert measured.samples["index"].tolist() == [0, 1, 2, 3, 6, 7, 8]
    assert measured.samples["failure"].tolist() == [0, 0, 0, Failure.TIMEOUT, 0, 0, 0]


@pytest.mark.services
@pytest.mark.covers("E-VAL")
def test_a_driver_of_threads_has_no_turns(load: Callable) -> None:
    with pytest.raises(LoadError, match="turns: 2 turns need a driver that sends from an event loop"):
        load("seamark.drivers.null:NullCall", workers="threads", turns=2)


def a_lost_share(folder: Path, **settings: object) -> WorkerAssignment:
    """The first of two workers of sessions of 3 turns, with 0.1 s to think: its own begin at 0, 0.2, ... 1.8 s."""
    pattern = {"pattern": "constant", "rate_rps": 10.0, "turns": 3, "think_time_s": 0.1}
    settings = {**pattern, "warmup_s": 0.0, "duration_s": 2.0, **settings}
    job = LoadJob(driver="x:y", workers="wire", settings=settings, seed=1, data=folder)  # type: ignore[arg-type]
    return WorkerAssignment(job=job, worker=0, workers=2, segment=folder / "s")


def test_of_a_lost_worker_all_turns_are_due_that_there_was_time_for(tmp_path: Path) -> None:
    share = a_lost_share(tmp_path)
    assert due_requests_of_lost(share, 50 * MS) == 1
    assert due_requests_of_lost(share, 950 * MS) == 3 + 3 + 3 + 3 + 2, (
        "nothing recorded: as if all were answered at once"
    )
    assert due_requests_of_lost(share, 9000 * MS) == 9 * 3 + 2, "turn 3 of the last is due when the load ends"
    assert due_requests_of_lost(a_lost_share(tmp_path, requests=8), 9000 * MS) == 3 + 2, "the other has session 1"
    assert due_requests_of_lost(a_lost_share(tmp_path, turns=1), 9000 * MS) == 10
    assert due_requests_of_lost(a_lost_share(tmp_path, pattern="closed"), 9000 * MS) is None


def test_turns_that_a_lost_worker_recorded_say_how_its_sessions_went_on(tmp_path: Path) -> None:
    share = a_lost_share(tmp_path)
    with Segment(share.segment) as segment:
        recorder = Recorder(segment)
        for index, due_ms, failure in ((0, 0, 0), (1, 150, 0), (6, 200, 0), (2, 300, 0), (12, 400, 1), (7, 350, 0)):
            last_ns = (due_ms + 50) * MS
            recorder.add(
                index, due_ms * MS, due_ms * MS, MISSING_NS, MISSING_NS, last_ns, 1, 0, False, 0, 0, 0, failure, 0, 0
            )
        recorder.flush()
    whole, under_way, broken = 3, 3, 1
    assert due_requests_of_lost(share, 590 * MS) == whole + under_way + broken
    assert due_requests_of_lost(share, 490 * MS) == whole + (under_way - 1) + broken, "its third turn is due at 0.5 s"
    assert due_requests_of_lost(share, 960 * MS) == whole + under_way + broken + 3 + 2, (
        "those never begun: 0.15 s a turn"
    )


@pytest.mark.services
@pytest.mark.covers("E-FR25", "E-CLI05")
def test_a_killed_worker_was_to_send_as_many_turns_as_the_other_of_its_kind(
    null_server: Callable, load: Callable, running_s: Callable[[], float]
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        if running_s() > 1.2 and not killed:
            victim = load_worker("1")
            killed.append(victim.pid)
            victim.kill()

    settings = {"pattern": "constant", "rate_rps": 20.0, "turns": 5, "think_time_s": 0.02, "concurrency": 40}
    port = null_server("--delay-ms", 5).port
    outcome = load(port=port, shards=2, duration_s=2.0, on_tick=kill_one, **settings).outcome
    whole, lost = outcome.reports
    assert (whole.ok, lost.ok) == (True, False)
    assert 92 <= whole.scheduled <= 100, "20 sessions of 5 turns, of which the last do not end"
    assert abs(lost.scheduled - whole.scheduled) <= 4
