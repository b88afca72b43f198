"""Where power is greatest: on curves whose knee is known."""

import pytest

from seamark.stats.knee import full_from, knee

SERVICE_S = 0.01


def mm1(utilisations):
    """Throughput and mean response time of an M/M/1 queue."""
    return [u / SERVICE_S for u in utilisations], [SERVICE_S / (1 - u) for u in utilisations]


def closed(users, servers):
    """The same of users who wait for one of some servers, all times alike: no waiting until each server is busy."""
    rates = [min(n, servers) / SERVICE_S for n in users]
    return rates, [n / rate for n, rate in zip(users, rates, strict=True)]


@pytest.mark.parametrize("step", [0.1, 0.05, 0.01])
def test_the_knee_of_an_m_m_1_queue_is_at_half_its_capacity(step):
    utilisations = [step * k for k in range(1, round(0.95 / step) + 1)]
    found = knee(*mm1(utilisations))
    assert utilisations[found.index] == pytest.approx(0.5)
    assert found.place == "inside"
    assert found.power[found.index] == pytest.approx(0.25 / SERVICE_S**2)


@pytest.mark.parametrize("servers", [2, 4, 16])
def test_the_knee_of_a_closed_loop_is_where_the_last_server_becomes_busy(servers):
    users = [1, 2, 4, 8, 16, 32, 64]
    rates, times = closed(users, servers)
    found = knee(rates, times)
    assert (users[found.index], found.place) == (servers, "inside")
    assert users[full_from(rates)] == servers


def test_a_range_on_one_side_of_the_knee_has_none_in_it():
    assert knee(*mm1([0.05, 0.1, 0.2, 0.4])).place == "last"
    assert knee(*mm1([0.6, 0.7, 0.8, 0.9])).place == "first"
    assert knee(*closed([8, 16, 32, 64], 4)).place == "first"


@pytest.mark.parametrize(
    ("rates", "times", "said"),
    [
        ([1, 2, 3], [1, 1, 1], "too few"),
        ([1, 2, 3, 4], [1, 1, 1], "4 throughputs and 3"),
        ([1, 2, 3, 0], [1, 1, 1, 1], "above 0"),
        ([1, 2, 3, 4], [1, 1, -1, 1], "above 0"),
    ],
)
def test_what_is_no_curve_is_refused(rates, times, said):
    with pytest.raises(ValueError, match=said):
        knee(rates, times)


def test_a_little_less_than_all_is_full():
    assert full_from([10, 50, 96, 100, 99]) == 2
    assert full_from([10, 20, 40, 80]) == 3
