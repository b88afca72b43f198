"""The thread that computes requests, one at a time in the order in which they came, what it hands back, and its
counters in Prometheus's text form."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, Lock

from seamark_evaluate.server.errors import GPU_ERROR, CancelledRequestError, RequestError, reply_to
from seamark_evaluate.server.generate import Answer, Generation, Piece
from seamark_evaluate.server.key_value_cache import ContextCache
from seamark_evaluate.server.model import LoadedModel
from seamark_evaluate.server.prefill import Chunks
from seamark_evaluate.server.prompt import read_prompt
from seamark_evaluate.server.request import Completion

NAMES = {
    "prompt_tokens": ("counter", "Tokens of prompts, contexts included."),
    "cached_prompt_tokens": ("counter", "Tokens of prompts that were not computed again."),
    "generation_tokens": ("counter", "Tokens of answers."),
    "question_keys_kept": ("counter", "Keys that questions read, by layer, head and query."),
    "question_keys_allowed": ("counter", "Keys that causality allows them. Kept over allowed is the density."),
    "answer_keys_kept": ("counter", "Keys that tokens of answers read."),
    "answer_keys_allowed": ("counter", "Keys that causality allows them."),
    "kv_read_bytes": ("counter", "Bytes of keys and values that questions and answers read."),
    "output_errors": (
        "counter",
        "Sum of relative errors of attention's output, a mean of each request that was sampled.",
    ),
    "output_errors_sampled": ("counter", "Requests of which the output error was sampled."),
    "contexts_reused": ("counter", "Requests whose whole context was there already."),
    "prefill_halvings": ("counter", "Times that a chunk of a prompt was halved for lack of memory."),
    "request_seconds": ("counter", "Time in which requests were computed."),
    "requests_running": ("gauge", "Requests that are computed now: one at most."),
    "requests_waiting": ("gauge", "Requests that wait for their turn."),
}


@dataclass(kw_only=True)
class Counters:
    """Values of NAMES, and the number of requests by outcome: `ok`, `cancelled`, or the category of a failure.

    The event loop and the computing thread both add to them.
    """

    values: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    outcomes: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def add(self, **amounts: float) -> None:
        """Add to values by name."""
        with self.lock:
            for name, amount in amounts.items():
                self.values[name] += amount

    def end(self, outcome: str) -> None:
        """Count a request that is over."""
        with self.lock:
            self.outcomes[outcome] += 1

    def page(self) -> str:
        """Return the page (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
        with self.lock:
            values, outcomes = dict(self.values), dict(self.outcomes)
        lines = ["# HELP seamark_requests_total Requests by outcome.", "# TYPE seamark_requests_total counter"]
        lines += [f'seamark_requests_total{{outcome="{name}"}} {count}' for name, count in outcomes.items()]
        for name, (kind, meaning) in NAMES.items():
            full = f"seamark_{name}_total" if kind == "counter" else f"seamark_{name}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {values[name]:.17g}"]
        return "\n".join(lines) + "\n"


Result = Piece | Answer | RequestError
"""Pieces come first; an Answer or an error is the last result of a request."""


class Ticket:
    """A request in the queue. `results` gives what comes of it; `cancel` ends it at its next forward pass."""

    def __init__(self, completion: Completion) -> None:
        self.completion = completion
        self.results: asyncio.Queue[Result] = asyncio.Queue()
        self._cancelled = Event()

    def cancel(self) -> None:
        """Stop the computation: the client has gone, or the server ends."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        """Return whether the computation is to stop."""
        return self._cancelled.is_set()


class Engine:
    """Computes tickets in one thread. `failure` is the category of an error after which the device cannot go on."""

    def __init__(self, model: LoadedModel, *, prefill_chunk: int) -> None:
        self.model = model
        self.counters = Counters()
        self.failure: str | None = None
        self._contexts, self._chunks = ContextCache(model.layers), Chunks(tokens=prefill_chunk)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._tickets: set[Ticket] = set()

    def submit(self, completion: Completion) -> Ticket:
        """Put a request into the queue. To be called in the event loop, which gets the results."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(completion)

        def put(result: Result) -> None:
            loop.call_soon_threadsafe(ticket.results.put_nowait, result)

        self._tickets.add(ticket)
        self.counters.add(requests_waiting=1)
        self._thread.submit(self._compute, ticket, put)
        return ticket

    def close(self) -> None:
        """Cancel all tickets and wait for the thread."""
        for ticket in list(self._tickets):
            ticket.cancel()
        self._thread.shutdown(wait=True)

    def _compute(self, ticket: Ticket, put: Callable[[Result], None]) -> None:
        counters, chunks = self.counters, self._chunks
        counters.add(requests_waiting=-1, requests_running=1)
        begun_s, halvings = time.monotonic(), chunks.halvings
        outcome, result = "ok", self._result(ticket, put)
        if isinstance(result, Answer):
            self._count(result)
        elif isinstance(result, RequestError):
            outcome = result.code
        counters.add(
            requests_running=-1,
            request_seconds=time.monotonic() - begun_s,
            prefill_halvings=chunks.halvings - halvings,
        )
        counters.end(outcome)
        self._tickets.discard(ticket)
        put(result)

    def _result(self, ticket: Ticket, put: Callable[[Result], None]) -> Result:
        """Compute a ticket, and hand its pieces over; return its last result."""
        model, completion = self.model, ticket.completion
        try:
            if ticket.is_cancelled():
                raise CancelledRequestError
            if self.failure is not None:
                raise RequestError(503, self.failure, "the device failed earlier. Start the server again.")
            prompt = read_prompt(
                model.tokenizer, completion, vocabulary=model.vocabulary, max_model_len=model.max_model_len
            )
            answer = Answer(prompt=prompt)
            cache, chunks = self._contexts, self._chunks
            for piece in Generation(model, cache, chunks, completion, prompt, ticket.is_cancelled).pieces(answer):
                put(piece)
        except CancelledRequestError:
            return RequestError(499, "cancelled", "the client has gone")
        except Exception as error:
            failure = reply_to(error)
            if failure.code == GPU_ERROR:
                self.failure = failure.code
            return failure
        return answer

    def _count(self, answer: Answer) -> None:
        self.counters.add(
            prompt_tokens=answer.prompt.tokens,
            cached_prompt_tokens=answer.cached_tokens,
            generation_tokens=answer.tokens,
            contexts_reused=bool(answer.facts["context_reused"]),
            **answer.counts,
        )
