"""Steps and trends in series: found where they are, and not in autocorrelated noise."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from seamark.stats.change import change

NOMINAL = 0.01


def autoregressive(rng, count, size, phi):
    """Stationary first-order autoregressive series of standard deviation 1, one in each row."""
    shocks = rng.standard_normal((count, size)) * math.sqrt(1 - phi**2)
    shocks[:, 0] /= math.sqrt(1 - phi**2)
    for at in range(1, size):
        shocks[:, at] += phi * shocks[:, at - 1]
    return shocks


def false_flags(phi, size, count, seed):
    rows = autoregressive(np.random.default_rng(seed), count, size, phi)
    return sum(change(row).p <= NOMINAL for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.6, 0.9])
def test_autocorrelated_noise_is_seldom_called_a_change(phi):
    assert false_flags(phi, 100, 200, seed=1) <= binom.ppf(0.995, 200, NOMINAL)


@pytest.mark.sweep
@pytest.mark.parametrize("size", [100, 200])
@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6, 0.8, 0.9])
def test_noise_is_called_a_change_at_the_nominal_rate(phi, size, counted):
    count = 2000
    found = false_flags(phi, size, count, seed=2)
    for outcome, times in (("false flags", found), ("steady", count - found)):
        for _ in range(times):
            counted(f"AR(1) noise of {phi} in {size} points, nominal 1 %", outcome)
    low, high = binom.ppf([0.005, 0.995], count, NOMINAL)
    assert low - 1 <= found <= high


@pytest.mark.parametrize("phi", [0.0, 0.5])
@pytest.mark.parametrize("at", [5, 50, 80, 95])
def test_a_step_is_found_where_it_is(at, phi):
    series = 0.1 * autoregressive(np.random.default_rng(at), 1, 100, phi)[0]
    series[at:] += math.log(5)
    found = change(series)
    assert found.p < 0.001
    assert found.kind == "step"
    assert abs(found.at - at) <= 1
    assert found.after - found.before == pytest.approx(math.log(5), abs=0.1)


@pytest.mark.parametrize("direction", [1, -1])
def test_a_drift_is_found_with_its_size(direction):
    series = 100 + direction * np.linspace(-15, 15, 100) + np.random.default_rng(5).normal(0, 3, 100)
    found = change(series)
    assert found.p < 0.001
    assert found.kind == "trend"
    assert found.after - found.before == pytest.approx(direction * 20, abs=3)


@pytest.mark.parametrize(
    "curve",
    [
        np.log(np.linspace(1, 3, 100)),
        np.log(1 + 19 * np.exp(-np.arange(100) / 12)),
        np.log(np.interp(np.arange(100), [0, 48], [20, 1.2])),
        np.log(1 + np.exp((np.arange(100) - 90) / 3)),
    ],
    ids=["linear growth", "decay", "late start", "late growth"],
)
def test_a_smooth_curve_is_a_change_though_what_a_step_leaves_of_it_is_autocorrelated(curve):
    for noise in (0.0, 0.04):
        assert change(curve + noise * np.random.default_rng(4).standard_normal(100)).p <= NOMINAL / 2


@pytest.mark.slow
def test_one_far_point_is_seldom_a_step():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(200):
        series = rng.normal(0, 1, 100)
        series[rng.integers(100)] = 1000.0
        found += change(series).p <= NOMINAL
    assert found <= 6


@pytest.mark.parametrize("series", [np.arange(19.0), np.full(100, 5.0), np.zeros(100), np.zeros(0)])
def test_few_or_equal_points_have_no_change(series):
    assert change(series).p == 1.0


def test_the_same_series_has_the_same_p():
    series = 0.5 * autoregressive(np.random.default_rng(8), 1, 100, 0.7)[0] + np.linspace(0, 1.2, 100)
    assert change(series) == change(series.copy())
