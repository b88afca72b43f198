"""An LLM replica fitted to trials: the costs of a step, what passes outside of it, and how sure both are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from seamark_simulate.fit.replica_trial import ReplicaTrial, replayed_figures
from seamark_simulate.model.fitted_model import InputRange, ReplicaModel, ReplicaParameters, StepCost
from seamark_simulate.simulation.llm.replica import LlmReplica
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

    In the time from the first chunk of a reply to its last, the replica works through exactly as many steps as
    further tokens come, and every token of any other reply that comes then is of one of those steps. So the time of a
    reply is the sum of the costs of its steps, whatever reads say about single steps; lost, late and empty chunks
    shift little.
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


DRAWS = 60


@dataclass(frozen=True, kw_only=True)
class ReplicaLimits:
    """What is known of a replica before any trial: by the names of vLLM. `kv_counted`: the server itself counted its
    blocks."""

    kv_blocks: int
    kv_counted: bool = False
    block_tokens: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192

    def replica(self, cost: StepCost) -> LlmReplica:
        """Return a replica with these limits."""
        return LlmReplica(
            cost=cost,
            kv_blocks=self.kv_blocks,
            block_tokens=self.block_tokens,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )


def fit_replica(
    trials: Sequence[ReplicaTrial], limits: ReplicaLimits, *, seed: int = 0, draws: int = DRAWS
) -> ReplicaModel:
    """Fit the costs of a step by non-negative least squares, then against replays of the trials.

    The model has no name, score and server yet. The trial is the unit: draws resample trials. Raises ValueError for
    fewer than two trials, without a reply of two tokens, and for a trial whose tokens have no times of their own.
    """
    if len(trials) < 2:
        raise ValueError("a fit needs two trials or more: the trial is the unit of its uncertainty")
    if whole := next((trial.id for trial in trials if trial.figures.get("tpot_mean_s", 1.0) <= 0), None):
        raise ValueError(f"{whole}: its replies came in one piece, so their tokens have no times")
    rows = [step_sums(trial) for trial in trials]
    if not any((table[:, OVERHEAD] == 0).any() for table in rows):
        raise ValueError("no reply has two tokens or more, so there is no step to fit")
    # the upper triangle (QR) of the rows of a trial stands for all of them in least squares
    sums = [np.asarray(np.linalg.qr(table, mode="r")) for table in rows]
    rough = _solved(sums)
    ratios = np.array([_ratio(trial, limits, rough) for trial in trials])
    speed = float(np.exp(np.median(ratios)))
    best = rough.slower(speed)
    random = np.random.default_rng(seed)
    widen = (len(trials) / (len(trials) - 1)) ** 0.5
    drawn = []
    for _ in range(draws):
        chosen = random.integers(len(trials), size=len(trials))
        by = float(np.exp(np.median(ratios[chosen])))
        drawn.append(_widened(best, _solved([sums[at] for at in chosen]).slower(by), widen))
    residuals = ratios - np.log(speed)
    return ReplicaModel(
        name="",
        service="",
        kv_blocks=limits.kv_blocks,
        block_tokens=limits.block_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        parameters=best,
        between=float(np.sqrt((residuals**2).sum() / (len(trials) - 1))),
        speed=speed,
        ranges=ranges_of(trials),
        requests=sum(len(trial.due_s) for trial in trials),
        sources=tuple(trial.source for trial in trials),
        draws=tuple(drawn),
    )


def ranges_of(trials: Sequence[ReplicaTrial]) -> dict[str, InputRange]:
    """Return the range of each input over some trials; nothing for one that none has."""
    values = {
        "rate_rps": [trial.rate_rps for trial in trials if trial.concurrency is None],
        "concurrency": [float(trial.concurrency) for trial in trials if trial.concurrency is not None],
        "prompt_tokens": [float(trial.prompt_tokens.mean()) for trial in trials],
        "reply_tokens": [float(trial.reply_tokens.mean()) for trial in trials],
    }
    return {name: InputRange(low=min(column), high=max(column)) for name, column in values.items() if column}


def _solved(sums: Sequence[NDArray[np.float64]]) -> ReplicaParameters:
    rows = np.concatenate(sums)
    values, known = rows[:, :-1], rows[:, -1]
    scale = np.sqrt((values**2).sum(axis=0))
    scale[scale == 0] = 1.0
    costs = (nnls(values / scale, known)[0] / scale).tolist()
    return ReplicaParameters(**dict(zip(COLUMNS, costs, strict=True)))


def _ratio(trial: ReplicaTrial, limits: ReplicaLimits, draw: ReplicaParameters) -> float:
    """Return the logarithm of the measured time of a further token over that of the replay; of whole replies where
    all have one token."""
    said = replayed_figures(limits.replica(draw), trial, draw.overhead_s)
    name = "tpot_mean_s" if "tpot_mean_s" in said and "tpot_mean_s" in trial.figures else "mean_s"
    return float(np.log(trial.figures[name] / said[name]))


def _widened(best: ReplicaParameters, drawn: ReplicaParameters, by: float) -> ReplicaParameters:
    """Move a draw away from the estimate as far as so few trials ask for."""
    moved = {name: value + by * (getattr(drawn, name) - value) for name, value in vars(best).items()}
    return ReplicaParameters(**{name: max(0.0, value) for name, value in moved.items()})
