"""Options of the reference server: times, form of a reply, faults, stall, queue. No sockets."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapreplace
from random import Random
from typing import Literal, get_args

QueueKind = Literal["none", "mm1", "md1"]
Split = Literal["none", "writes", "chunks", "utf8"]
Usage = Literal["asked", "always", "never", "negative", "huge", "zero"]
WRONG_TOKENS: Mapping[Usage, int] = {"negative": -5, "huge": 10**26, "zero": 0}
"""Token counts of a wrong usage."""
LineEnd = Literal["lf", "crlf"]
ReasoningField = Literal["reasoning_content", "reasoning"]
Fault = Literal["silent", "reset", "error", "empty"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""A request that matches several `..._every` gets the first of these faults."""

UNASKED_TOKENS = 16
"""Length of a reply if neither the request nor the options state one: the API's default."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How requests are answered. Request numbers start at 1; `None`: never.

    The first token is due `ttft_ns` after the complete request was read, chunk k with tokens `gap_ns` times k later.
    With a queue, `ttft_ns` is the mean service time and the first token is due when the request leaves its server, of
    `queue_servers`; what follows occupies nothing. Each prompt token that the prefix cache, with room for
    `cache_tokens`, does not have delays the first token by `prefill_ns` more, and occupies nothing either. A stall
    holds every write that falls due from `stall_from_s` after the first request until `stall_for_s` later, and
    releases them together.

    A reply has `max_tokens` tokens (16 by default), `first_tokens` (None: as the others) in its first chunk and then
    `chunk_tokens` per chunk. With `chunks` it has that many chunks and stops by itself, unless `max_tokens` ends it
    before. The first `reasoning_chunks` of a chat are reasoning. A requested `usage` may be wrong: a negative or huge
    number of tokens, or zero.

    `role_chunk` and `early_head` send a chunk without tokens, and the head of the reply, as soon as the request is
    read. The usage chunk and the end mark follow `tail_ns` after the last token.

    `split`: `writes` cuts the bytes of an event anywhere, `chunks` ends an HTTP chunk inside it, `utf8` does so
    inside a character; pieces are written `piece_ns` apart, the last one when the event is due (later, if the reply
    leaves room for fewer than eight pieces). `events_per_write` joins that many events into one write, when the first
    is due.
    """

    ttft_ns: int = 0
    gap_ns: int = 0
    prefill_ns: int = 0
    cache_tokens: int = 0
    chunks: int | None = None
    chunk_tokens: int = 1
    first_tokens: int | None = None
    role_chunk: bool = True
    early_head: bool = True
    usage: Usage = "asked"
    reasoning_chunks: int = 0
    reasoning_field: ReasoningField = "reasoning_content"
    tail_ns: int = 0
    split: Split = "none"
    piece_ns: int = 500_000
    events_per_write: int = 1
    line_end: LineEnd = "lf"
    space: bool = True
    silent_every: int | None = None
    reset_every: int | None = None
    error_every: int | None = None
    empty_every: int | None = None
    stall_from_s: float = 0.0
    stall_for_s: float = 0.0
    queue: QueueKind = "none"
    queue_servers: int = 1
    service_seed: int = 0

    def fault(self, number: int) -> Fault | None:
        """Return the fault of request `number`."""
        for name in FAULTS:
            every: int | None = getattr(self, f"{name}_every")
            if every is not None and number % every == 0:
                return name
        return None

    @property
    def has_faults(self) -> bool:
        return any(getattr(self, f"{name}_every") is not None for name in FAULTS)

    def token_counts(self, max_tokens: int | None) -> list[int]:
        """Return the tokens of each chunk of a reply."""
        first = self.first_tokens or self.chunk_tokens
        if self.chunks is None:
            left = max_tokens or UNASKED_TOKENS
        else:
            left = first + (self.chunks - 1) * self.chunk_tokens
            left = min(left, max_tokens or left)
        counts: list[int] = []
        while left > 0:
            counts.append(min(left, self.chunk_tokens if counts else first))
            left -= counts[-1]
        return counts


class Queue:
    """M/M/c or M/D/c for exponential inter-arrival gaps: `servers` of them and one queue, first come first served,
    exponential or fixed service times. No clock.

    In service times, at utilisation r of one server: the mean sojourn is 1 / (1 - r) for M/M/1, whose sojourn is
    exponential (at r = 0.5: mean 2, p50 1.386, p99 9.21), and 1 + r / (2 (1 - r)) for M/D/1 (Pollaczek-Khinchine; at
    0.5: 1.5). The mean wait of M/M/c follows from Erlang's formula C.
    """

    def __init__(self, kind: QueueKind, mean_ns: int, seed: int, servers: int = 1) -> None:
        if kind == "none" or mean_ns <= 0 or servers < 1:
            raise ValueError("a queue needs a kind, a mean time of service and a server")
        self._mean_ns = mean_ns
        self._draw = Random(f"{seed}/service").expovariate if kind == "mm1" else None
        self._free_ns = [0] * servers  # a heap: when each server has served what it took

    def leaves_ns(self, read_ns: int) -> int:
        """Return the departure time of a request that arrived at `read_ns`; call it in order of arrival."""
        service_ns = self._mean_ns if self._draw is None else round(self._draw(1.0) * self._mean_ns)
        leaves_ns = max(self._free_ns[0], read_ns) + service_ns
        heapreplace(self._free_ns, leaves_ns)
        return leaves_ns
