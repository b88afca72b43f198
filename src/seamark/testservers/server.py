"""State shared by all connections of the reference server: behaviour, deadlines, counters. No sockets."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from seamark.testservers import wire
from seamark.testservers.answers import Answers, Script
from seamark.testservers.behaviour import Behaviour, Fault, Queue
from seamark.testservers.deadlines import QUANTILES, Deadlines, Lateness
from seamark.testservers.journal import OUTCOMES, Journal, Outcome
from seamark.testservers.prefix_cache import PrefixCache
from seamark.testservers.request import AnswerParameters, Endpoint, Head, endpoint_of

MOST_SEEN_BYTES = 1 << 25
LONGEST_SEEN_BYTES = 1 << 14
"""Requests up to this length are parsed once: load generators send the same bytes repeatedly."""
ENTRY_BYTES = 512
"""Memory of a cached request beside its bytes."""
NEVER_NS = 1 << 62


def exposition(*metrics: tuple[str, str, str, int | Mapping[str, object]]) -> bytes:
    """Return the Prometheus text format of metrics: name, kind, help, and its value or its values by the rest of
    their names."""
    lines = []
    for name, kind, what, value in metrics:
        values = value if isinstance(value, Mapping) else {"": value}
        lines += [
            f"# HELP {name} {what}\n# TYPE {name} {kind}",
            *(f"{name}{rest} {of}" for rest, of in values.items()),
        ]
    return "\n".join([*lines, ""]).encode()


class Ended(Protocol):
    """A connection at the end of the server."""

    def cut(self) -> None:
        """Record the request in progress."""


class ReferenceServer:
    """Numbers requests and determines their scripts and deadlines."""

    def __init__(self, behaviour: Behaviour, loop: asyncio.AbstractEventLoop, truth: Path | None) -> None:
        """Raises OSError if the truth file cannot be written."""
        self.behaviour = behaviour
        self.journal = None if truth is None else Journal(truth)
        self.deadlines = Deadlines(loop)
        self.lateness = Lateness()
        self.seen: dict[bytes, tuple[Head, AnswerParameters]] = {}
        self.requests = 0
        self.running = 0
        self.connections: dict[Ended, None] = {}
        self.blocked = 0
        self._seen_bytes = 0
        self._answers = Answers(behaviour)
        self._has_faults = behaviour.has_faults
        self.cache = PrefixCache(behaviour.cache_tokens) if behaviour.cache_tokens else None
        self._queue = None
        if behaviour.queue != "none":
            self._queue = Queue(behaviour.queue, behaviour.ttft_ns, behaviour.service_seed, behaviour.queue_servers)
        self._stall_from_ns = self._stall_until_ns = NEVER_NS if behaviour.stall_for_s else 0
        self._ended = dict.fromkeys(OUTCOMES, 0)
        self._chunks = 0
        self._tokens = 0
        self._prompt_tokens = 0

    def remember(self, data: bytes, head: Head, ask: AnswerParameters) -> None:
        """Cache a parsed request."""
        if len(data) > LONGEST_SEEN_BYTES:
            return
        if self._seen_bytes > MOST_SEEN_BYTES:
            self.seen.clear()
            self._seen_bytes = 0
        self.seen[data] = head, ask
        self._seen_bytes += len(data) + ENTRY_BYTES

    def begin(self, ask: AnswerParameters, read_ns: int) -> tuple[int, Script, int]:
        """Return number, script and first token's deadline of a request that was read."""
        self.requests += 1
        self.running += 1
        self._prompt_tokens += ask.prompt_tokens
        number, behaviour = self.requests, self.behaviour
        if number == 1 and behaviour.stall_for_s:
            self._stall_from_ns = read_ns + round(behaviour.stall_from_s * 1e9)
            self._stall_until_ns = self._stall_from_ns + round(behaviour.stall_for_s * 1e9)
        script = self.script(ask, behaviour.fault(number) if self._has_faults else None, number)
        due_ns = read_ns + behaviour.ttft_ns if self._queue is None else self._queue.leaves_ns(read_ns)
        if behaviour.prefill_ns or self.cache is not None:
            due_ns += behaviour.prefill_ns * (ask.prompt_tokens - self._cached(ask))
        return number, script, due_ns

    def _cached(self, ask: AnswerParameters) -> int:
        """Return how many prompt tokens of a request the prefix cache has."""
        if self.cache is None:
            return 0
        return sum(self.cache.take(blocks, tokens) for blocks, tokens in ask.blocks)

    def script(self, ask: AnswerParameters, fault: Fault | None, number: int) -> Script:
        """Return the script of request `number`."""
        return self._answers.script(ask, fault, number)

    def endpoint_of(self, method: str, path: str) -> Endpoint | None:
        """Return the endpoint at a path, None if there is none."""
        return endpoint_of(method, path)

    def not_before_ns(self, due_ns: int) -> int:
        """Return the time of a write that is due at `due_ns`: the end of the stall if it falls into one."""
        if self._stall_from_ns <= due_ns < self._stall_until_ns:
            return self._stall_until_ns
        return due_ns

    def end(self, outcome: Outcome, chunks: int, tokens: int) -> None:
        """Count a finished request."""
        self.running -= 1
        self._ended[outcome] += 1
        self._chunks += chunks
        self._tokens += tokens

    def page(self, endpoint: Endpoint) -> bytes:
        """Return the reply to /health, /v1/models, /metrics or /reset_prefix_cache, as vLLM's; the last one empties
        the cache."""
        if endpoint == "reset":
            if self.cache is not None:
                self.cache.clear()
            return wire.reply(200, wire.compact({"success": True}), wire.JSON)
        if endpoint == "metrics":
            return self.metrics()
        return wire.models() if endpoint == "models" else wire.reply(200, b"", "text/plain")

    def metrics(self) -> bytes:
        """Return the reply to /metrics in Prometheus text format."""
        late = self.lateness
        quantiles_ns = {share: late.quantile_ns(share) for share in (*QUANTILES, 1)}
        late_s = {f'{{quantile="{share}"}}': "NaN" if ns is None else ns / 1e9 for share, ns in quantiles_ns.items()}
        late_s |= {"_sum": late.total_ns / 1e9, "_count": late.count}
        over = {f'{{outcome="{name}"}}': count for name, count in self._ended.items()}
        blocked = "Writes that the client was too slow to take at once."
        looked, there = (self.cache.queries, self.cache.hits) if self.cache else (0, 0)
        text = exposition(
            ("known_requests_total", "counter", "Requests that are over.", over),
            ("known_chunks_total", "counter", "Chunks with tokens written, of requests that are over.", self._chunks),
            ("known_tokens_total", "counter", "Tokens written, of requests that are over.", self._tokens),
            ("known_prompt_tokens_total", "counter", "Tokens of the prompts read.", self._prompt_tokens),
            ("known_prefix_cache_queries_total", "counter", "Prompt tokens that the cache was asked for.", looked),
            ("known_prefix_cache_hits_total", "counter", "Prompt tokens that it had.", there),
            ("known_writes_blocked_total", "counter", blocked, self.blocked),
            ("known_requests_running", "gauge", "Requests read and not over.", self.running),
            ("known_connections", "gauge", "Open connections.", len(self.connections)),
            ("known_lateness_seconds", "summary", "From the deadline of a write to the write.", late_s),
        )
        return wire.reply(200, text, "text/plain; version=0.0.4")

    def summary_line(self) -> str:
        """Return a line with the counters and lateness."""
        late = self.lateness
        ends = ", ".join(f"{count} {name}" for name, count in self._ended.items() if count)
        done = f"{self.requests} requests ({ends or 'none over'}), {self._chunks} chunks, {self._tokens} tokens"
        if not late.count:
            return f"{done}; nothing written"
        figures = [f"p{share * 100:g} {(late.quantile_ns(share) or 0) / 1e6:.3f}" for share in QUANTILES]
        return f"{done}; lateness in ms of {late.count} writes: {', '.join(figures)}, max {late.max_ns / 1e6:.3f}"

    def close(self) -> None:
        """Cancel all deadlines and write the rest of the truth file."""
        self.deadlines.close()
        for connection in list(self.connections):
            connection.cut()
        if self.journal is not None:
            self.journal.close()
