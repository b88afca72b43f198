"""Blocking drivers in threads: sessions, time-outs of calls that hang, broken sessions, schedule, the end."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from seamark.load.coordinator.coordinator import LoadError
from seamark.model.sample import MISSING_NS, Failure

pytestmark = pytest.mark.slow

MS = 1_000_000


@pytest.fixture(autouse=True)
def odd_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes import the drivers beside this file."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def test_each_thread_has_one_call_in_flight_and_fields_come_from_the_reply(load: Callable) -> None:
    measured = load("odd_drivers:Sleeping", workers="threads", sleep_s=0.01, concurrency=3, most_busy=3)
    samples = measured.samples
    assert measured.failures() == {Failure.NONE: len(samples)}
    assert 60 <= len(samples) <= 120
    assert (samples["units"] == 1 + samples["index"] % 2).all()
    assert (samples["kind"] == samples["index"] % 2).all()
    assert set(samples["status"].tolist()) == {7}
    assert set(samples["bytes_received"].tolist()) == {20}
    assert set(samples["first_ns"].tolist()) == {MISSING_NS}
    assert measured.outcome.kinds == ("even", "odd")
    assert measured.outcome.quality == {"recall_at_10": 0.5}


def test_all_users_are_really_busy_at_once(load: Callable) -> None:
    measured = load("odd_drivers:Sleeping", workers="threads", sleep_s=0.05, concurrency=3, most_busy=2)
    assert measured.failures()[Failure.WRONG_REPLY] > 0


@pytest.mark.covers("E-FR09")
def test_a_call_that_hangs_is_timed_out_and_another_thread_takes_its_place(load: Callable) -> None:
    began_s = time.monotonic()
    measured = load(
        "odd_drivers:Sleeping", workers="threads", sleep_s=0.005, hang_at=5, concurrency=2, timeout_s=0.15
    )
    failures = measured.failures()
    assert time.monotonic() - began_s < 5
    assert failures[Failure.TIMEOUT] >= 4
    assert failures[Failure.NONE] >= 16
    report = measured.outcome.reports[0]
    assert report.ok
    assert report.written_off == failures[Failure.TIMEOUT]
    assert report.sent == report.completed == len(measured.samples)
    assert len(set(measured.samples["index"].tolist())) == len(measured.samples)


def test_a_call_that_returns_too_late_is_timed_out_too(load: Callable) -> None:
    measured = load("odd_drivers:Sleeping", workers="threads", sleep_s=0.12, timeout_s=0.1)
    assert set(measured.failures()) == {Failure.TIMEOUT}


def test_a_call_that_was_written_off_closes_its_session_when_it_comes_back(load: Callable) -> None:
    measured = load("counted_driver:Counted", workers="threads", sleep_s=0.4, timeout_s=0.1, concurrency=2)
    assert measured.outcome.reports[0].written_off >= 4
    quality = measured.outcome.quality
    assert quality["opened"] == quality["closed"] >= 4


def test_a_broken_session_is_replaced_and_its_failure_named_by_the_driver(load: Callable) -> None:
    measured = load("odd_drivers:Raising", workers="threads", requests=30)
    assert measured.failures() == {Failure.NONE: 20, Failure.RESET: 10}
    assert (measured.samples["index"][measured.samples["failure"] == Failure.RESET] % 3 == 2).all()
    assert any("RuntimeError: reset" in line for line in measured.outcome.log_tail)


def test_a_load_does_not_wait_for_a_session_whose_end_hangs(load: Callable) -> None:
    began_s = time.monotonic()
    measured = load("odd_drivers:Clinging", workers="threads", duration_s=0.3, timeout_s=0.3, concurrency=2)
    assert time.monotonic() - began_s < 9, "the parent would kill it after 10 s"
    assert measured.outcome.reports[0].ok
    assert measured.failures() == {Failure.RESET: 2}


def test_a_session_that_cannot_be_had_fails_requests_and_pauses(load: Callable) -> None:
    measured = load("odd_drivers:Refusing", workers="threads", duration_s=0.5)
    failures = measured.failures()
    assert failures[Failure.NONE] == 1
    assert failures[Failure.RESET] == 1
    assert 2 <= failures[Failure.CONNECT] <= 20


def test_a_driver_that_cannot_be_made_says_why(load: Callable) -> None:
    with pytest.raises(LoadError, match="no such index: /nowhere"):
        load("odd_drivers:Unmade", workers="threads")


def test_a_driver_that_does_not_exist_says_which(load: Callable) -> None:
    with pytest.raises(LoadError, match="no_such_module"):
        load("no_such_module:Driver", workers="threads")


@pytest.mark.covers("E-CLI02")
def test_threads_share_one_open_schedule(load: Callable) -> None:
    measured = load(
        "odd_drivers:Sleeping", workers="threads", pattern="constant", rate_rps=100.0, concurrency=4, sleep_s=0.02
    )
    samples = measured.samples
    assert samples["due_ns"].tolist() == [k * 10 * MS for k in range(40)]
    assert (samples["sent_ns"] >= samples["due_ns"]).all()
    assert np.median(samples["sent_ns"] - samples["due_ns"]) < 5 * MS


def test_threads_that_cannot_keep_up_show_their_backlog(load: Callable) -> None:
    measured = load(
        "odd_drivers:Sleeping", workers="threads", pattern="constant", rate_rps=200.0, concurrency=2, sleep_s=0.05
    )
    outcome = measured.outcome
    assert outcome.scheduled == 80 == len(measured.samples)
    assert measured.samples["index"].tolist() == list(range(80))
    assert measured.samples["due_ns"].tolist() == [k * 5 * MS for k in range(80)]
    assert len(measured.sent) == outcome.sent
    assert set(measured.unsent["failure"].tolist()) == {Failure.CANCELLED}
    assert (measured.unsent["kind"] == measured.unsent["index"] % 2).all()
    assert outcome.reports[0].lag_ns.max == (measured.sent["sent_ns"] - measured.sent["due_ns"]).max()
    assert 30 <= outcome.sent <= 60, "for a second after the end too"
    assert 55 <= outcome.reports[0].backlog_max <= 75
    response = measured.sent["last_ns"] - measured.sent["due_ns"]
    assert response.max() > 300 * MS


@pytest.mark.covers("E-FR17")
def test_a_request_in_conflict_is_tried_again_as_often_as_asked_and_its_time_is_over_all_tries(
    load: Callable,
) -> None:
    settings = {"workers": "threads", "concurrency": 1, "requests": 20}
    measured = load("odd_drivers:Conflicting", max_tries=3, **settings)
    samples, odd = measured.samples, measured.samples["index"] % 2 == 1
    assert measured.failures() == {Failure.NONE: 20}
    assert samples["retries"].tolist() == [0, 2] * 10
    took_ns = samples["last_ns"] - samples["sent_ns"]
    assert took_ns[odd].min() >= 15 * MS
    assert measured.outcome.reports[0].errors is None
    once = load("odd_drivers:Conflicting", **settings)
    assert once.failures() == {Failure.NONE: 10, Failure.SERIALIZATION_FAILURE: 10}
    assert set(once.samples["retries"].tolist()) == {0}
    [(code, seen)] = once.outcome.reports[0].errors.items()
    assert (code, seen.category, seen.count, seen.words) == ("40001", "serialization_failure", 10, "try 1")


def test_processes_share_users_and_indices_among_them(load: Callable) -> None:
    measured = load("odd_drivers:Sleeping", workers="threads", sleep_s=0.01, concurrency=5, shards=3, most_busy=2)
    samples = measured.samples
    assert measured.failures() == {Failure.NONE: len(samples)}, "5 users in 3 processes: at most 2 in each"
    assert set(samples["worker"].tolist()) == {0, 1, 2}
    assert (samples["index"] % 3 == samples["worker"]).all()
    assert len(set(samples["index"].tolist())) == len(samples)


def test_requests_bound_all_processes_together(load: Callable) -> None:
    measured = load("odd_drivers:Sleeping", workers="processes", sleep_s=0.001, concurrency=4, shards=4, requests=10)
    assert measured.samples["index"].tolist() == list(range(10))
