"""The HTTP decoder: every framing, cut anywhere, one reply after another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.load.engine.http import MAX_BODY_BYTES, MAX_HEAD_BYTES, MOST_SAID_BYTES, HttpDecoder, http_request
from seamark.model.sample import Failure

SIZED = b"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 11\r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def words(status: int, body: bytes) -> int:
    return len(body.split())


def cuts(data: bytes) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, len(data) - 1), max_size=8, unique=True).map(sorted)


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("reply", [SIZED, CHUNKED, INTERIM], ids=["sized", "chunked", "interim"])
@given(data=st.data())
def test_a_reply_cut_anywhere_is_read_the_same(reply: bytes, data: st.DataObject) -> None:
    decoder = HttpDecoder(words)
    for _ in range(2):
        decoder.reset()
        parts = pieces(reply, data.draw(cuts(reply)))
        said = [decoder.feed(part) for part in parts]
        assert said == [False] * (len(parts) - 1) + [True]
        assert (decoder.status, decoder.units, decoder.failure) == (200, 2, Failure.NONE)
        assert decoder.body_bytes == 11
        assert decoder.keep_alive


@pytest.mark.slow
@given(reply=st.binary(max_size=200))
def test_bytes_that_are_not_http_never_raise(reply: bytes) -> None:
    decoder = HttpDecoder()
    decoder.feed(reply)
    decoder.feed(b"\r\n\r\n" + reply)


@given(noise=st.binary(min_size=1, max_size=60), at=st.integers(0, len(CHUNKED)))
def test_noise_inside_a_chunked_reply_never_raises(noise: bytes, at: int) -> None:
    HttpDecoder(words).feed(CHUNKED[:at] + noise + CHUNKED[at:])


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (200, Failure.NONE),
        (206, Failure.NONE),
        (302, Failure.WRONG_REPLY),
        (404, Failure.CLIENT_ERROR),
        (429, Failure.CLIENT_ERROR),
        (500, Failure.SERVER_ERROR),
        (503, Failure.SERVER_ERROR),
    ],
)
def test_a_status_is_a_category(status: int, failure: Failure) -> None:
    decoder = HttpDecoder()
    assert decoder.feed(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nno" % status)
    assert (decoder.status, decoder.failure) == (status, failure)
    assert decoder.units == (0 if failure else 1)
    assert decoder.keep_alive


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 503 x\r\nContent-Length: 7\r\n\r\nno room", "503 Service Unavailable: no room"),
        (
            b"HTTP/1.1 400 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno \r\n4\r\nroom\r\n0\r\n\r\n",
            "400 Bad Request: no room",
        ),
        (b"HTTP/1.1 599 x\r\nContent-Length: 7\r\n\r\nno room", "599: no room"),
        (b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n", "503 Service Unavailable"),
        (b"HTTP/1.1 500 x\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\xff", "500 Internal Server Error"),
        (b"no http\r\n\r\n", None),
    ],
)
@pytest.mark.parametrize("read_bytes", [1, 40, 1000])
@pytest.mark.parametrize("units_of", [None, words], ids=["counted", "read"])
def test_a_failed_reply_says_why_however_it_comes(units_of, reply: bytes, error: str | None, read_bytes: int) -> None:
    decoder = HttpDecoder(units_of)
    for _ in range(3):
        decoder.reset()
        for at in range(0, len(reply), read_bytes):
            ended = decoder.feed(reply[at : at + read_bytes])
        assert ended
        assert decoder.error == error


def test_of_a_long_failed_reply_the_beginning_is_kept() -> None:
    decoder = HttpDecoder()
    decoder.feed(b"HTTP/1.1 500 x\r\nContent-Length: 900000\r\n\r\n")
    while not decoder.feed(b"x" * 1000):
        assert sum(map(len, decoder._body)) < 2 * MOST_SAID_BYTES
    assert decoder.failure == Failure.SERVER_ERROR
    assert len(decoder.error or "") < MOST_SAID_BYTES + 100


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length:0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
def test_the_connection_is_kept_as_the_reply_says(head: bytes, keep_alive: bool) -> None:
    decoder = HttpDecoder()
    assert decoder.feed(head)
    assert decoder.keep_alive is keep_alive


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n",
        b"x" * (2 << 20),
    ],
)
def test_what_is_not_http_is_a_protocol_failure_and_ends_the_connection(reply: bytes) -> None:
    decoder = HttpDecoder()
    assert decoder.feed(reply)
    assert decoder.failure == Failure.PROTOCOL
    assert not decoder.keep_alive


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    decoder = HttpDecoder(words)
    assert not decoder.feed(b"HTTP/1.1 200 OK\r\n\r\nhello ")
    assert not decoder.feed(b"world")
    assert decoder.end_of_stream()
    assert (decoder.units, decoder.keep_alive) == (2, False)


@pytest.mark.parametrize("part", [b"", SIZED[:20], SIZED[:-1], CHUNKED[:-2]])
def test_a_connection_that_ends_inside_a_reply_does_not_complete_it(part: bytes) -> None:
    decoder = HttpDecoder()
    decoder.feed(part)
    assert not decoder.end_of_stream()


def test_bytes_after_a_reply_are_not_part_of_it_and_end_the_connection() -> None:
    for reply in (SIZED, CHUNKED, EMPTY):
        decoder = HttpDecoder()
        assert decoder.feed(reply + b"HTTP/1.1 200")
        assert not decoder.keep_alive


def test_a_head_reply_has_no_body_whatever_its_length_says() -> None:
    decoder = HttpDecoder(headless=True)
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")


def test_units_are_the_drivers_to_count_and_a_bad_body_is_a_wrong_reply() -> None:
    def nothing_good(status: int, body: bytes) -> int:
        if body == b"hello world":
            raise ValueError("not what was asked for")
        return 0

    decoder = HttpDecoder(nothing_good)
    assert decoder.feed(SIZED)
    assert decoder.failure == Failure.WRONG_REPLY
    decoder.reset()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert decoder.failure == Failure.EMPTY_REPLY


def test_a_request_has_a_host_and_the_length_of_its_body() -> None:
    assert http_request("GET", "/a?b=1", host="h:1") == b"GET /a?b=1 HTTP/1.1\r\nHost: h:1\r\n\r\n"
    assert http_request("PUT", "/a", host="h", headers={"X": "y"}, body=b"abc") == (
        b"PUT /a HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 3\r\n\r\nabc"
    )


SAME_HEAD = SIZED[:-11] + b"other words"
LATER = SIZED.replace(b"today", b"later")
LONGER = SIZED.replace(b"11", b"12") + b"!"
ILL = SIZED.replace(b"200 OK", b"500 No")
CLOSING = SIZED.replace(b"Date: today", b"Connection: close")
BABBLING = SIZED + b"!"
SEVERAL = [SIZED, SAME_HEAD, LATER, LONGER, ILL, CLOSING, BABBLING, CHUNKED, INTERIM, EMPTY]


@pytest.mark.slow
@pytest.mark.parametrize("units_of", [None, words], ids=["counted", "read"])
@given(replies=st.lists(st.tuples(st.sampled_from(SEVERAL), st.booleans()), min_size=2, max_size=12))
def test_what_was_read_before_changes_nothing_of_how_a_reply_is_read(units_of, replies) -> None:
    """Heads that came before are known again, and only they."""
    used = HttpDecoder(units_of)
    for reply, is_cut in replies:
        fresh = HttpDecoder(units_of)
        parts = [reply[:-1], reply[-1:]] if is_cut and reply != BABBLING else [reply]
        used.reset()
        assert (used.units, used.status, used.failure, used.body_bytes) == (0, 0, Failure.NONE, 0)
        for part in parts:
            assert used.feed(part) == fresh.feed(part)
        seen = [(each.status, each.units, each.failure, each.body_bytes, each.keep_alive) for each in (used, fresh)]
        assert seen[0] == seen[1]
        if not used.keep_alive:
            used = HttpDecoder(units_of)


def test_a_decoder_with_its_own_eye_on_heads_sees_every_one_of_them() -> None:
    class Watching(HttpDecoder):
        heads = 0

        def _head(self, head: bytes) -> bool:
            Watching.heads += 1
            return super()._head(head)

    decoder = Watching()
    for count in range(1, 4):
        decoder.reset()
        assert decoder.feed(SIZED)
        assert Watching.heads == count


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"b"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"e"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n"),
    ],
    ids=["interim replies", "headers", "header line", "chunk line", "trailers"],
)
@pytest.mark.parametrize("read_bytes", [1000, 1 << 18])
def test_heads_lines_and_trailers_without_end_are_a_reply_too_large(first, again, read_bytes):
    decoder = HttpDecoder()
    decoder.feed(first)
    piece = again * (read_bytes // len(again))
    fed = 0
    while not decoder.feed(piece):
        fed += len(piece)
        assert fed <= MAX_HEAD_BYTES + 2 * len(piece)
    assert (decoder.failure, decoder.keep_alive) == (Failure.REPLY_TOO_LARGE, False)


@pytest.mark.parametrize("head", [b"Content-Length: 99999999\r\n", b"Transfer-Encoding: chunked\r\n", b""])
def test_a_body_that_is_kept_has_a_limit_and_one_that_is_counted_has_none(head):
    piece = b"10000\r\n" + bytes(1 << 16) + b"\r\n" if b"chunked" in head else bytes(1 << 16)
    kept, counting = HttpDecoder(words), HttpDecoder()
    for decoder in (kept, counting):
        decoder.feed(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
    fed = [kept.feed(piece) for _ in range(MAX_BODY_BYTES >> 16)]
    assert any(fed) is (head[:7] == b"Content"), "a length is known at once"
    assert kept.feed(piece) or fed[0]
    assert (kept.failure, kept.keep_alive) == (Failure.REPLY_TOO_LARGE, False)
    assert not any(counting.feed(piece) for _ in range(2 * MAX_BODY_BYTES >> 16))


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: " + b"9" * 5000,
        b"Content-Length: 3\r\nContent-Length: 5",
        b"Content-Length: -3",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17,
    ],
)
def test_a_length_that_cannot_be_or_two_that_differ_are_no_http(head):
    decoder = HttpDecoder()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\nabcde")
    assert decoder.failure == Failure.PROTOCOL


def test_one_length_said_twice_is_one():
    decoder = HttpDecoder()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length:3\r\n\r\nabc")
    assert (decoder.failure, decoder.units) == (Failure.NONE, 1)


@pytest.mark.parametrize("begins", [b"SSH-2.0-x\r\n", b"<html>", b"\x15\x03\x01", b"H2", b"HTTP/2"])
def test_what_does_not_begin_like_http_is_known_before_its_head_ends(begins):
    decoder = HttpDecoder()
    assert decoder.feed(begins)
    assert decoder.failure == Failure.PROTOCOL
