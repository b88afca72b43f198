"""Ten thousand requests that are due and wait: time-outs, survivors, cancelling and memory are right all the same."""

from collections.abc import Callable

import numpy as np
import pytest

from seamark.model.sample import MISSING_NS, Failure

MS = 1_000_000
pytestmark = [pytest.mark.services, pytest.mark.covers("E-FR09")]

OVERLOAD = {"pattern": "constant", "rate_rps": 20_000.0, "duration_s": 0.6}
"""12,000 requests, of which two connections with a slow server send a few."""


def test_under_a_backlog_each_request_has_its_own_time_out(null_server: Callable, load: Callable) -> None:
    server = null_server("--delay-ms", 10, "--silent-every", 4)
    measured = load(port=server.port, concurrency=4, timeout_s=0.08, **OVERLOAD)
    sent, report = measured.sent, measured.outcome.reports[0]
    assert report.backlog_max > 10_000
    assert set(measured.failures()) == {Failure.NONE, Failure.TIMEOUT}
    took_ns = sent["last_ns"] - sent["sent_ns"]
    late = sent["failure"] == Failure.TIMEOUT
    assert (took_ns[late] >= 80 * MS).all()
    assert (took_ns[~late] < 80 * MS).all()
    assert late.sum() >= 4
    assert (took_ns[late] < 1000 * MS).all(), "the time a request waited for its connection is none of its time-out"
    assert (np.diff(sent["sent_ns"]) >= 0).all()
    assert sent["index"].tolist() == list(range(len(sent))), "what waits goes out in the order in which it was due"


def test_survivors_of_a_backlog_are_what_was_in_flight_and_the_rest_is_recorded_as_never_sent(
    null_server: Callable, load: Callable
) -> None:
    measured = load(port=null_server("--delay-ms", 350).port, concurrency=3, **OVERLOAD)
    report = measured.outcome.reports[0]
    assert report.survivors == 3
    in_flight = (measured.sent["sent_ns"] < 600 * MS) & (measured.sent["last_ns"] >= 600 * MS)
    assert in_flight.sum() == 3
    assert measured.failures() == {Failure.NONE: len(measured.sent)}
    assert len(measured.samples) == report.scheduled == 12_000
    assert measured.samples["index"].tolist() == list(range(12_000))
    assert (measured.unsent["failure"] == Failure.CANCELLED).all()
    assert (measured.unsent["last_ns"] == MISSING_NS).all()


def test_a_load_that_is_ended_under_a_backlog_records_what_was_due_by_then_and_nothing_else(
    null_server: Callable, load: Callable, running_s: Callable[[], float]
) -> None:
    measured = load(
        port=null_server("--silent-every", 1).port,
        concurrency=2,
        pattern="constant",
        rate_rps=20_000.0,
        duration_s=30.0,
        timeout_s=20.0,
        on_tick=lambda: "enough" if running_s() > 0.7 else None,
    )
    assert measured.outcome.aborted == "enough"
    assert measured.failures() == {Failure.CANCELLED: 2}
    ended_ns = measured.sent["last_ns"].max()
    assert 500 * MS < ended_ns < 15_000 * MS
    assert (measured.sent["last_ns"] == ended_ns).all()
    assert len(measured.unsent) > 9_000
    late_ns = ended_ns + 500 * MS
    assert measured.unsent["due_ns"].max() < late_ns
    assert measured.samples["index"].tolist() == list(range(len(measured.samples)))


@pytest.mark.parametrize("driver", ["wire", "sessions"])
def test_what_was_due_before_the_end_is_sent_late_and_nothing_is_due_after_it(
    null_server: Callable, load: Callable, driver: str
) -> None:
    """60 requests a second are due of a server that serves 50: what is left at the end takes it 0.2 s."""
    turns = {"turns": 2} if driver == "sessions" else {}
    rate = 30.0 if turns else 60.0
    server = null_server("--delay-ms", 20)
    measured = load(port=server.port, concurrency=1, pattern="constant", rate_rps=rate, duration_s=1.0, **turns)
    assert len(measured.unsent) == 0
    assert measured.sent["sent_ns"].max() > 1000 * MS > measured.samples["due_ns"].max()
    assert measured.outcome.reports[0].survivors == 1


def test_late_requests_are_sent_for_a_second_at_most_after_a_short_load(
    null_server: Callable, load: Callable
) -> None:
    measured = load(port=null_server("--delay-ms", 100).port, concurrency=1, timeout_s=30.0, **OVERLOAD)
    assert 600 * MS < measured.sent["sent_ns"].max() < 1600 * MS
    assert len(measured.unsent) > 10_000


def test_what_waits_takes_no_memory(null_server: Callable, load: Callable) -> None:
    server = null_server("--delay-ms", 100)
    short, long = (
        load(port=server.port, pattern="poisson", rate_rps=rate, duration_s=0.5, timeout_s=5.0).outcome.reports[0]
        for rate in (2_000.0, 1_000_000.0)
    )
    assert short.backlog_max < 2_000
    assert long.backlog_max > 300_000
    more_bytes = long.max_rss_bytes - short.max_rss_bytes
    assert more_bytes < 8 << 20, "a number for each that waits would be more"
