"""LLM replicas: the closed form against a literal loop over every token of every step, and figures by hand."""

import random

import literal_replica
import numpy as np
import pytest
from scipy.stats import t as student

from seamark.errors import UserError
from seamark_simulate.simulation.llm.fleet import Fleet, SplitFleet, serve_requests, serve_split
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmRequests, StepCost
from seamark_simulate.simulation.station import blind_route, two_of

CASES = 1_000
QUICK = 120
ROUTERS = ("one-queue", "random", "round-robin", "power-of-two", "least-loaded")


def replica_of(costs, blocks=10_000, size=16, most=256, budget=8_192):
    """Return a replica; `costs` are c0, cp, cd and ck."""
    names = ("base_s", "prompt_token_s", "sequence_s", "kv_token_s")
    return LlmReplica(
        cost=StepCost(**dict(zip(names, costs, strict=True))),
        kv_blocks=blocks,
        block_tokens=size,
        max_num_seqs=most,
        max_num_batched_tokens=budget,
    )


def requests_of(arrivals, prompts, replies, cached=None):
    return LlmRequests(
        arrival_s=np.array(arrivals, np.float64),
        prompt_tokens=np.array(prompts, np.int64),
        reply_tokens=np.array(replies, np.int64),
        cached_tokens=None if cached is None else np.array(cached, np.int64),
    )


