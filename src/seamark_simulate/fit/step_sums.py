"""What steps of a replica were worked through in known times: rows of a linear model of their cost.

In the time from the first chunk of a reply to its last, the replica works through exactly as many steps as further
tokens come, and every token of any other reply that comes then is of one of those steps. So the time of a reply is
the sum of the costs of its steps, whatever reads say about single steps; lost, late and empty chunks shift little.
"""

import numpy as np
from numpy.typing import NDArray

from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.simulation.schedule import Floats

COLUMNS = ("base_s", "prompt_token_s", "sequence_s", "kv_token_s", "overhead_s")
"""Columns of a row: steps, tokens of prompts, tokens of decoding requests, tokens held, and 1 where a request waited
for nothing but its own prompt."""
OVERHEAD = COLUMNS.index("overhead_s")
Rows = NDArray[np.float64]


def step_sums(trial: ReplicaTrial) -> Rows:
    """Return the rows of a trial, shape (rows, columns and time in s), each over the root of its time.

    One row for each reply of two tokens or more, and one for each request that was sent while no other was there.
    The variance of a time is taken to grow with it.
    """
    rows = np.concatenate([_replies(trial), _alone(trial)])
    rows = rows[rows[:, -1] > 0]
    return np.asarray(rows / np.sqrt(rows[:, -1:]))


def _replies(trial: ReplicaTrial) -> Rows:
    first_s, last_s, further = trial.first_s, trial.last_s, trial.reply_tokens - trial.first_tokens
    chosen = (further > 0) & (first_s >= trial.warmup_s) & (last_s < trial.until_s)
    at_s, weights, held = _further_tokens(trial)
    order = np.argsort(first_s, kind="stable")
    prompts = np.concatenate([[0.0], np.cumsum(trial.prompt_tokens[order])])
    begun = first_s[order]

    def between(times_s: Floats, sums: Floats) -> Floats:
        low, high = (np.searchsorted(times_s, bound_s[chosen], side="right") for bound_s in (first_s, last_s))
        return np.asarray(sums[high] - sums[low])

    decoded, kept = (np.concatenate([[0.0], np.cumsum(column)]) for column in (weights, held))
    prompt_tokens = between(begun, prompts)
    columns = (
        further[chosen].astype(float),
        prompt_tokens,
        between(at_s, decoded),
        between(at_s, kept) + prompt_tokens,
        np.zeros(int(chosen.sum())),
        (last_s - first_s)[chosen],
    )
    return np.stack(columns, axis=1)


def _further_tokens(trial: ReplicaTrial) -> tuple[Floats, Floats, Floats]:
    """Return when reads came, in the order of time; for how many steps of its request each stands, so that those of a
    reply sum to its tokens but one; and the tokens that the request then held, times those."""
    count = len(trial.first_s)
    own = trial.first_tokens - 1  # steps of further tokens that the first chunk ends
    further = trial.reply_tokens - trial.first_tokens
    later = trial.token_at_s > trial.first_s[trial.token_of]
    of, at_s = trial.token_of[later], trial.token_at_s[later]
    reads = np.bincount(of, minlength=count)
    weights = further / np.maximum(reads, 1)
    by_request = np.lexsort((at_s, of))
    starts = np.cumsum(reads) - reads
    number = np.empty(len(of))
    number[by_request] = np.arange(len(of)) - np.repeat(starts, reads) + 1
    held = trial.prompt_tokens[of] + own[of] + number * weights[of]
    at_s = np.concatenate([at_s, trial.first_s])
    steps = np.concatenate([weights[of], own])
    kept = np.concatenate([held * weights[of], _held_in(trial)])
    order = np.argsort(at_s, kind="stable")
    return at_s[order], steps[order], kept[order]


def _held_in(trial: ReplicaTrial) -> Floats:
    """Return the tokens held over the steps of further tokens that a first chunk ends, summed, shape (requests,)."""
    own = trial.first_tokens - 1
    return np.asarray(own * trial.prompt_tokens + own * (own + 1) / 2)


def _alone(trial: ReplicaTrial) -> Rows:
    """Return a row for each request that no other overlapped from its send to its first chunk."""
    sent_s, first_s, last_s = trial.sent_s, trial.first_s, trial.last_s
    ended_s = np.concatenate([[-np.inf], np.maximum.accumulate(last_s)[:-1]])
    next_s = np.concatenate([sent_s[1:], [np.inf]])
    chosen = (ended_s <= sent_s) & (next_s >= first_s) & (sent_s >= trial.warmup_s) & (first_s < trial.until_s)
    prompts = trial.prompt_tokens[chosen].astype(float)
    steps = trial.first_tokens[chosen].astype(float)
    held = prompts + _held_in(trial)[chosen]
    return np.stack([steps, prompts, steps - 1, held, np.ones(len(prompts)), (first_s - sent_s)[chosen]], axis=1)
