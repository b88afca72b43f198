"""One request outside of a load: its deadline and the size of its reply are bounds that no server moves."""

import time

import pytest
from hostile_server import (
    CHUNKED,
    OK,
    PLAIN,
    UNTIL_CLOSE,
    HostileServer,
    closes_after,
    endless,
    never_accepting,
    says,
    sized,
)

from seamark.load.fetch import Fetched, FetchError, fetch

LIMIT_S = 0.5
LATEST_S = 10.0
"""When a time-out of each read would not have ended it yet; a busy machine is late by seconds."""


def fetched(behaviour: object, limit_s: float = 20.0, **asked: object) -> Fetched:
    with HostileServer(behaviour) as server:  # type: ignore[arg-type]
        return fetch("127.0.0.1", server.port, "/", limit_s=limit_s, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("behaviour", "status", "body"),
    [
        (says(sized(b"abc")), 200, b"abc"),
        (says(CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"), 200, b"abc"),
        (closes_after(UNTIL_CLOSE + b"abc"), 200, b"abc"),
        (says(sized(b"no", status="404 Not Found")), 404, b"no"),
        (says(b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"abc")), 200, b"abc"),
    ],
)
def test_a_reply_is_fetched_whatever_its_framing_and_status(behaviour, status, body):
    assert fetched(behaviour) == Fetched(status=status, body=body, whole=True)


@pytest.mark.serial
@pytest.mark.parametrize(
    "name",
    ["drips its status line", "drips headers", "drips a body", "drips interim replies", "accepts and is silent"],
)
def test_the_deadline_is_that_of_the_whole_request_and_not_of_each_read(name):
    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        fetched(PLAIN[name], LIMIT_S)
    assert LIMIT_S <= time.monotonic() - began_s < LATEST_S


@pytest.mark.serial
def test_a_server_that_never_accepts_is_given_up_at_the_deadline():
    began_s = time.monotonic()
    with never_accepting() as port, pytest.raises(TimeoutError):
        fetch("127.0.0.1", port, "/", limit_s=LIMIT_S)
    assert time.monotonic() - began_s < LATEST_S


@pytest.mark.parametrize(
    "name", ["endless body", "endless headers", "endless trailers", "endless interim replies", "huge chunk"]
)
def test_more_than_is_read_is_an_error_that_says_so(name):
    with pytest.raises(FetchError, match="more than is read of a reply"):
        fetched(PLAIN[name])


def test_a_body_may_be_cut_where_half_of_it_is_worth_something():
    page = fetched(endless(UNTIL_CLOSE, b"x" * 100), most_bytes=100_000, cut=True)
    assert (page.status, page.whole, set(page.body)) == (200, False, {ord("x")})
    assert 100_000 < len(page.body) < 300_000


def test_the_head_alone_is_enough_where_only_the_status_counts():
    assert fetched(endless(OK + b"Content-Length: 999999999999\r\n\r\n", b"x"), head_alone=True).status == 200


@pytest.mark.parametrize(
    "name", ["HTTP/0.9", "TLS alert", "NUL bytes", "closes without a reply", "closes in its body"]
)
def test_what_is_no_whole_http_reply_is_an_error(name):
    with pytest.raises(FetchError):
        fetched(PLAIN[name])
