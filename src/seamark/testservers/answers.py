"""Script of the answer to each request: its writes, their times and values, laid out in advance. No clock, no
sockets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from random import Random

from seamark.testservers import wire
from seamark.testservers.behaviour import Behaviour, Fault, Split
from seamark.testservers.journal import Outcome
from seamark.testservers.request import AnswerParameters
from seamark.testservers.wire import framed

NOWHERE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """The n writes of an answer; at the end of a `reset` the connection is reset instead of the last write.

    The first `early` offsets count from the arrival of the request, the others from the first token's deadline; the
    totals are after each step. `first`, `answer`, `last` are the steps with the first token, the first token after
    the reasoning, and the last token; NOWHERE for none. `closes`: the connection is closed after it.
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
    closes: bool = False


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Events due at the same time, before encoding.

    Of several pieces the last one is written at `at_ns`, with `forward` the first. `early`: `at_ns` counts from the
    arrival of the request.
    """

    at_ns: int
    payloads: Sequence[bytes] = ()
    chunks: int = 0
    tokens: int = 0
    answers: bool = False
    early: bool = False
    forward: bool = False


def joined(moments: Sequence[Moment], most: int) -> list[Moment]:
    """Return the moments in groups of `most`, each at the time of its first."""
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
    """Return the moments with one event each, so that each event has its own last piece. Events of one moment have
    equal value."""
    return [
        replace(
            moment,
            payloads=payloads,
            chunks=moment.chunks // max(len(moment.payloads), 1),
            tokens=moment.tokens // max(len(moment.payloads), 1),
        )
        for moment in moments
        for payloads in ([[payload] for payload in moment.payloads] or [[]])
    ]


def laid_out(
    moments: Sequence[Moment], writes: Sequence[Sequence[bytes]], outcome: Outcome, piece_ns: int = 0
) -> Script:
    """Return the script of the moments, early ones first, with the writes of each."""
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


MOST_CUTS = 3


def pieces_of(head: bytes, payloads: Sequence[bytes], tail: bytes, split: Split, draw: Random) -> list[bytes]:
    """Return the writes for `head`, the payloads in chunked transfer, and `tail`."""
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
    """Return the writes for a reply with a stated length."""
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
    """Return the place inside the first multi-byte character."""
    return next(([at] for at, byte in enumerate(data) if byte & 0xC0 == 0x80), [])


MOST_STEPS = 1_000_000
"""Limit on the total steps of cached scripts."""


class Answers:
    """Makes scripts, and caches them by what the request asks for."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._events = wire.SseEvents(behaviour)
        self._made: dict[tuple[AnswerParameters, Fault | None], Script] = {}
        self._steps = 0

    def script(self, ask: AnswerParameters, fault: Fault | None, number: int) -> Script:
        """Return the script of request `number`; only the places of cuts depend on the number."""
        if self._behaviour.split != "none":
            return self._make(ask, fault, Random(f"{self._behaviour.service_seed}/cuts/{number}"))
        script = self._made.get((ask, fault))
        if script is None:
            script = self._make(ask, fault, Random(0))
            if self._steps > MOST_STEPS:
                self._made.clear()
                self._steps = 0
            self._made[ask, fault] = script
            self._steps += len(script.steps)
        return script

    def _make(self, ask: AnswerParameters, fault: Fault | None, draw: Random) -> Script:
        if fault == "silent":
            return laid_out([], [], "silent")
        if fault == "error":
            data = wire.refusal(503, "fault requested by --error-every")
            return laid_out([Moment(at_ns=0)], [[data]], "error")
        if ask.endpoint == "plain":
            body = b"" if fault == "empty" else wire.PLAIN_BODY
            moment = Moment(at_ns=0, chunks=1 if body else 0, answers=True)
            return self._sized(wire.reply(200, body, "text/plain"), moment, fault, draw)
        behaviour = self._behaviour
        counts = [] if fault == "empty" else behaviour.token_counts(ask.max_tokens)
        limit = sum(counts) if behaviour.chunks is None else ask.max_tokens
        finish = "length" if counts and sum(counts) == limit else "stop"
        reasoning = behaviour.reasoning_chunks if ask.endpoint == "chat" else 0
        if ask.stream:
            return self._stream(ask, counts, reasoning, finish, fault, draw)
        moment = Moment(
            at_ns=max(len(counts) - 1, 0) * behaviour.gap_ns,
            chunks=1 if counts else 0,
            tokens=sum(counts) * ask.choices,
            answers=bool(counts[reasoning:]),
        )
        data = wire.whole(ask, counts, finish, behaviour)
        return self._sized(data, moment, fault, draw)

    def _sized(self, data: bytes, moment: Moment, fault: Fault | None, draw: Random) -> Script:
        """Return the script of a reply that is not streamed."""
        if fault == "reset":
            half = Moment(at_ns=moment.at_ns)
            return laid_out([half, half], [[data[: len(data) // 2]], [b""]], "reset")
        writes = sized_pieces(data, self._behaviour.split, draw)
        return laid_out([moment], [writes], fault or "good", self._behaviour.piece_ns)

    def _stream(
        self,
        ask: AnswerParameters,
        counts: Sequence[int],
        reasoning: int,
        finish: str,
        fault: Fault | None,
        draw: Random,
    ) -> Script:
        behaviour = self._behaviour
        content = self._content(ask, counts, reasoning, finish)
        if fault == "reset":
            half = len(counts) // 2
            moments = [*joined(content[:half], behaviour.events_per_write), Moment(at_ns=content[half].at_ns)]
        else:
            tail = Moment(
                at_ns=content[-1].at_ns + behaviour.tail_ns,
                payloads=self._tail(ask, sum(counts) * ask.choices, sum(counts[:reasoning]) * ask.choices),
                forward=True,
            )
            moments = [*joined(content, behaviour.events_per_write), tail]
        roles: list[bytes] = []
        if behaviour.role_chunk:
            roles = [self._events.role(ask.endpoint == "chat", choice) for choice in range(ask.choices)]
        if behaviour.early_head or roles:
            moments.insert(0, Moment(at_ns=0, payloads=roles, early=True, forward=True))
        moments = _fewest(moments, behaviour) if behaviour.split == "none" else apart(moments)
        writes: list[list[bytes]] = []
        for at, moment in enumerate(moments):
            head = b"" if at else wire.STREAM_HEAD
            end = b"" if at < len(moments) - 1 else wire.LAST_CHUNK
            broken = bool(end) and fault == "reset"
            writes.append([b""] if broken else pieces_of(head, moment.payloads, end, behaviour.split, draw))
        return laid_out(moments, writes, fault or "good", behaviour.piece_ns)

    def _content(self, ask: AnswerParameters, counts: Sequence[int], reasoning: int, finish: str) -> list[Moment]:
        """Return a moment for each chunk with tokens; without tokens, one with the finish reason."""
        is_chat = ask.endpoint == "chat"
        if not counts:
            payloads = [self._events.content(is_chat, choice, 0, False, finish) for choice in range(ask.choices)]
            return [Moment(at_ns=0, payloads=payloads)]
        moments = []
        so_far = 0
        for at, tokens in enumerate(counts):
            so_far += tokens * ask.choices
            end = finish if at == len(counts) - 1 else None
            usage = wire.usage_of(ask, so_far, 0, self._behaviour) if self._usage(ask) == "each" else None
            make = self._events.content if usage is None else partial(self._events.chunk, usage=usage)
            payloads = [make(is_chat, choice, tokens, at < reasoning, end) for choice in range(ask.choices)]
            moments.append(
                Moment(
                    at_ns=at * self._behaviour.gap_ns,
                    payloads=payloads,
                    chunks=ask.choices,
                    tokens=tokens * ask.choices,
                    answers=at >= reasoning,
                )
            )
        return moments

    def _tail(self, ask: AnswerParameters, tokens: int, reasoning_tokens: int) -> list[bytes]:
        events = self._events
        counted = [] if self._usage(ask) == "none" else [events.usage(ask, tokens, reasoning_tokens)]
        return [*counted, events.done]

    def _usage(self, ask: AnswerParameters) -> str:
        mode = self._behaviour.usage
        if mode == "never":
            return "none"
        return "end" if mode == "always" and ask.usage == "none" else ask.usage


def _fewest(moments: Sequence[Moment], behaviour: Behaviour) -> list[Moment]:
    """Merge moments that are written at the same time anyway: a tail without delay, and early events before a token
    that is due at once."""
    rest, last = list(moments[:-1]), moments[-1]
    if rest and last.payloads and not behaviour.tail_ns:
        rest[-1] = replace(rest[-1], payloads=(*rest[-1].payloads, *last.payloads))
    else:
        rest.append(last)
    early, *later = rest
    if early.early and not behaviour.ttft_ns and later[0].payloads:
        later[0] = replace(later[0], payloads=(*early.payloads, *later[0].payloads))
        return later
    return rest
