"""What is answered to each request: its events, in moments, laid out as a script. No clock, no sockets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from seamark.testservers.reference import wire
from seamark.testservers.reference.behaviour import Behaviour, Fault
from seamark.testservers.reference.request import Ask
from seamark.testservers.reference.script import Moment, Script, apart, joined, laid_out
from seamark.testservers.reference.split import pieces_of, sized_pieces

MOST_STEPS = 1_000_000
"""Steps of all scripts that are kept for the next request of the same kind."""


class Answers:
    """Makes scripts, once for all requests that ask for the same."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._events = wire.Events(behaviour)
        self._made: dict[tuple[Ask, Fault | None], Script] = {}
        self._steps = 0

    def script(self, ask: Ask, fault: Fault | None, number: int) -> Script:
        """Return the script of request `number`; only where it is cut depends on the number."""
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

    def _make(self, ask: Ask, fault: Fault | None, draw: Random) -> Script:
        if fault == "silent":
            return laid_out([], [], "silent")
        if fault == "error":
            data = wire.refusal(503, "the server is told to fail this request")
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
        """Return the script of a reply that comes as a whole."""
        if fault == "reset":
            half = Moment(at_ns=moment.at_ns)
            return laid_out([half, half], [[data[: len(data) // 2]], [b""]], "reset")
        writes = sized_pieces(data, self._behaviour.split, draw)
        return laid_out([moment], [writes], fault or "good", self._behaviour.piece_ns)

    def _stream(
        self, ask: Ask, counts: Sequence[int], reasoning: int, finish: str, fault: Fault | None, draw: Random
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

    def _content(self, ask: Ask, counts: Sequence[int], reasoning: int, finish: str) -> list[Moment]:
        """Return a moment for each chunk with tokens; for none, one with the reason why it ends."""
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
            payloads = [
                self._chunk(is_chat, choice, tokens, at < reasoning, end, usage) for choice in range(ask.choices)
            ]
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

    def _chunk(
        self,
        is_chat: bool,
        choice: int,
        tokens: int,
        reasons: bool,
        finish: str | None,
        usage: Mapping[str, Any] | None,
    ) -> bytes:
        if usage is None:
            return self._events.content(is_chat, choice, tokens, reasons, finish)
        return self._events.counted(is_chat, choice, tokens, reasons, finish, usage)

    def _tail(self, ask: Ask, tokens: int, reasoning_tokens: int) -> list[bytes]:
        events = self._events
        counted = [] if self._usage(ask) == "none" else [events.usage(ask, tokens, reasoning_tokens)]
        return [*counted, events.done]

    def _usage(self, ask: Ask) -> str:
        wanted = self._behaviour.usage
        if wanted == "never":
            return "none"
        return "end" if wanted == "always" and ask.usage == "none" else ask.usage


def _fewest(moments: Sequence[Moment], behaviour: Behaviour) -> list[Moment]:
    """Return the moments without those that are written at the time of another one anyway: a tail without delay,
    what is early before a token that is due at once."""
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
