"""What the known-answer server is told to do: times, shape of a reply, faults, stall, queue. No sockets here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

QueueKind = Literal["none", "mm1", "md1"]
Split = Literal["none", "writes", "chunks", "utf8"]
Usage = Literal["asked", "always", "never", "negative", "huge", "zero"]
WRONG_TOKENS: Mapping[Usage, int] = {"negative": -5, "huge": 10**26, "zero": 0}
"""Tokens that a wrong usage says."""
LineEnd = Literal["lf", "crlf"]
ReasoningField = Literal["reasoning_content", "reasoning"]
Fault = Literal["silent", "reset", "error", "empty"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""A request that several `..._every` fall on suffers the first of these."""

UNASKED_TOKENS = 16
"""Length of a reply when neither the request nor the server's settings say it: the API's own default."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How requests are answered. Request numbers start at 1; `None`: never so.

    The first token is due `ttft_ns` after its request was read whole, token-bearing chunk k `gap_ns` times k later.
    With a queue, `ttft_ns` is the mean time of service and the first token is due when the request leaves the one
    server; what follows occupies nobody. A stall holds every write that falls due from `stall_from_s` after the first
    request until `stall_for_s` later, and releases them together.

    A reply has as many tokens as `max_tokens` asks for (16 unasked), laid out as `first_tokens` (None: as the others)
    and then `chunk_tokens` a chunk. With `chunks` it has so many chunks and ends by itself, unless `max_tokens` ends
    it before. The first `reasoning_chunks` of a chat are reasoning. A `usage` that is asked for may
    be wrong: say a negative or a huge number of tokens, or none.

    `role_chunk` and `early_head` send a chunk without a token, and the head of the reply, as soon as the request is
    read. The usage chunk and the end mark follow the last token after `tail_ns`.

    `split`: `writes` cuts the bytes of an event anywhere, `chunks` ends an HTTP chunk inside it, `utf8` does so
    inside a character; the pieces leave `piece_ns` apart, the last one when the event is due (later, where the times
    of a reply leave less than eight pieces' room). `events_per_write` puts so many events into one write, when the
    first of them is due.
    """

    ttft_ns: int = 0
    gap_ns: int = 0
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
    service_seed: int = 0

    def fault(self, number: int) -> Fault | None:
        """Return what goes wrong with request `number`."""
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
