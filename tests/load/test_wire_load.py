"""The event-loop generator over real sockets: order, time-outs, broken connections, lateness, the end."""

import socket
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from listening import listening

from seamark.load.coordinator.coordinator import LoadError
from seamark.model.sample import MISSING_NS, Failure

MS = 1_000_000
pytestmark = pytest.mark.services


def test_a_closed_loop_of_one_user_never_has_two_requests_in_flight(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--delay-ms", 3).port, duration_s=0.3)
    samples = measured.samples
    assert len(samples) > 20
    assert measured.failures() == {Failure.NONE: len(samples)}
    assert (samples["sent_ns"][1:] >= samples["last_ns"][:-1]).all()
    assert (samples["due_ns"] == samples["sent_ns"]).all()
    assert (samples["last_ns"] - samples["sent_ns"] >= 1.5 * MS).all()


def test_a_closed_loop_keeps_exactly_its_users_busy(null_server: Callable, load: Callable) -> None:
    samples = load(port=null_server("--delay-ms", 5).port, concurrency=6, duration_s=0.4).samples
    starts = np.stack([samples["sent_ns"], np.ones(len(samples))], axis=1)
    ends = np.stack([samples["last_ns"], -np.ones(len(samples))], axis=1)
    events = np.concatenate([ends, starts])
    in_flight = np.cumsum(events[np.argsort(events[:, 0], kind="stable"), 1])
    assert in_flight.max() == 6
    assert samples["index"].tolist() == list(range(len(samples)))


def test_a_user_who_thinks_pauses_between_a_reply_and_the_next_request(null_server: Callable, load: Callable) -> None:
    samples = load(port=null_server().port, think_time_s=0.03, duration_s=0.3).samples
    assert (samples["sent_ns"][1:] - samples["last_ns"][:-1] >= 30 * MS).all()
    assert 4 <= len(samples) <= 11, "pauses of 30 ms and more"


@pytest.mark.parametrize("turns", [1, 4])
@pytest.mark.parametrize("pause_ms", [0.4, 2.5])
def test_a_pause_is_never_shortened_to_whole_milliseconds(
    null_server: Callable, load: Callable, turns: int, pause_ms: float
) -> None:
    samples = load(port=null_server().port, think_time_s=pause_ms / 1e3, turns=turns, duration_s=0.3).samples
    assert len(samples) > 10
    assert (samples["sent_ns"][1:] - samples["last_ns"][:-1] >= pause_ms * MS).all()


def test_every_field_of_a_sample_is_what_happened(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--reply-bytes", 1000).port, requests=5)
    sample = measured.samples[3]
    assert (sample["index"], sample["units"], sample["status"], sample["worker"], sample["kind"]) == (3, 1, 200, 0, 0)
    assert sample["bytes_sent"] == len(b"GET / HTTP/1.1\r\nHost: null\r\n\r\n")
    assert sample["bytes_received"] == len(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n") + 1000
    assert sample["first_ns"] == MISSING_NS
    assert len(measured.samples) == 5
    assert (measured.outcome.unit, measured.outcome.kinds) == ("reply", ("get",))


@pytest.mark.covers("E-CLI02")
def test_an_open_loop_sends_its_schedule_and_says_how_late_it_was(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server().port, pattern="constant", rate_rps=200.0, concurrency=8, duration_s=0.5)
    samples = measured.samples
    assert samples["due_ns"].tolist() == [k * 5 * MS for k in range(100)]
    assert (samples["sent_ns"] >= samples["due_ns"]).all()
    report = measured.outcome.reports[0]
    lag_ns = samples["sent_ns"] - samples["due_ns"]
    assert report.lag_ns.max == lag_ns.max()
    median_ns = np.quantile(lag_ns, 0.5, method="inverted_cdf")
    assert report.lag_ns.p50 == pytest.approx(median_ns, rel=0.02, abs=2)
    assert (report.scheduled, report.sent, report.completed) == (100, 100, 100)


def test_a_closed_loop_has_no_schedule_lag(null_server: Callable, load: Callable) -> None:
    report = load(port=null_server().port, duration_s=0.1).outcome.reports[0]
    assert report.lag_ns is None
    assert report.loop_lag_ns.max >= report.loop_lag_ns.p99 > 0


@pytest.mark.serial
@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(("concurrency", "duration_s"), [(200, 2.0), (1, 3.0)], ids=["in-flight", "backlog"])
def test_coordinated_omission_is_not_hidden_when_the_server_stalls(
    null_server: Callable, load: Callable, concurrency: int, duration_s: float
) -> None:
    """100 requests/s at 1 ms for 1 s, then a stall of 1 s: the golden example, a hundredth as long.

    A client that waits for the stalled reply and counts one slow request finds a mean of about 11 ms. From the
    intended start the mean is 0.25 s, p75 0.5 s, p99 0.98 s; whether the requests that fell into the stall were in
    flight or waited for the one connection there is.
    """
    server = null_server("--delay-ms", 1, "--stall-from-s", 1, "--stall-for-s", 1)
    measured = load(
        port=server.port, pattern="constant", rate_rps=100.0, concurrency=concurrency, duration_s=duration_s
    )
    samples = measured.samples[:200]
    assert len(samples) == 200
    response_s = (samples["last_ns"] - samples["due_ns"]) / 1e9
    service_s = (samples["last_ns"] - samples["sent_ns"]) / 1e9
    drained_s = 0.15 if concurrency == 1 else 0.0  # one connection needs a while for what has waited
    assert response_s.mean() == pytest.approx(0.25, abs=0.03 + drained_s)
    assert np.quantile(response_s, 0.75) == pytest.approx(0.5, abs=0.05 + drained_s)
    assert np.quantile(response_s, 0.99) == pytest.approx(0.98, abs=0.05)
    if concurrency == 1:
        assert service_s.mean() < 0.05, "the service time alone hides the stall"
        assert measured.outcome.reports[0].backlog_max >= 90


def test_without_a_free_connection_requests_wait_in_order_and_the_unsent_are_counted(
    null_server: Callable, load: Callable
) -> None:
    server = null_server("--delay-ms", 50)
    measured = load(port=server.port, pattern="constant", rate_rps=200.0, concurrency=2, duration_s=0.6)
    samples, outcome = measured.sent, measured.outcome
    assert outcome.scheduled == 120 == len(measured.samples)
    assert measured.samples["due_ns"].tolist() == [k * 5 * MS for k in range(120)]
    assert measured.unsent["index"].tolist() == list(range(outcome.sent, 120))
    assert set(measured.unsent["failure"].tolist()) == {Failure.CANCELLED}
    assert set(measured.unsent["first_ns"].tolist()) == set(measured.unsent["last_ns"].tolist()) == {MISSING_NS}
    lag_ns = samples["sent_ns"] - samples["due_ns"]
    assert outcome.reports[0].lag_ns.max == lag_ns.max()
    assert 48 <= outcome.sent == outcome.completed == len(samples) <= 66
    assert samples["index"].tolist() == list(range(len(samples)))
    assert (np.diff(samples["sent_ns"]) >= 0).all()
    assert outcome.scheduled - outcome.sent - 5 <= outcome.reports[0].backlog_max <= 120
    assert (samples["sent_ns"] < 1600 * MS).all(), "what was due is sent for a second more"


@pytest.mark.covers("E-FR09")
def test_a_request_without_a_reply_is_timed_out_and_the_load_goes_on(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--silent-every", 10).port, timeout_s=0.1, duration_s=0.5)
    samples = measured.samples
    late = samples[samples["failure"] == Failure.TIMEOUT]
    assert 2 <= len(late) <= 5
    assert (late["index"] % 10 == 9).all()
    waited_ns = late["last_ns"] - late["sent_ns"]
    assert (waited_ns >= 100 * MS).all()
    assert waited_ns.max() < 1000 * MS
    assert (late["units"] == 0).all()
    assert set(measured.failures()) == {Failure.NONE, Failure.TIMEOUT}


def test_a_late_reply_is_not_taken_for_the_reply_of_the_next_request(null_server: Callable, load: Callable) -> None:
    server = null_server("--delay-ms", 150)
    measured = load(port=server.port, timeout_s=0.1, duration_s=0.5)
    assert set(measured.failures()) == {Failure.TIMEOUT}


def test_a_reset_fails_its_request_alone(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--reset-every", 7).port, requests=70)
    failures = measured.failures()
    assert failures == {Failure.NONE: 60, Failure.RESET: 10}
    assert (measured.samples["index"][measured.samples["failure"] == Failure.RESET] % 7 == 6).all()


def test_a_connection_closed_after_its_reply_is_no_failure(null_server: Callable, load: Callable) -> None:
    assert load(port=null_server("--close-every", 3).port, requests=60, concurrency=2).failures() == {0: 60}


def test_an_error_status_is_the_servers_failure_and_keeps_the_status(null_server: Callable, load: Callable) -> None:
    samples = load(port=null_server("--error-every", 4).port, requests=40).samples
    failed = samples[samples["failure"] == Failure.SERVER_ERROR]
    assert len(failed) == 10
    assert set(failed["status"].tolist()) == {503}


def test_a_server_that_is_not_there_stops_the_load_before_its_clock(load: Callable) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(LoadError, match="refused"):
            load(port=unused.getsockname()[1])


@pytest.mark.parametrize("pattern", ["closed", "constant"])
def test_a_server_that_dies_in_mid_load_makes_resets_and_refusals_and_an_end(
    null_server: Callable, load: Callable, running_s: Callable[[], float], pattern: str
) -> None:
    server = null_server("--delay-ms", 1)

    def kill_server() -> None:
        if running_s() > 0.4:
            server.process.kill()

    measured = load(
        port=server.port, concurrency=4, duration_s=1.2, pattern=pattern, rate_rps=400.0, on_tick=kill_server
    )
    failures = measured.failures()
    assert failures[Failure.NONE] > 50
    assert failures[Failure.CONNECT] > 1
    assert set(failures) <= {Failure.NONE, Failure.RESET, Failure.CONNECT}
    assert len(measured.samples) < 3000, "refused users must pause"
    refused = measured.samples[measured.samples["failure"] == Failure.CONNECT]
    assert (refused["bytes_sent"] == 0).all()


def test_what_is_in_flight_at_the_deadline_is_awaited_and_counted(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--delay-ms", 900).port, concurrency=3, duration_s=0.4)
    assert measured.outcome.reports[0].survivors == 3
    assert measured.failures() == {Failure.NONE: 3}
    assert measured.samples["last_ns"].max() > 850 * MS
    assert measured.samples["sent_ns"].max() < 400 * MS


def test_what_never_comes_after_the_deadline_is_timed_out(null_server: Callable, load: Callable) -> None:
    measured = load(port=null_server("--silent-every", 1).port, concurrency=3, duration_s=0.1, timeout_s=0.4)
    assert measured.failures() == {Failure.TIMEOUT: 3}
    assert measured.outcome.reports[0].survivors == 3


def test_a_load_ends_after_its_requests(null_server: Callable, load: Callable) -> None:
    began_s = time.monotonic()
    measured = load(port=null_server().port, requests=10, concurrency=3, duration_s=60.0)
    assert measured.samples["index"].tolist() == list(range(10))
    assert time.monotonic() - began_s < 10


REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"


def babble(connection: socket.socket) -> None:
    """Send what nobody asked for."""
    time.sleep(0.002)
    connection.sendall(b"HTTP/1.1 500 Ill\r\nContent-Length: 1\r\n\r\nb")


def hang_up(connection: socket.socket) -> None:
    """Close an idle connection without having said so."""
    time.sleep(0.002)
    connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=[babble, hang_up])
def ill_mannered_server(request: pytest.FixtureRequest) -> Iterator[int]:
    """A server that answers well and then does something to the idle connection."""

    def answer(connection: socket.socket) -> None:
        while connection.recv(1000):
            connection.sendall(REPLY)
            request.param(connection)

    with listening(answer) as port:
        yield port


def test_what_a_server_does_to_an_idle_connection_fails_no_request(ill_mannered_server: int, load: Callable) -> None:
    measured = load(port=ill_mannered_server, think_time_s=0.1, requests=8, duration_s=20.0)
    assert measured.failures() == {Failure.NONE: 8}
