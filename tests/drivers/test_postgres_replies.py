"""Replies in PostgreSQL's protocol: what was good, what was not, however they were cut on their way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.drivers.postgres.replies import MAX_REPLY_BYTES, ReplyDecoder
from seamark.model.sample import Failure


def message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + struct.pack("!i", 4 + len(content)) + content


def row(*values: bytes) -> bytes:
    fields = b"".join(struct.pack("!i", len(value)) + value for value in values)
    return message(b"D", struct.pack("!h", len(values)) + fields)


def complete(tag: bytes) -> bytes:
    return message(b"C", tag + b"\0") + message(b"Z", b"I")


def refused(sqlstate: bytes) -> bytes:
    return message(b"E", b"SERROR\0VERROR\0C" + sqlstate + b"\0Msome text\0\0") + message(b"Z", b"I")


BOUND = message(b"2") + message(b"T", struct.pack("!h", 1) + b"abalance\0" + bytes(18))
REPLIES = {
    "a row": (BOUND + row(b"17") + complete(b"SELECT 1"), Failure.NONE),
    "a notice before it": (
        message(b"N", b"SWARNING\0C01000\0\0") + BOUND + row(b"1") + complete(b"SELECT 1"),
        Failure.NONE,
    ),
    "no row": (BOUND + complete(b"SELECT 0"), Failure.WRONG_REPLY),
    "two rows": (BOUND + row(b"1") + row(b"2") + complete(b"SELECT 2"), Failure.WRONG_REPLY),
    "eleven rows": (BOUND + row(b"1") * 11 + complete(b"SELECT 11"), Failure.WRONG_REPLY),
    "a statement that took too long": (BOUND + refused(b"57014"), Failure.TIMEOUT),
    "a deadlock": (message(b"2") + refused(b"40P01"), Failure.DEADLOCK_DETECTED),
    "a transaction that another one was faster than": (
        message(b"2") + refused(b"40001"),
        Failure.SERIALIZATION_FAILURE,
    ),
    "an SQLSTATE that is no text": (refused(b"\xff\xfe"), Failure.SERVER_ERROR),
    "a table that is not there": (refused(b"42P01"), Failure.CLIENT_ERROR),
    "an end of another kind": (BOUND + row(b"1") + complete(b"UPDATE 1"), Failure.WRONG_REPLY),
}


@pytest.mark.slow
@pytest.mark.covers("E-CLI03", "E-FR17")
@given(data=st.data())
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_means_the_same_however_it_was_cut(name: str, data: st.DataObject) -> None:
    reply, failure = REPLIES[name]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(reply) - 1), max_size=6)))
    decoder = ReplyDecoder("SELECT 1")
    for _ in range(2):
        decoder.reset()
        pieces = [reply[start:end] for start, end in zip([0, *cuts], [*cuts, len(reply)], strict=True)]
        assert [decoder.feed(piece) for piece in pieces] == [False] * len(cuts) + [True]
        assert (decoder.failure, decoder.units) == (failure, int(failure is Failure.NONE))


def test_content_that_looks_like_an_end_is_none() -> None:
    lookalike = row(b"xZ", b"abcde") + row(b"C\x01\x01\x01\x0dSELECT 1")
    decoder = ReplyDecoder("SELECT 1")
    decoder.reset()
    head = BOUND + lookalike
    assert [
        decoder.feed(head[:at]) if at == 1 else decoder.feed(head[at - 1 : at]) for at in range(1, len(head) + 1)
    ] == [False] * len(head)
    assert decoder.feed(complete(b"SELECT 1"))
    assert decoder.failure is Failure.NONE


def test_a_reply_without_end_is_too_large_and_is_not_kept():
    decoder = ReplyDecoder("SELECT 1")
    piece = row(b"x" * 1_000_000)
    fed = [decoder.feed(piece) for _ in range(MAX_REPLY_BYTES // len(piece) + 1)]
    assert fed == [False] * (len(fed) - 1) + [True]
    assert (decoder.units, decoder.failure) == (0, Failure.REPLY_TOO_LARGE)


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (  # as PostgreSQL 18 sends them
            b"SERROR\0VERROR\0C40P01\0Mdeadlock detected\0DProcess 9 waits\0Fdeadlock.c\0L1148\0RDeadLockReport\0\0",
            ("40P01", "deadlock detected"),
        ),
        (
            b"SFEHLER\0VERROR\0C40001\0Mkonnte Zugriff wegen gleichzeitiger Aktualisierung nicht serialisieren\0"
            b"Fheapam.c\0L2782\0Rheap_delete\0\0",
            ("40001", "konnte Zugriff wegen gleichzeitiger Aktualisierung nicht serialisieren"),
        ),
    ],
)
def test_an_error_has_the_servers_sqlstate_and_its_own_words(fields: bytes, error: tuple[str, str]) -> None:
    decoder = ReplyDecoder("SELECT 1")
    assert decoder.feed(message(b"E", fields) + message(b"Z", b"I"))
    assert decoder.error == error
    decoder.reset()
    assert decoder.feed(BOUND + row(b"1") + complete(b"SELECT 1"))
    assert decoder.error is None
