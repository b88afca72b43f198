"""Stations against queueing theory: means of seeded runs lie in 99 % intervals of what theory says."""

from math import exp, factorial

import numpy as np
import pytest
from scipy.stats import t as student

from seamark_simulate.simulation.station import Station, constant, drawn_by, empirical, exponential, lognormal, serve

SEEDS = 50
LOADS = (0.3, 0.6, 0.8)


def arrivals_s(random, rate, count):
    return np.cumsum(random.exponential(1 / rate, count))


@pytest.mark.parametrize("family", ["constant", "gamma", "lognormal"])
def test_times_without_variation_are_all_the_same(family):
    assert drawn_by(family, 0.1, 0.0)(np.random.default_rng(1), 3).tolist() == [0.1, 0.1, 0.1]


def runs(station, load, count=4_000):
    """Return the waits of each of 50 seeded runs, a row each, without the first half as start-up."""
    found = []
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, station.servers, round(load * 100)])
        served = serve(station, arrivals_s(random, load * station.servers, 2 * count), random)
        found.append(served.waiting_s[count:])
    return np.array(found)


def require_theory(values, expected):
    """Require that `expected` lies in the 99 % interval of the mean of independent runs."""
    half = student.ppf(0.995, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    assert abs(values.mean() - expected) <= half, (values.mean(), half, expected)


def erlang_c(servers, load):
    """Return the probability of waiting in M/M/c; `load` is that of each server."""
    offered = servers * load
    last = offered**servers / factorial(servers) / (1 - load)
    return last / (sum(offered**k / factorial(k) for k in range(servers)) + last)


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("servers", [1, 4])
def test_waits_of_m_m_c_are_those_of_erlang(servers, load):
    station = Station(servers=servers, service=exponential(1.0))
    waits, rate = erlang_c(servers, load), servers * (1 - load)
    waited_s = runs(station, load)
    require_theory(waited_s.mean(axis=1), waits / rate)
    for limit_s in (0.0, 1.0, 3.0):
        require_theory((waited_s > limit_s).mean(axis=1), waits * exp(-rate * limit_s))


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("service", "variation2"), [(constant(1.0), 0.0), (lognormal(1.0, 1.5), 2.25)])
def test_waits_of_m_g_1_are_those_of_pollaczek_and_khinchine(service, variation2, load):
    expected = load * (1 + variation2) / 2 / (1 - load)
    require_theory(runs(Station(servers=1, service=service), load).mean(axis=1), expected)


@pytest.mark.slow
@pytest.mark.covers("C14")
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(("service", "variation2"), [(exponential(1.0), 1.0), (lognormal(1.0, 1.5), 2.25)])
def test_waits_of_two_priorities_are_those_of_cobham(service, variation2, load):
    """Cobham 1954: the work found on arrival, over the shares left by the classes above and by those up to one's
    own. Three in ten requests are of the higher class."""
    count, share = 4_000, 0.3
    waited_s = np.empty((SEEDS, 2))
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, round(load * 100)])
        at_s = arrivals_s(random, load, 2 * count)
        priority = (random.random(2 * count) < share).astype(np.int64)
        served = serve(Station(servers=1, service=service), at_s, random, priority)
        for which in (0, 1):
            waited_s[seed, which] = served.waiting_s[count:][priority[count:] == which].mean()
    found_s = load * (1 + variation2) / 2
    high = load * share
    require_theory(waited_s[:, 1], found_s / (1 - high))
    require_theory(waited_s[:, 0], found_s / (1 - high) / (1 - load))


def test_the_waiting_request_of_the_highest_priority_starts_first_and_none_is_interrupted():
    station = Station(servers=1, service=constant(10.0))
    at_s, random = np.array([0.0, 1.0, 2.0, 3.0, 10.0]), np.random.default_rng(0)
    served = serve(station, at_s, random, np.array([0, 0, 1, 1, 2]))
    assert served.start_s.tolist() == [0.0, 40.0, 10.0, 30.0, 20.0]


@pytest.mark.parametrize("servers", [1, 3])
def test_equal_priorities_change_nothing(servers):
    station = Station(servers=servers, service=lognormal(1.0, 2.0))
    served = []
    for priority in (None, np.full(3_000, 7)):
        random = np.random.default_rng(9)
        served.append(serve(station, arrivals_s(random, 0.9 * servers, 3_000), random, priority))
    assert served[0].start_s.tolist() == served[1].start_s.tolist()
    assert served[0].server.tolist() == served[1].server.tolist()


def test_routers_with_a_queue_for_each_server_have_no_priorities():
    station = Station(servers=2, service=constant(1.0), router="random")
    with pytest.raises(ValueError, match="router random: priorities need one-queue"):
        serve(station, np.zeros(2), np.random.default_rng(0), np.zeros(2, np.int64))


@pytest.mark.slow
def test_a_random_router_makes_each_server_a_queue_of_its_own():
    load = 0.6
    waited_s = runs(Station(servers=4, service=exponential(1.0), router="random"), load)
    require_theory(waited_s.mean(axis=1), load / (1 - load))


@pytest.mark.slow
def test_routers_that_know_more_wait_less_under_the_same_requests():
    routers = ("random", "round-robin", "power-of-two", "least-loaded", "one-queue")
    waits = []
    for router in routers:
        random = np.random.default_rng(3)
        at_s = arrivals_s(random, 0.8 * 8, 40_000)
        waits.append(
            float(serve(Station(servers=8, service=exponential(1.0), router=router), at_s, random).waiting_s.mean())
        )
    assert waits == sorted(waits, reverse=True), dict(zip(routers, waits, strict=True))


@pytest.mark.parametrize("router", ["one-queue", "random", "round-robin", "power-of-two", "least-loaded"])
def test_a_server_has_one_request_at_a_time_and_none_starts_before_it_arrives(router):
    random = np.random.default_rng(7)
    at_s = arrivals_s(random, 2.5, 5_000)
    served = serve(Station(servers=3, service=lognormal(1.0, 2.0), router=router), at_s, random)
    assert (served.start_s >= served.arrival_s).all()
    for server in range(3):
        mine = np.flatnonzero(served.server == server)
        mine = mine[np.argsort(served.start_s[mine], kind="stable")]
        assert len(mine) > 1_000
        assert (served.start_s[mine][1:] >= served.end_s[mine][:-1]).all()


def test_one_server_is_the_same_whatever_the_router():
    ends = []
    for router in ("one-queue", "random", "round-robin", "power-of-two", "least-loaded"):
        random = np.random.default_rng(1)
        at_s = arrivals_s(random, 0.7, 1_000)
        ends.append(serve(Station(servers=1, service=exponential(1.0), router=router), at_s, random).end_s.tolist())
    assert all(each == ends[0] for each in ends)


def test_distributions_have_the_mean_and_the_variation_of_their_names():
    random = np.random.default_rng(5)
    for draw, mean_s, variation in (
        (exponential(2.0), 2.0, 1.0),
        (constant(2.0), 2.0, 0.0),
        (lognormal(2.0, 0.5), 2.0, 0.5),
        (empirical([1.0, 3.0]), 2.0, 0.5),
    ):
        drawn_s = draw(random, 200_000)
        assert drawn_s.mean() == pytest.approx(mean_s, rel=0.01)
        assert drawn_s.std() / drawn_s.mean() == pytest.approx(variation, abs=0.01)
