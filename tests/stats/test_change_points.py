"""Change points of short series: as the paper defines them, where they were planted, and seldom in noise."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from scipy.stats import binom

from seamark.stats.change_points import e_divisive


def literal_statistic(x, y):
    """Q of Matteson and James (2014), equations 4 and 5 with alpha 1, as it is written there."""
    n, m = len(x), len(y)
    between = 2 / (m * n) * sum(abs(a - b) for a, b in product(x, y))
    within = [sum(abs(a - b) for a, b in combinations(z, 2)) / (len(z) * (len(z) - 1) / 2) for z in (x, y)]
    return m * n / (m + n) * (between - sum(within))


def literal_best(series, least):
    """The largest statistic over tau and kappa, and tau."""
    size = len(series)
    choices = [
        (literal_statistic(series[:tau], series[tau:kappa]), tau)
        for tau in range(least, size - least + 1)
        for kappa in range(tau + least, size + 1)
    ]
    return max(choices, default=(-np.inf, 0))


def literal(values, least, significance, permutations, rng):
    """The hierarchical search with its permutation test, a segment at a time."""
    bounds, found = [0, len(values)], {}
    while True:
        segments = [values[a:b] for a, b in pairwise(bounds)]
        best = [literal_best(each, least) for each in segments]
        at = max(range(len(best)), key=lambda each: best[each][0])
        if best[at][0] <= 0:
            return found
        as_large = 0
        for _ in range(permutations):
            largest = max(literal_best(list(rng.permutation(each)), least)[0] for each in segments)
            as_large += largest >= best[at][0] * (1 - 1e-9)
        p = (as_large + 1) / (permutations + 1)
        if p > significance:
            return found
        found[bounds[at] + best[at][1]] = best[at][0]
        bounds = sorted([*bounds, bounds[at] + best[at][1]])


@pytest.mark.parametrize(
    "values",
    [
        [10.0, 11, 10, 12, 11, 20, 21, 22, 20, 21],
        [1.0, 1.1, 0.9, 1.0, 5.0, 5.1, 4.9, 5.2, 1.0, 1.1, 0.9, 1.05],
        [3.0, 1.0, 2.0, 5.0, 4.0, 2.5, 3.5, 1.5],
        [7.0, 7, 7, 7, 9, 9, 9, 9, 9],
    ],
)
@pytest.mark.parametrize("least", [2, 3])
def test_change_points_and_statistics_are_those_of_the_papers_formulas(values, least):
    found = e_divisive(values, seed=1, significance=0.1, permutations=99, least=least)
    expected = literal(values, least, 0.1, 99, np.random.default_rng(2))
    assert {each.at: each.q for each in found} == pytest.approx(dict(sorted(expected.items())))


@pytest.mark.parametrize("at", [4, 10, 20, 36])
def test_a_step_is_found_at_its_place(at):
    rng = np.random.default_rng(at)
    values = rng.normal(100, 1, 40)
    values[at:] -= 10
    [found] = e_divisive(list(values))
    assert found.at == at
    assert found.p <= 0.01


def test_two_steps_and_the_way_back_are_all_found_in_order():
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.normal(mean, 1, 12) for mean in (100, 90, 100)])
    assert [each.at for each in e_divisive(list(values))] == [12, 24]


def test_one_night_that_was_off_is_no_change_point():
    values = list(np.random.default_rng(3).normal(100, 1, 30))
    values[15] = 40.0
    assert e_divisive(values) == ()


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5, [4.0] * 30])
def test_a_series_that_is_short_or_flat_has_none(values):
    assert e_divisive(values) == ()


def test_the_same_series_has_the_same_change_points_with_the_same_seed():
    values = list(np.random.default_rng(5).normal(0, 1, 30)) + list(np.random.default_rng(6).normal(1, 1, 30))
    assert e_divisive(values, seed=3) == e_divisive(values, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["normal", "standard_exponential"])
@pytest.mark.parametrize("size", [8, 20])
def test_noise_of_one_level_has_change_points_at_the_nominal_rate(noise, size):
    rng = np.random.default_rng(size)
    count, nominal = 300, 0.05
    series = [list(getattr(rng, noise)(size=size)) for _ in range(count)]
    false = sum(
        bool(e_divisive(values, seed=at, significance=nominal, permutations=199)) for at, values in enumerate(series)
    )
    assert false <= binom.ppf(0.999, count, nominal)
    if size == 20:  # a short series has too few arrangements to reach the rate from below
        assert false >= binom.ppf(0.001, count, nominal)


@pytest.mark.parametrize(
    "wrong", [{"least": 1}, {"permutations": 0}, {"significance": 0.0}, {"significance": 1.0}, {"significance": 7}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError):
        e_divisive([1.0] * 10, **wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="not finite"):
        e_divisive([1.0, 2.0, value] * 4)


@pytest.mark.parametrize(("size", "found"), [(8, []), (9, []), (11, [5]), (12, [5])])
def test_fewer_than_ten_values_have_too_few_arrangements_for_a_p_of_one_percent(size, found):
    values = [100.0 + at % 3 for at in range(5)] + [10.0 + at % 3 for at in range(size - 5)]
    assert [each.at for each in e_divisive(values)] == found
