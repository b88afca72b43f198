"""Histogram and quantiles: the stated error holds, merging loses nothing, too few samples are said to be too few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.stats.histogram import RELATIVE_ERROR, Accumulator, Histogram, merge, of
from seamark.stats.quantiles import rank, samples_needed

values = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 2**62)), min_size=1, max_size=200).map(
    lambda numbers: np.array(numbers, dtype=np.int64) // 256
)
probability = st.floats(0.001, 0.999)


@given(values, probability)
def test_a_quantile_is_within_the_stated_relative_error_of_the_exact_one(numbers, q):
    exact = np.sort(numbers)[rank(q, len(numbers))]
    assert abs(of(numbers).quantile(q) - int(exact)) <= int(exact) * RELATIVE_ERROR * (1 + 1e-6)


@given(values, probability)
def test_an_exact_quantile_is_the_smallest_value_with_enough_at_or_below_it(numbers, q):
    found = np.sort(numbers)[rank(q, len(numbers))]
    assert found in numbers
    assert (numbers <= found).sum() >= q * len(numbers) - 1e-6
    assert (numbers < found).sum() < q * len(numbers) + 1e-6


@pytest.mark.slow
@given(values, values, values)
def test_merging_is_associative_commutative_and_the_same_as_counting_together(a, b, c):
    one, two, three = of(a), of(b), of(c)
    left, right = one.merged(two).merged(three), one.merged(two.merged(three))
    assert left == right == merge([three, one, two]) == of(np.concatenate([a, b, c]))
    assert left.count == len(a) + len(b) + len(c)
    assert left.mean == pytest.approx(float(np.mean(np.concatenate([a, b, c]).astype(float))))


@given(st.lists(values, max_size=4))
def test_arrays_that_are_added_one_by_one_count_as_one_array(arrays):
    accumulator = Accumulator()
    for numbers in arrays:
        accumulator.add(numbers)
    assert accumulator.histogram() == of(np.concatenate([np.array([], dtype=np.int64), *arrays]))


@given(values)
def test_an_empty_histogram_changes_nothing(numbers):
    assert of(numbers).merged(Histogram()) == of(numbers)
    assert of(np.array([], dtype=np.int64)).quantile(0.5) is None


def test_histograms_of_different_error_are_not_merged():
    with pytest.raises(ValueError, match="relative error"):
        of(np.array([1])).merged(of(np.array([1]), relative_error=0.01))


def test_the_sum_of_many_long_times_does_not_overflow():
    century_ns = 100 * 365 * 86400 * 10**9
    assert of(np.full(8, century_ns)).mean == century_ns


@pytest.mark.parametrize(("q", "needed"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1_000), (0.999, 10_000)])
def test_a_percentile_needs_ten_samples_beyond_it(q, needed):
    assert samples_needed(q) == needed


def test_a_row_of_a_bar_chart_holds_whole_buckets_and_no_row_between_them_is_empty_by_itself():
    rng = np.random.default_rng(5)
    values = np.sort((1e7 * rng.normal(1, 0.01, 50_000)).astype(np.int64))
    rows = of(values, 0.01).rows(14)
    assert 2 <= len(rows) <= 14
    assert sum(count for _, count in rows) == 50_000
    assert min(count for _, count in rows) > 0
    assert [upper for upper, _ in rows] == sorted({upper for upper, _ in rows})
    for upper, count in zip([upper for upper, _ in rows], np.cumsum([count for _, count in rows]), strict=True):
        assert np.searchsorted(values, upper, side="right") == pytest.approx(count, abs=1)


def test_few_large_values_have_the_last_row_and_do_not_stretch_the_others():
    values = np.concatenate([np.arange(100_000, 200_000), [10**9, 5 * 10**9]]).astype(np.int64)
    rows = of(values).rows(14)
    assert rows[-1][0] == 5e9
    assert 2 <= rows[-1][1] <= 0.001 * len(values)
    assert rows[-2][0] < 210_000
    assert sum(count for _, count in rows) == len(values)


@pytest.mark.parametrize("values", [[0, 0, 0], [7], [0, 5], [1, 10**12], []])
def test_rows_of_odd_histograms_hold_every_value(values):
    rows = of(np.array(values, dtype=np.int64)).rows(14)
    assert sum(count for _, count in rows) == len(values)
