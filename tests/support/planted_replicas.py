"""Trials of an LLM replica whose costs are known, from the slow and literal replica, with the time of every token."""

import numpy as np
from literal_replica import Replica, Request

from seamark_simulate.fit.replica_fit import ReplicaLimits
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.model.fitted_model import FitSource, StepCost

COST = StepCost(base_s=0.006, prompt_token_s=4e-5, sequence_s=3e-4, kv_token_s=2e-7)
OVERHEAD_S = 0.002
LIMITS = ReplicaLimits(kv_blocks=4_000)


def planted_replica_trial(
    name,
    *,
    repeat=1,
    seed=1,
    prompt=128,
    reply=32,
    concurrency=None,
    rate_rps=None,
    until_s=20.0,
    by=1.0,
    cost=COST,
    budget=LIMITS.max_num_batched_tokens,
):
    """Return a trial of fixed lengths in a closed loop, or with Poisson arrivals; `by` slows every step down."""
    random = np.random.default_rng([seed, repeat, prompt, reply, concurrency or 0])
    costs = [by * value for value in (cost.base_s, cost.prompt_token_s, cost.sequence_s, cost.kv_token_s)]
    replica = Replica(costs, LIMITS.kv_blocks, LIMITS.block_tokens, LIMITS.max_num_seqs, budget)
    if concurrency is None:
        coming = np.cumsum(random.exponential(1 / rate_rps, int(rate_rps * until_s))).tolist()
    else:
        coming = [0.0] * concurrency
    sent_s, requests, tokens = [], [], []
    now_s = 0.0
    while True:
        if replica.step_ends_s is None and not replica.load():
            if not coming:
                break
            now_s = coming[0] + OVERHEAD_S
        while coming and coming[0] + OVERHEAD_S <= now_s:
            sent_s.append(coming.pop(0))
            requests.append(Request(len(requests), now_s, prompt, reply))
            replica.waiting.append(requests[-1])
        replica.begin(now_s)
        running = list(replica.running)
        before = [each.generated for each in running]
        now_s = replica.step_ends_s
        replica.end()
        for each, generated in zip(running, before, strict=True):
            if each.generated > generated:
                tokens.append((each.number, now_s))
            if each.completed_s == now_s and concurrency is not None and now_s < until_s:
                coming.append(now_s)
        coming.sort()
    of, at_s = zip(*tokens, strict=True)
    sent_s = np.array(sent_s)
    return ReplicaTrial(
        source=FitSource(scenario="s", trial=f"{name}--r{repeat}", trial_id="", config_hash=""),
        treatment=name,
        due_s=sent_s,
        sent_s=sent_s,
        first_s=np.array([each.first_token_s for each in requests]),
        last_s=np.array([each.completed_s for each in requests]),
        prompt_tokens=np.full(len(requests), prompt),
        reply_tokens=np.full(len(requests), reply),
        first_tokens=np.ones(len(requests), np.int64),
        token_of=np.array(of),
        token_at_s=np.array(at_s),
        concurrency=concurrency,
        warmup_s=1.0,
        until_s=until_s,
    )


def planted_replica_trials(*, spread=0.0, repeats=2, concurrencies=(1, 4, 16), prompts=(64, 512), seed=1, **changes):
    """Return closed loops at these concurrencies and lengths; `spread` is the standard deviation of the log of a
    trial's speed."""
    random = np.random.default_rng(seed)
    return [
        planted_replica_trial(
            f"c{concurrency}-p{prompt}",
            repeat=repeat,
            seed=seed,
            prompt=prompt,
            concurrency=concurrency,
            by=float(np.exp(random.normal(0.0, spread))),
            **changes,
        )
        for concurrency in concurrencies
        for prompt in prompts
        for repeat in range(1, repeats + 1)
    ]
