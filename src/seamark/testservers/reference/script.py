"""The course of one answer, laid out before it begins: which bytes at which time, what they are worth. No clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from seamark.testservers.reference.journal import Outcome

NOWHERE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """Writes of an answer, n of each; at the end of a `reset` the connection is reset instead of a last write.

    The first `early` offsets count from when the request was read, the others from the first token's deadline; the
    totals are after each step. `first`, `answer`, `last` are the steps with the first token, the first that is not
    reasoning, and the last one; NOWHERE for none.
    """

    steps: tuple[bytes, ...]
    offsets_ns: tuple[int, ...]
    early: int
    chunks_after: tuple[int, ...]
    tokens_after: tuple[int, ...]
    first: int
    answer: int
    last: int
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Events that are due together, before they are bytes on the wire.

    In pieces, the last one of them leaves at `at_ns`; `forward`: the first one does. `early`: `at_ns` is from when
    the request was read.
    """

    at_ns: int
    payloads: Sequence[bytes] = ()
    chunks: int = 0
    tokens: int = 0
    answers: bool = False
    early: bool = False
    forward: bool = False


def joined(moments: Sequence[Moment], most: int) -> list[Moment]:
    """Return the moments, so many at a time as one, at the time of the first of them."""
    if most == 1:
        return list(moments)
    groups = [moments[at : at + most] for at in range(0, len(moments), most)]
    return [
        Moment(
            at_ns=group[0].at_ns,
            payloads=[payload for moment in group for payload in moment.payloads],
            chunks=sum(moment.chunks for moment in group),
            tokens=sum(moment.tokens for moment in group),
            answers=any(moment.answers for moment in group),
        )
        for group in groups
    ]


def apart(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments with one event each, so that each event has its own last piece. Events of one moment are
    worth the same."""
    return [
        Moment(
            at_ns=moment.at_ns,
            payloads=payloads,
            chunks=moment.chunks // max(len(moment.payloads), 1),
            tokens=moment.tokens // max(len(moment.payloads), 1),
            answers=moment.answers,
            early=moment.early,
            forward=moment.forward,
        )
        for moment in moments
        for payloads in ([[each] for each in moment.payloads] or [[]])
    ]


def laid_out(
    moments: Sequence[Moment], writes: Sequence[Sequence[bytes]], outcome: Outcome, piece_ns: int = 0
) -> Script:
    """Return the moments, early ones first, and the writes of each as one sequence."""
    offsets_ns: list[int] = []
    steps: list[bytes] = []
    chunks: list[int] = []
    tokens: list[int] = []
    early = 0
    first = answer = last = NOWHERE
    for moment, pieces in zip(moments, writes, strict=True):
        for at, piece in enumerate(pieces):
            ends = at == len(pieces) - 1
            offset_ns = moment.at_ns + piece_ns * (at if moment.forward else at + 1 - len(pieces))
            if len(steps) > early:
                offset_ns = max(offset_ns, offsets_ns[-1])
            early += moment.early
            if ends and moment.chunks:
                first = len(steps) if first == NOWHERE else first
                answer = len(steps) if moment.answers and answer == NOWHERE else answer
                last = len(steps)
            steps.append(piece)
            offsets_ns.append(offset_ns)
            chunks.append(moment.chunks if ends else 0)
            tokens.append(moment.tokens if ends else 0)
    return Script(
        steps=tuple(steps),
        offsets_ns=tuple(offsets_ns),
        early=early,
        chunks_after=tuple(accumulate(chunks)),
        tokens_after=tuple(accumulate(tokens)),
        first=first,
        answer=answer,
        last=last,
        outcome=outcome,
    )
