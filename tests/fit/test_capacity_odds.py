"""Odds of plans: counted over simulated trials, with the answers of queueing theory where it has some."""

from dataclasses import replace
from itertools import pairwise
from math import factorial

import numpy as np
import pytest
from fitted_models import constant_draws, llama, station
from scipy import stats

from seamark.model.scenario import Slo
from seamark_simulate.fit.odds import (
    INTERVAL,
    LOOK,
    Judged,
    bottleneck,
    fewest_replicas,
    interval_of,
    judge,
    largest_uncertainty,
)
from seamark_simulate.fit.planned_load import PlannedLoad, duration_for, objective_of
from seamark_simulate.fit.service_model import REPLICA_TIMES, STATION_TIMES, ServiceModel
from seamark_simulate.model.fitted_model import FitSource, InputRange
from seamark_simulate.simulation.fitted_service import own_speed
from seamark_simulate.trials.capacity_judged import largest_simulated

MEAN_S = 0.01


def limit(metric, value, times=STATION_TIMES):
    return objective_of(Slo(metric=metric, op="<=", limit=value), times)


def load(rate_rps, duration_s=20.0, **lengths):
    return PlannedLoad(rate_rps=rate_rps, duration_s=duration_s, warmup_s=2.0, **lengths)


def erlang_mean_s(servers, rate_rps):
    """Mean response of M/M/c by Erlang's formula C."""
    offered = rate_rps * MEAN_S
    if offered >= servers:
        return float("inf")
    last = offered**servers / factorial(servers) / (1 - offered / servers)
    waits = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    return MEAN_S + waits * MEAN_S / (servers - offered)


def replica(model=None, **changes):
    return replace(ServiceModel(model=model or llama()), **changes)


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize(("rate_rps", "wanted"), [(150, 2), (150, 3), (350, 5)])
def test_the_fewest_servers_for_a_mean_response_are_those_of_erlang(rate_rps, wanted):
    """The limit lies halfway, on a scale of logarithms, between the theory of `wanted` servers and of one less."""
    with_one_less = min(erlang_mean_s(wanted - 1, rate_rps), 4 * erlang_mean_s(wanted, rate_rps))
    between_s = (with_one_less * erlang_mean_s(wanted, rate_rps)) ** 0.5
    objectives = [limit("latency_mean_s", between_s)]
    service = ServiceModel(model=station())
    found, every = fewest_replicas(
        range(1, 17),
        lambda count: judge(service, load(rate_rps, 40.0), count, objectives, trials=20, seed=3, needed=0.9),
        0.9,
    )
    assert found is not None
    assert found.replicas == wanted
    assert {each.replicas for each in every} >= {wanted - 1, wanted}


@pytest.mark.covers("C14")
def test_a_probability_is_the_share_of_trials_that_met_every_objective():
    """Of four plausible servers one is too slow for the first limit, and another one too for the second."""
    model = station(family="gamma", draws=constant_draws(0.010, 0.012, 0.020, 0.030))
    service = ServiceModel(model=model)
    first, second = limit("latency_p50_s", 0.025), limit("latency_mean_s", 0.015)
    judged = judge(service, load(2.0), 8, [first], trials=40, seed=1)
    assert (judged.met, judged.trials, judged.probability) == (30, 40, 0.75)
    both = judge(service, load(2.0), 8, [first, second], trials=40, seed=1)
    assert both.met == 20
    assert sorted(set(np.round(both.values_s[second.name], 3).tolist())) == [0.010, 0.012, 0.020, 0.030]


def test_intervals_of_a_probability_are_those_of_clopper_and_pearson():
    assert interval_of(0, 20, INTERVAL) == pytest.approx((0, 0.1684), abs=1e-4)
    assert interval_of(20, 20, INTERVAL) == pytest.approx((0.8316, 1), abs=1e-4)
    assert interval_of(8, 10, INTERVAL) == pytest.approx((0.4439, 0.9748), abs=1e-4)