def random_case(seed):
    """Return the limits of a replica and rows of requests: few or many tokens, blocks that hold barely one request or
    all, arrivals at once, close together or far apart.

    In two of five cases all times are sums of powers of two, so arrivals fall exactly on ends of steps.
    """
    rng = random.Random(seed)
    exact = rng.random() < 0.4
    size, most, count = rng.choice([1, 2, 4, 16]), rng.randint(1, 12), rng.randint(1, 40)
    budget = most + rng.choice([0, 1, 5, 40, 400])
    prompts = [rng.randint(1, rng.choice([5, 60, 300])) for _ in range(count)]
    replies = [rng.randint(1, rng.choice([1, 3, 50, 120])) for _ in range(count)]
    alone = max(-(-(prompt + reply - 1) // size) for prompt, reply in zip(prompts, replies, strict=True))
    cached = [rng.choice([0, rng.randrange(prompt)]) for prompt in prompts]
    costs = (2**-6, 2**-12, 2**-10, 2**-14)
    if not exact:
        costs = (rng.uniform(1e-3, 1e-2), 1e-4 * rng.random(), 1e-3 * rng.random(), rng.choice([0, 1e-5]))
    gap_s = rng.choice([0, 0.02, 0.3, 3])
    on_grid = exact or rng.random() < 0.3
    arrivals = sorted(
        rng.randint(0, int(64 * count * gap_s)) / 64 if on_grid else rng.uniform(0, count * gap_s)
        for _ in range(count)
    )
    limits = (costs, int(alone * rng.choice([1, 1.2, 2, 10])), size, most, budget)
    return limits, list(zip(arrivals, prompts, replies, cached, strict=True))


def literal(limits, rows, replicas=1, choose=lambda request, loads: 0):
    """Serve rows by the literal loop."""
    requests = [literal_replica.Request(number, *row) for number, row in enumerate(rows)]
    return literal_replica.run([literal_replica.Replica(*limits) for _ in range(replicas)], requests, choose)


def require_equal(replies, expected, seed):
    """Require times equal to 1e-9, and the same replicas and preemptions."""
    times = [(each.scheduled_s, each.first_token_s, each.completed_s) for each in expected]
    found = np.column_stack((replies.scheduled_s, replies.first_token_s, replies.completed_s))
    np.testing.assert_allclose(found, times, rtol=1e-9, err_msg=str(seed))
    assert replies.preemptions.tolist() == [each.preemptions for each in expected], seed
    assert replies.replica.tolist() == [each.replica for each in expected], seed


def compare(seeds):
    """Compare random cases; return how many had preemptions, prompts in chunks, and equal arrivals."""
    seen = np.zeros(3, int)
    for seed in seeds:
        limits, rows = random_case(seed)
        replies = serve_requests(
            Fleet(replica=replica_of(*limits)), requests_of(*zip(*rows, strict=True)), np.random.default_rng(0)
        )
        require_equal(replies, literal(limits, rows), seed)
        chunked = any(prompt - cached > limits[-1] for _, prompt, _, cached in rows)
        seen += (replies.preemptions.any(), chunked, len({row[0] for row in rows}) < len(rows))
    return seen


@pytest.mark.covers("C14")
def test_steps_in_closed_form_are_those_of_the_literal_loop():
    assert (compare(range(QUICK)) > QUICK / 10).all()


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_steps_in_closed_form_are_those_of_the_literal_loop_on_a_thousand_cases():
    assert (compare(range(QUICK, QUICK + CASES)) > CASES / 10).all()


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize("router", ROUTERS)
def test_routers_send_each_request_where_the_literal_loop_does(router):
    several = 0
    for seed in range(60):
        limits, rows = random_case(seed)
        replicas = 2 + seed % 3
        count, most = len(rows), limits[3]
        drawn = blind_route(router, replicas, count, np.random.default_rng(seed))
        pairs = two_of(replicas, count, np.random.default_rng(seed))

        def choose(request, loads, drawn=drawn, pairs=pairs, most=most):
            if drawn is not None:
                return drawn[request.number]
            if router == "power-of-two":
                return min(pairs[request.number], key=loads.__getitem__)
            best = loads.index(min(loads))
            return None if router == "one-queue" and loads[best] >= most else best

        fleet = Fleet(replica=replica_of(*limits), replicas=replicas, router=router)
        replies = serve_requests(fleet, requests_of(*zip(*rows, strict=True)), np.random.default_rng(seed))
        require_equal(replies, literal(limits, rows, replicas, choose), seed)
        several += len(set(replies.replica.tolist())) > 1
    assert several > 30


@pytest.mark.covers("C14")
def test_prompts_and_replies_on_replicas_of_their_own_are_two_literal_loops_in_a_row():
    preempted = 0
    for seed in range(80):
        limits, rows = random_case(seed)
        room = (limits[0], limits[1] + 10_000, *limits[2:])
        split = SplitFleet(
            prefill=Fleet(replica=replica_of(*room), replicas=2, router="round-robin"),
            decode=Fleet(replica=replica_of(*limits)),
            transfer_s=0.05,
            transfer_token_s=0.001,
        )
        replies = serve_split(split, requests_of(*zip(*rows, strict=True)), np.random.default_rng(0))
        first = literal(
            room,
            [(at_s, prompt, 1, cached) for at_s, prompt, _, cached in rows],
            2,
            lambda request, loads: request.number % 2,
        )
        moved = sorted(
            (done.completed_s + (0.05 + 0.001 * prompt), number, prompt, reply)
            for number, (done, (_, prompt, reply, _)) in enumerate(zip(first, rows, strict=True))
            if reply > 1
        )
        second = literal(limits, [(at_s, prompt + 1, reply - 1, 0, prompt) for at_s, _, prompt, reply in moved])
        completed = [each.completed_s for each in first]
        for (_, number, _, _), done in zip(moved, second, strict=True):
            completed[number] = done.completed_s
        np.testing.assert_allclose(replies.first_token_s, [each.first_token_s for each in first], rtol=1e-9)
        np.testing.assert_allclose(replies.completed_s, completed, rtol=1e-9)
        assert replies.preemptions.sum() == sum(each.preemptions for each in (*first, *second))
        preempted += replies.preemptions.any()
    assert preempted > 8


def one_replica(replica, *columns):
    return serve_requests(Fleet(replica=replica), requests_of(*columns), np.random.default_rng(0))


@pytest.mark.covers("C14")
def test_two_prompts_in_chunks_take_the_steps_that_are_counted_by_hand():
    """Budget 10, prompts of 12 and 5, replies of 3 and 2; each step takes 1 s + 0.1 s a prompt token + 0.01 s a
    decoding request + 0.001 s a token held.

    Step 1: 10 tokens of the first. Step 2: its last 2, and 5 of the second: both have their first token. Step 3: both
    decode, the second ends. Step 4: the first ends.
    """
    replies = one_replica(replica_of((1, 0.1, 0.01, 0.001), budget=10, most=10), [0, 0], [12, 5], [3, 2])
    ends = np.cumsum([1 + 1.0 + 0.010, 1 + 0.7 + 0.017, 1 + 0.02 + 0.019, 1 + 0.01 + 0.014])
    assert replies.scheduled_s.tolist() == [0, pytest.approx(ends[0])]
    assert replies.first_token_s.tolist() == pytest.approx([ends[1]] * 2)
    assert replies.completed_s.tolist() == pytest.approx([ends[3], ends[2]])
    assert replies.ttft_s.tolist() == pytest.approx([ends[1]] * 2)
    assert replies.tpot_s.tolist() == pytest.approx([(ends[3] - ends[1]) / 2, ends[2] - ends[1]])


@pytest.mark.covers("C14")
def test_the_newest_is_preempted_when_blocks_are_used_up_and_computed_again():
    """Four blocks of 2 tokens, steps of 1 s, prompts of 3 and 2, replies of 4 and 3.

    After step 1 they hold 3 and 2 tokens, so 2 and 1 blocks. Step 2 takes the last block, for the second. Step 3: the
    first needs a third block, and the second is preempted. Steps 4: the first ends. Step 5: the second, of which 2
    tokens are known beside its prompt, is computed again and has its third token.
    """
    replies = one_replica(replica_of((1, 0, 0, 0), blocks=4, size=2), [0, 0], [3, 2], [4, 3])
    assert replies.preemptions.tolist() == [0, 1]
    assert replies.first_token_s.tolist() == [1, 1]
    assert replies.completed_s.tolist() == [4, 5]
    assert np.isnan(one_replica(replica_of((1, 0, 0, 0)), [0], [3], [1]).tpot_s).all()


@pytest.mark.covers("C14")
def test_cached_tokens_of_a_prompt_take_no_time_but_have_blocks():
    cost = (0, 0.01, 0, 0)
    assert one_replica(replica_of(cost), [0], [500], [1]).ttft_s.tolist() == pytest.approx([5.0])
    assert one_replica(replica_of(cost), [0], [500], [1], [480]).ttft_s.tolist() == pytest.approx([0.2])
    together = one_replica(replica_of(cost, blocks=32), [0, 0], [500, 500], [1, 1], [480, 480])
    assert together.scheduled_s.tolist() == pytest.approx([0, 0.2])


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_one_token_at_a_time_makes_a_replica_a_queue_with_the_waits_of_m_d_1():
    """One sequence, no cost but of steps: the time of a reply is constant, and theory says how long requests wait."""
    load, tokens = 0.6, 10
    found = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        count = 4_000
        at_s = np.cumsum(rng.exponential(tokens / load, count))
        replies = one_replica(replica_of((1, 0, 0, 0), most=1), at_s, [1] * count, [tokens] * count)
        found.append((replies.scheduled_s - replies.arrival_s)[count // 2 :].mean())
    half = student.ppf(0.995, len(found) - 1) * np.std(found, ddof=1) / len(found) ** 0.5
    assert abs(np.mean(found) - tokens * load / 2 / (1 - load)) <= half


@pytest.mark.covers("C14")
def test_replicas_whose_load_is_known_wait_less_under_the_same_requests():
    rng = np.random.default_rng(2)
    count = 3_000
    at_s = np.cumsum(rng.exponential(1 / 60, count))
    asked = requests_of(at_s, rng.integers(1, 2_000, count), rng.integers(1, 400, count))
    replica = replica_of((0.006, 4e-5, 2e-5, 2e-8), most=64)
    waits = {}
    for router in ROUTERS:
        fleet = Fleet(replica=replica, replicas=4, router=router)
        waits[router] = serve_requests(fleet, asked, np.random.default_rng(3)).ttft_s.mean()
    assert waits["least-loaded"] < waits["power-of-two"] < waits["random"], waits
    assert waits["least-loaded"] < waits["round-robin"] < waits["random"], waits


@pytest.mark.parametrize(
    ("limits", "columns", "message"),
    [
        ({"most": 8, "budget": 4}, ([0], [1], [1]), "max_num_batched_tokens: 4 tokens are too few for 8 sequences"),
        ({"blocks": 0}, ([0], [1], [1]), "kv_blocks: 0 is not allowed. Give 1 or more."),
        ({"costs": (-1, 0, 0, 0)}, ([0], [1], [1]), "cost.base_s: -1 is not allowed"),
        ({"costs": (0, float("nan"), 0, 0)}, ([0], [1], [1]), "cost.prompt_token_s: nan is not allowed"),
        (
            {"blocks": 4},
            ([0, 1, 2], [64, 65, 66], [1] * 3),
            "number 1 does not fit alone into 4 blocks of 16 tokens.",
        ),
        ({"blocks": 4}, ([0, 1, 2], [64, 65, 66], [1] * 3), "Give more blocks or shorter requests. So do 1 others."),
        ({}, ([1, 0], [1, 1], [1, 1]), "number 1 arrives before the one in front. Sort by arrival."),
        ({}, ([0, float("nan")], [1, 1], [1, 1]), "number 1 arrives at no finite time"),
        ({}, ([0], [0], [1]), "number 0 has a prompt without tokens"),
        ({}, ([0], [1], [0]), "number 0 has a reply without tokens"),
        ({}, ([0], [5], [1], [5]), "number 0 has cached_tokens outside 0 to prompt - 1"),
        ({}, ([0], [5], [1, 2]), "requests: the columns have unlike lengths"),
    ],
)
def test_what_no_step_could_serve_is_refused_with_place_and_remedy(limits, columns, message):
    with pytest.raises(UserError) as refused:
        one_replica(replica_of(**{"costs": (1, 0, 0, 0)} | limits), *columns)
    assert message in str(refused.value)


def test_a_fleet_without_replicas_is_refused_and_one_without_requests_serves_none():
    with pytest.raises(UserError, match="replicas: 0 is not allowed"):
        serve_requests(
            Fleet(replica=replica_of((1, 0, 0, 0)), replicas=0),
            requests_of([0], [1], [1]),
            np.random.default_rng(0),
        )
    for router in ROUTERS:
        fleet = Fleet(replica=replica_of((1, 0, 0, 0)), replicas=2, router=router)
        assert len(serve_requests(fleet, requests_of([], [], []), np.random.default_rng(0)).completed_s) == 0


def test_the_blocks_of_a_decoding_replica_hold_the_whole_request():
    small, large = (Fleet(replica=replica_of((1, 0, 0, 0), blocks=blocks)) for blocks in (4, 8))
    asked = requests_of([0], [60], [20])
    serve_split(SplitFleet(prefill=small, decode=large), asked, np.random.default_rng(0))
    with pytest.raises(UserError, match="does not fit alone into 4 blocks"):
        serve_split(SplitFleet(prefill=large, decode=small), asked, np.random.default_rng(0))
