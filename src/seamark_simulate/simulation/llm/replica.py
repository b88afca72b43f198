"""Nouns of a simulated LLM replica: its limits, what a step costs, the requests, and what became of them.

A replica works in steps, as the V1 scheduler of vLLM. The *known* tokens of a request are its prompt and what it has
generated; it *holds* those whose KV it has, in blocks of `block_tokens` of its own, the last of which may be part
empty.

1. A step begins when the one before has ended, or at the next arrival if there is nothing to do. Requests that have
   arrived until then wait, first come, first served; of equal times the lower number goes first.
2. Running requests are those that were admitted and have neither ended nor been preempted, in the order of admission.
   Those with their whole prompt decode: each takes one token of `max_num_batched_tokens`. At most one, the newest,
   still has a prompt under way: it then takes the rest, or what it lacks.
3. In that order each gets the blocks that its tokens of this step need. Where too few are free, the newest running
   request is preempted, if need be the one itself, until they suffice: it loses its tokens and blocks, and waits at
   the head of the queue. What it has generated is known, and computed again as part of its prompt.
4. If none was preempted in this step, the head of the queue is admitted as long as tokens of the step are left, fewer
   than `max_num_seqs` run, and blocks are free for the tokens that it then holds: at once those cached, and at its
   first admission those received; and of the other known ones as many as are left of the step's tokens. A head that
   does not fit holds back all behind it.
5. The step takes base_s + prompt_token_s x tokens of prompts + sequence_s x requests that decode + kv_token_s x
   tokens held by all running requests after the step.
6. At its end each request that holds all its known tokens has generated one more, which is known but not held. The
   first is its first token; with the last of `reply_tokens` it is completed and its blocks are free.

vLLM differs so: it finds cached tokens itself, in whole blocks, which requests share; a preempted request may find
its own again; and the next step is prepared while one runs. Priorities, speculation, LoRA, encoders and limits of
long prompts are left out, and so is the time that a token takes to a client.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.errors import UserError
from seamark_simulate.model.fitted_model import StepCost
from seamark_simulate.simulation.schedule import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class LlmReplica:
    """A replica: the cost of its steps, blocks of KV cache and tokens in each, and the limits of a step, by the names
    of vLLM."""

    cost: StepCost
    kv_blocks: int
    block_tokens: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192


@dataclass(frozen=True, kw_only=True)
class LlmRequests:
    """Requests sorted by arrival, as columns.

    `cached_tokens` of a prompt are in the cache of every replica whenever it is admitted; None: none are.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    reply_tokens: Ints
    cached_tokens: Ints | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def part(self, at: slice) -> "LlmRequests":
        """Return some of the requests."""
        return LlmRequests(
            arrival_s=self.arrival_s[at],
            prompt_tokens=self.prompt_tokens[at],
            reply_tokens=self.reply_tokens[at],
            cached_tokens=None if self.cached_tokens is None else self.cached_tokens[at],
        )

    @property
    def cached(self) -> Ints:
        """Cached tokens of each prompt."""
        return np.zeros(len(self), np.int64) if self.cached_tokens is None else self.cached_tokens

    @property
    def held_at_end(self) -> Ints:
        """Tokens that each request holds in its last step: all but the last token of the reply."""
        return self.prompt_tokens + self.reply_tokens - 1


@dataclass(frozen=True, kw_only=True)
class LlmReplies:
    """What became of each request: its replica, when a step first had it, the end of the step with its first token
    and of that with its last, and how often it was preempted."""

    replica: Ints
    arrival_s: Floats
    scheduled_s: Floats
    first_token_s: Floats
    completed_s: Floats
    preemptions: Ints
    reply_tokens: Ints

    @property
    def ttft_s(self) -> Floats:
        """Time from arrival to the first token."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> Floats:
        """Time of each further token of a reply, NaN for a reply of one token."""
        further = np.where(self.reply_tokens > 1, self.reply_tokens - 1.0, np.nan)
        return np.asarray((self.completed_s - self.first_token_s) / further, np.float64)


def require_servable(replica: LlmReplica, requests: LlmRequests) -> None:
    """Raise UserError, with all mistakes, for limits or requests that no step could serve."""
    if mistakes := [*_replica_mistakes(replica), *_request_mistakes(replica, requests)]:
        raise UserError(*mistakes)


def _replica_mistakes(replica: LlmReplica) -> Iterator[str]:
    for name in ("kv_blocks", "block_tokens", "max_num_seqs"):
        if getattr(replica, name) < 1:
            yield f"{name}: {getattr(replica, name)} is not allowed. Give 1 or more."
    if replica.max_num_batched_tokens < replica.max_num_seqs:
        yield (
            f"max_num_batched_tokens: {replica.max_num_batched_tokens} tokens are too few for"
            f" {replica.max_num_seqs} sequences, each of which takes one in a step. Give"
            f" {replica.max_num_seqs} or more, or fewer max_num_seqs."
        )
    cost = replica.cost
    for name in ("base_s", "prompt_token_s", "sequence_s", "kv_token_s"):
        if not 0 <= getattr(cost, name) < float("inf"):
            yield f"cost.{name}: {getattr(cost, name)} is not allowed. Give seconds, 0 or more."


def _request_mistakes(replica: LlmReplica, requests: LlmRequests) -> Iterator[str]:
    columns = (requests.arrival_s, requests.prompt_tokens, requests.reply_tokens, requests.cached)
    if len({len(column) for column in columns}) > 1:
        yield "requests: the columns have unlike lengths. Give one value a request in each."
        return
    blocks = -(-requests.held_at_end // max(replica.block_tokens, 1))
    kept = f"{replica.kv_blocks} blocks of {replica.block_tokens} tokens"
    rules: tuple[tuple[NDArray[np.bool_], str], ...] = (
        (~np.isfinite(requests.arrival_s), "arrives at no finite time. Give seconds."),
        (np.diff(requests.arrival_s, prepend=-np.inf) < 0, "arrives before the one in front. Sort by arrival."),
        (requests.prompt_tokens < 1, "has a prompt without tokens. Give 1 or more."),
        (requests.reply_tokens < 1, "has a reply without tokens. Give 1 or more."),
        (
            (requests.cached < 0) | (requests.cached >= np.maximum(requests.prompt_tokens, 1)),
            "has cached_tokens outside 0 to prompt - 1: the last token of a prompt is always computed.",
        ),
        (blocks > replica.kv_blocks, f"does not fit alone into {kept}. Give more blocks or shorter requests."),
    )
    for wrong, what in rules:
        if wrong.any():
            others = int(wrong.sum()) - 1
            yield f"requests: number {int(np.argmax(wrong))} {what}{f' So do {others} others.' if others else ''}"