def test_a_hopeless_number_of_replicas_is_given_up_early_and_a_possible_one_is_not():
    service = ServiceModel(model=station(family="gamma", draws=constant_draws(0.010, 0.030)))
    objectives = [limit("latency_p50_s", 0.02)]
    judged = judge(service, load(2.0), 4, objectives, trials=60, seed=1, needed=0.95)
    assert (judged.met, judged.trials) == (10, LOOK)
    judged = judge(service, load(2.0), 4, objectives, trials=60, seed=1, needed=0.5)
    assert (judged.met, judged.trials) == (30, 60)


def test_more_servers_serve_no_request_of_the_same_trial_later():
    service = ServiceModel(model=station(draws=constant_draws(0.01), between=0.1))
    times_s = [service.trial(load(150), count, 7, 1).times_s["latency"] for count in (2, 3, 4)]
    assert all((one >= other - 1e-12).all() for one, other in pairwise(times_s))
    assert (times_s[0] > times_s[1]).any()


def test_loads_of_one_seed_differ_by_their_rate_alone():
    one, twice = load(50).arrivals(3), load(100).arrivals(3)
    assert one == pytest.approx(2 * twice[: len(one)])
    assert len(one) == pytest.approx(50 * 22, rel=0.15)


def test_the_largest_uncertainty_is_the_source_without_which_the_verdict_is_surest():
    wide, narrow = constant_draws(0.005, 0.02), constant_draws(0.0099, 0.0101)
    objectives = [limit("latency_mean_s", 0.0102)]

    def source(**changes):
        service = ServiceModel(model=station(family="gamma", **changes))
        return largest_uncertainty(
            lambda fixed: judge(service, load(2.0), 4, objectives, trials=40, seed=1, fixed=fixed)
        )

    assert source(draws=narrow, between=0.5) == "repeats"
    assert source(draws=wide, between=0.001) == "parameters"


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_what_breaks_first_is_the_limit_that_was_set():
    """Each replica has one limit far below the others."""
    at = load(30, prompt_tokens=128, reply_tokens=16)
    ttft = limit("ttft_p50_s", 0.1, REPLICA_TIMES)

    def part(service, objective=ttft, asked=at):
        found = bottleneck(service, asked, 1, [objective], 1)
        assert found is not None
        return found.part

    cheap = replace(llama().parameters, prompt_token_s=1e-6)
    slow_prompts = replace(llama().parameters, prompt_token_s=3e-4, sequence_s=0.0)
    assert part(replica(llama(parameters=cheap), kv_blocks=9)) == "KV blocks"
    assert part(replica(llama(parameters=cheap), max_num_seqs=1)) == "sequences (max_num_seqs)"
    assert part(replica(llama(parameters=slow_prompts))) == "prefill"
    tpot = limit("tpot_mean_s", 0.001, REPLICA_TIMES)
    assert part(replica(), tpot, replace(at, rate_rps=1.0)) == "steps"


@pytest.mark.slow
@pytest.mark.parametrize("trials", [2, 3, 9])
def test_repeats_of_a_plan_differ_as_those_of_the_fit_by_student(trials):
    """A spread that was estimated from few trials is unsure itself, so the tails are those of Student's t."""
    found = np.log([own_speed(0.01, trials, np.random.default_rng([1, number])) for number in range(8_000)])
    low, high = stats.t(trials - 1).interval(0.9)
    assert np.quantile(found, [0.05, 0.95]) == pytest.approx([0.01 * low, 0.01 * high], rel=0.08)


def test_a_plan_from_few_repeats_has_their_tails():
    """Of two degrees of freedom 19 % lie beyond 1.96 standard deviations, of a normal distribution 5 %."""
    source = FitSource(scenario="s", trial="t", trial_id="i", config_hash="h")
    service = ServiceModel(
        model=station(family="gamma", draws=constant_draws(0.01), between=0.05, sources=(source,) * 3)
    )
    means_s = [service.trial(load(1.0), 50, number, 1).times_s["latency"].mean() for number in range(300)]
    assert 0.13 < np.mean(np.abs(np.log(np.array(means_s) / 0.01)) > 1.96 * 0.05) < 0.25


