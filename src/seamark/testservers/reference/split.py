"""Cuts what would be one write into several, at places that a decoder may not rely on. No sockets here."""

from collections.abc import Sequence
from random import Random

from seamark.testservers.reference.behaviour import Split
from seamark.testservers.reference.wire import framed

MOST_CUTS = 3


def pieces_of(head: bytes, payloads: Sequence[bytes], tail: bytes, split: Split, draw: Random) -> list[bytes]:
    """Return the writes that bring `head`, the payloads in chunked transfer, and `tail`."""
    if split in ("none", "writes"):
        data = head + b"".join(map(framed, payloads)) + tail
        return cut(data, _anywhere(data, draw)) if split == "writes" else [data]
    pieces = [head] if head else []
    for payload in payloads:
        places = _in_a_character(payload) if split == "utf8" else _anywhere(payload, draw)
        pieces += map(framed, cut(payload, places))
    if not pieces:
        return [tail] if tail else []
    pieces[-1] += tail
    return pieces


def sized_pieces(data: bytes, split: Split, draw: Random) -> list[bytes]:
    """Return the writes that bring a reply whose head states its length."""
    if split == "none":
        return [data]
    return cut(data, _in_a_character(data) if split == "utf8" else _anywhere(data, draw))


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the pieces of `data` between increasing places inside it."""
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)]


def _anywhere(data: bytes, draw: Random) -> list[int]:
    inside = range(1, len(data))
    return sorted(draw.sample(inside, min(draw.randint(1, MOST_CUTS), len(inside))))


def _in_a_character(data: bytes) -> list[int]:
    """Return the place inside the first character of several bytes."""
    return next(([at] for at, byte in enumerate(data) if byte & 0xC0 == 0x80), [])
