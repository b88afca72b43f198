"""Truncation and trend on series whose answer is known, and how often noise is taken for either."""

import numpy as np
import pytest

from seamark.stats.steady import condensed, mser, trend


def mser_by_the_book(series, batch=5):
    """White, Cobb and Spratt (2000), written as the formula stands."""
    size = len(series) // batch
    means = [float(np.mean(series[i * batch : (i + 1) * batch])) for i in range(size)]
    errors = {}
    for d in range(size // 2 + 1):
        kept = means[d:]
        middle = sum(kept) / len(kept)
        errors[d] = sum((value - middle) ** 2 for value in kept) / len(kept) ** 2
    return min(errors, key=errors.get) * batch


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_that_of_the_published_formula(seed):
    rng = np.random.default_rng(seed)
    series = rng.normal(100, 10, 137) + 300 * np.exp(-np.arange(137) / (1 + 5 * seed))
    assert mser(series).cut == mser_by_the_book(series)


def test_a_start_up_transient_is_cut_and_nothing_more():
    series = np.concatenate([np.full(20, 500.0), np.full(80, 100.0)]) + np.random.default_rng(1).normal(0, 2, 100)
    found = mser(series)
    assert 20 <= found.cut <= 45
    assert found.differs
    assert not found.at_limit


def test_a_series_that_settles_late_is_at_the_limit():
    rng = np.random.default_rng(1)
    series = np.concatenate([np.full(50, 500.0), np.full(50, 100.0)]) + rng.normal(0, 2, 100)
    assert mser(series).at_limit
    assert not mser(np.full(100, 5.0)).at_limit, "a constant has settled"
    assert mser(np.arange(100.0)).at_limit


@pytest.mark.parametrize("length", [0, 1, 7, 19])
def test_a_short_series_is_left_whole(length):
    assert mser(np.arange(float(length))).cut == 0
    assert trend(np.arange(min(7.0, length))).p == 1.0


def test_noise_is_seldom_cut_or_called_a_trend():
    rng = np.random.default_rng(7)
    cuts = limits = trends = 0
    for _ in range(500):
        series = rng.normal(100, 20, 100)
        found = mser(series)
        cuts += found.differs
        limits += found.differs and found.at_limit
        trends += trend(series).p < 0.01
    assert cuts <= 35
    assert limits <= 5
    assert trends <= 15


def test_a_step_late_in_the_series_is_a_trend_though_most_of_it_is_flat():
    series = np.concatenate([np.full(70, 500.0), np.full(30, 100.0)]) + np.random.default_rng(1).normal(0, 2, 100)
    found = trend(series)
    assert found.p < 0.001
    assert found.change_ratio < -0.5


def test_autocorrelated_noise_is_seldom_called_a_trend():
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(300):
        noise, series = rng.normal(0, 1, 100), np.zeros(100)
        for i in range(1, 100):
            series[i] = 0.5 * series[i - 1] + noise[i]
        found += trend(100 + series.reshape(-1, 5).mean(axis=1)).p < 0.01
    assert found <= 15


@pytest.mark.parametrize("direction", [1, -1])
def test_a_drift_is_found_with_its_size(direction):
    rng = np.random.default_rng(5)
    series = 100 + direction * np.linspace(-15, 15, 100) + rng.normal(0, 3, 100)
    found = trend(series)
    assert found.p < 0.001
    assert found.change_ratio == pytest.approx(direction * 0.2, abs=0.03)


def test_the_trend_p_is_that_of_kendall_s_tau_for_independent_values():
    from scipy.stats import kendalltau

    series = np.random.default_rng(3).permutation(60).astype(float)
    assert trend(series).p == pytest.approx(kendalltau(np.arange(60), series, method="asymptotic").pvalue, rel=0.1)


def test_a_long_series_is_condensed_to_means():
    assert condensed(np.arange(1000.0), 200).tolist() == [2.0 + 5 * i for i in range(200)]
    assert len(condensed(np.arange(604_800.0), 200)) <= 200
