"""The knees of a scenario: found on medians in every sweep of load, and said when they are not there."""

import json
from dataclasses import replace

import pytest
from samples import a_metrics, a_trial, a_view

from seamark.analysis.summary.knees import knees, point_of
from seamark.model.results.summary import Knee
from seamark.model.results.times import BoundedDistribution
from seamark.storage.codec import decode, encode

USERS = (1, 2, 4, 8, 16, 32)


def outcome(repetition, rate, mean_ms, saturated=False, ok=True, **settings):
    trial = replace(a_trial(settings), repetition=repetition)
    latency_ms = BoundedDistribution(mean=mean_ms)
    metrics = a_metrics(requests_per_s=rate, latency_ms=latency_ms, saturated=saturated) if ok else None
    return a_view(trial, metrics)


def a_point(name, level, seen, pattern="closed", **fixed):
    """A treatment with (requests/s, mean ms, saturated) of each repetition; None where it failed."""
    outcomes = [
        outcome(n, *(one or (None, None)), ok=one is not None, pattern=pattern, **{name: level})
        for n, one in enumerate(seen, 1)
    ]
    return point_of("lookup", {name: level, **fixed}, outcomes)


def of_servers(servers, users=USERS, factors=(1.0, 1.02, 0.99), **fixed):
    """A closed sweep over `users` of a service with so many servers of 10 ms each."""
    points = []
    for n in users:
        rate = 100.0 * min(n, servers)
        points.append(a_point("concurrency", n, [(rate * f, 1e3 * n / rate / f) for f in factors], **fixed))
    return points


def test_a_closed_sweep_has_its_knee_where_the_servers_are_all_busy():
    [found] = knees(of_servers(4))
    assert (found.factor, found.knee, found.place) == ("concurrency", 4, "inside")
    assert found.between == (2, 8)
    assert found.saturated == (8, 16, 32)
    assert (found.agree, found.of) == (3, 3)
    assert found.requests_per_s == pytest.approx(400)
    assert found.latency_mean_ms == pytest.approx(10)
    assert decode(json.loads(json.dumps(encode(found))), Knee) == found


def test_each_combination_of_what_is_fixed_has_a_knee_of_its_own_whatever_the_order():
    points = of_servers(2, operation="read") + of_servers(8, operation="write")
    found = {one.fixed["operation"]: one.knee for one in knees(points[::-1])}
    assert found == {"read": 2, "write": 8}


def test_an_open_sweep_is_over_rates_and_saturated_where_most_trials_were():
    points = []
    for u in (0.1, 0.3, 0.5, 0.7, 0.9, 1.2):
        mean_ms = 10 / (1 - u) if u < 1 else 900.0
        seen = [(100.0 * min(u, 1.0), mean_ms, u > 1 or (u == 0.9 and n == 0)) for n in range(3)]
        points.append(a_point("rate_rps", 100.0 * u, seen, pattern="poisson"))
    [found] = knees(points)
    assert (found.factor, found.knee, found.between) == ("rate_rps", 50.0, (30.0, 70.0))
    assert found.saturated == (120.0,)


def test_an_invalid_repetition_is_in_no_point_that_has_another():
    good, other = (outcome(n, rate, 10.0, concurrency=4) for n, rate in ((1, 400.0), (2, 4.0)))
    invalid = a_view(other.trial, replace(other.metrics, verdict="INVALID"))
    assert set(point_of("lookup", {"concurrency": 4}, [good, invalid]).seen) == {1}
    assert set(point_of("lookup", {"concurrency": 4}, [invalid]).seen) == {2}


def test_the_connections_of_an_open_loop_are_no_sweep_of_load():
    assert knees([replace(point, sweeps="rate_rps") for point in of_servers(4)]) == ()


def test_a_range_beyond_the_knee_says_that_there_is_none_in_it():
    [beyond] = knees(of_servers(1, users=(2, 4, 8, 16)))
    assert (beyond.knee, beyond.between, beyond.place) == (None, None, "first")
    [below] = knees(of_servers(64, users=(1, 2, 4, 8)))
    assert (below.knee, below.place, below.saturated) == (None, "last", ())


def test_fewer_than_four_measured_levels_have_no_knee():
    assert knees(of_servers(2, users=(1, 2, 4))) == ()
    failed = [a_point("concurrency", 8, [None, None])]
    assert knees(of_servers(2, users=(1, 2, 4)) + failed) == ()


def test_repetitions_that_disagree_are_counted_and_a_failed_one_is_left_out():
    points = of_servers(4)
    noisy = [(410.0, 10.0), (390.0, 26.0), None]
    points[USERS.index(4)] = a_point("concurrency", 4, noisy)
    [found] = knees(points)
    assert (found.knee, found.agree, found.of) == (4, 1, 2)
