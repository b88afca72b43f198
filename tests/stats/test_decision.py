"""Whether a mean or a quantile lies beyond a limit: rarely wrong for correlated values, and soon right for others."""

import numpy as np
import pytest

from seamark.stats.decision import mean_odds, quantile_odds

ALPHA = 0.01


def correlated(rng, size, phi):
    """An AR(1) series of mean 0 and variance 1."""
    noise = rng.standard_normal(size) * np.sqrt(1 - phi**2)
    noise[0] /= np.sqrt(1 - phi**2)
    for at in range(1, size):
        noise[at] += phi * noise[at - 1]
    return noise


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_a_mean_at_its_limit_is_hardly_ever_decided_however_alike_neighbours_are(phi):
    rng, wrong, tries = np.random.default_rng(7), 0, 150
    for _ in range(tries):
        odds = mean_odds([10 + correlated(rng, 600, phi), 10 + correlated(rng, 600, phi)], 10)
        wrong += odds.above <= ALPHA or odds.below <= ALPHA
    assert wrong <= 9, "2 % of them, and three standard errors"


def test_independent_values_would_be_decided_wrongly_if_neighbours_were_not_looked_at():
    rng = np.random.default_rng(7)
    naive = 0
    for _ in range(150):
        values = correlated(rng, 600, 0.9)
        naive += abs(values.mean()) / (values.std() / np.sqrt(600)) > 2.576
    assert naive > 60, "else the test above shows nothing"


def test_a_mean_away_from_its_limit_is_decided_on_the_right_side():
    values = np.random.default_rng(1).normal(10, 1, 2000)
    low, high = mean_odds([values], 9), mean_odds([values], 11)
    assert low.above <= 1e-6 < 0.9 < low.below
    assert high.below <= 1e-6 < 0.9 < high.above
    far = mean_odds([np.random.default_rng(1).exponential(0.001, 96)], 5)
    assert far.below <= 1e-4, "a few values far below their limit are enough"
    stalled = mean_odds([np.append(np.full(200, 0.001), 0.2)], 5)
    assert stalled.below <= 1e-6, "with a stall that is most of the mean too"
    assert low.estimate == pytest.approx(10, abs=0.1)


def test_a_quantile_takes_as_many_values_as_its_share_needs():
    rng = np.random.default_rng(2)
    few, many = rng.exponential(1, 200), rng.exponential(1, 6000)
    assert quantile_odds([few], 0.99, 9.0, ALPHA).below > ALPHA, "200 values without one above say little of a p99"
    assert quantile_odds([many], 0.99, 9.0, ALPHA).below <= ALPHA
    assert quantile_odds([many], 0.99, 3.0, ALPHA).above <= ALPHA
    assert quantile_odds([many], 0.5, 0.6, ALPHA).above <= ALPHA
    assert quantile_odds([few], 0.5, 1.0, ALPHA).below <= ALPHA


def test_late_replies_that_come_together_say_less_than_as_many_that_come_apart():
    apart = np.where(np.arange(5000) % 250 == 0, 5.0, 1.0)
    together = np.sort(apart)
    assert quantile_odds([apart], 0.99, 2.0, ALPHA).below <= ALPHA
    assert quantile_odds([together], 0.99, 2.0, ALPHA).below > 10 * quantile_odds([apart], 0.99, 2.0, ALPHA).below


def test_requests_without_an_answer_are_above_every_limit():
    values = np.append(np.full(900, 0.01), np.full(100, np.inf))
    odds = quantile_odds([np.random.default_rng(3).permutation(values)], 0.99, 5.0, ALPHA)
    assert odds.estimate == pytest.approx(0.1)
    assert odds.above <= ALPHA


@pytest.mark.parametrize("pieces", [[], [np.empty(0)], [np.ones(5)], [np.ones(10), np.ones(9)]])
def test_too_few_values_say_nothing(pieces):
    for odds in (mean_odds(pieces, 0.5), quantile_odds(pieces, 0.9, 0.5, ALPHA)):
        assert (odds.above, odds.below) == (1.0, 1.0)