def test_a_station_breaks_by_its_queue_or_by_its_service_time_alone():
    service = ServiceModel(model=station())
    queued = bottleneck(service, load(95), 1, [limit("latency_p95_s", 0.05)], 1)
    assert queued is not None
    assert queued.part == "queue"
    assert queued.without_s < 0.05 < queued.value_s
    slow = bottleneck(service, load(10), 4, [limit("latency_p95_s", 0.005)], 1)
    assert slow is not None
    assert slow.part == "service time"
    slow = bottleneck(service, load(95), 1, [limit("latency_p95_s", 0.02)], 1)
    assert slow is not None
    assert (slow.part, slow.without_s < 0.05 < slow.value_s) == ("service time", True), "a queue is the smaller part"
    assert bottleneck(service, load(10), 4, [limit("latency_p95_s", 0.5)], 1) is None


@pytest.mark.slow
def test_the_largest_load_is_that_of_m_m_1():
    """A mean response of 50 ms with a service time of 10 ms belongs to a utilisation of 0.8."""
    objectives = [limit("latency_mean_s", 0.05)]
    service = ServiceModel(model=station())
    found = largest_simulated(service, load(40, 60.0), 1, objectives, seed=1, extrapolate=True)
    assert found is not None
    assert found.low_rps is not None
    assert found.high_rps is not None
    assert found.low_rps <= 80 <= found.high_rps
    inside = largest_simulated(service, load(80, 60.0), 2, objectives, seed=1, extrapolate=False)
    assert inside is not None
    assert inside.suspect is None
    assert max(inside.found_rps or 0, inside.low_rps or 0) <= 180.2  # the end of the range, and a thousandth


def test_what_lies_outside_of_a_fit_is_named_with_its_range():
    service = ServiceModel(model=station())
    assert service.outside(load(80), 1) == ()
    assert service.outside(load(95), 1) == ("utilisation 0.95 (0.20 to 0.90)",)
    assert service.outside(load(95), 8) == ("utilisation 0.12 (0.20 to 0.90)",)
    asked = load(30, prompt_tokens=512, reply_tokens=16)
    assert replica().outside(asked, 1) == ("prompt_tokens 512 (128 to 128)", "rate_rps 30 (1 to 20)")
    closed = llama(ranges={**llama().ranges, "concurrency": InputRange(low=1, high=64)})
    assert replica(closed).outside(load(30, prompt_tokens=128, reply_tokens=16), 1) == ()
    busy = replica(closed).outside(load(400, prompt_tokens=128, reply_tokens=16), 1)
    assert len(busy) == 1
    assert busy[0].startswith("concurrency ")


def test_a_load_is_long_enough_for_its_percentiles():
    assert duration_for((limit("latency_p99_s", 1.0),), 10.0, 0.0) == 120
    assert duration_for((limit("latency_mean_s", 1.0),), 10.0, 60.0) == 60
    assert duration_for((limit("latency_mean_s", 1.0),), 0.01, 60.0) == 2_400


@pytest.mark.parametrize(
    ("metric", "times"),
    [("ttft_p99_s", STATION_TIMES), ("latency_p98_s", STATION_TIMES), ("throughput", STATION_TIMES)],
)
def test_objectives_that_no_model_can_say_anything_of_are_refused(metric, times):
    with pytest.raises(ValueError, match="cannot be planned for: allowed are upper limits on latency_p99_s"):
        limit(metric, 1.0, times)


def test_an_objective_on_every_request_is_one_on_its_p99():
    assert limit("ttft_s", 1.0, REPLICA_TIMES).probability == 0.99


def test_the_fewest_replicas_are_found_with_few_cases():
    judged = []

    def by_count(count):
        judged.append(count)
        return Judged(replicas=count, met=20 if count >= 23 else 0, trials=20, values_s={})

    found, _ = fewest_replicas(range(1, 65), by_count, 0.95)
    assert found is not None
    assert found.replicas == 23
    assert len(judged) <= 12
    none, every = fewest_replicas(range(1, 5), by_count, 0.95)
    assert none is None
    assert [each.replicas for each in every] == [1, 2, 4]
