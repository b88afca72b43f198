"""MSER-5 truncation on series whose answer is known, and how often it cuts noise."""

import numpy as np
import pytest

from seamark.analysis.metrics.steady import mser


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


def test_noise_is_seldom_cut():
    rng = np.random.default_rng(7)
    found = [mser(rng.normal(100, 20, 100)) for _ in range(500)]
    assert sum(each.differs for each in found) <= 35
    assert sum(each.differs and each.at_limit for each in found) <= 5
