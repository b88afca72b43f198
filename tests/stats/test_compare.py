"""Comparison of two groups of trials: golden vectors, the rate of false alarms, and verdicts."""

from itertools import product

import numpy as np
import pytest

from seamark.stats.compare import compare, compare_family, hodges_lehmann, rank_test
from seamark.stats.multiple import benjamini_hochberg, holm
from seamark.stats.power import smallest_p

approx = pytest.approx

PS = [0.01, 0.04, 0.03, 0.005]


def test_holm_and_benjamini_hochberg_give_the_published_numbers():
    assert holm(PS) == approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(PS) == approx([0.02, 0.04, 0.04, 0.02])
    assert holm([]) == benjamini_hochberg([]) == []


def test_holm_never_exceeds_one_and_keeps_the_order():
    adjusted = holm([0.9, 0.8, 0.001])
    assert adjusted == approx([1.0, 1.0, 0.003])


@pytest.mark.parametrize(("repetitions", "p"), [(3, 0.10), (4, 0.029), (5, 0.0079)])
def test_groups_that_do_not_overlap_reach_exactly_the_smallest_p_of_their_size(repetitions, p):
    low, high = np.arange(repetitions) + 1.0, np.arange(repetitions) + 100.0
    assert rank_test(low, high) == approx(p, abs=5e-4) == approx(smallest_p(repetitions), abs=5e-4)
    tied = np.array([1.0, *low[:-1]])
    assert rank_test(tied, high) == approx(p, abs=5e-4)


def test_equal_groups_are_not_told_apart_and_have_no_shift():
    found = compare([10, 11, 12, 13, 14], [10, 11, 12, 13, 14], better="higher")
    assert found.p == approx(1.0)
    assert found.shift.estimate == 0
    assert found.shift.low <= 0 <= found.shift.high
    assert found.verdict in ("inconclusive", "equivalent")


def test_the_shift_is_the_median_of_all_differences_with_a_reproducible_interval():
    one, other = np.array([1.0, 2.0, 4.0]), np.array([11.0, 12.0, 15.0])
    found = hodges_lehmann(one, other)
    assert found.estimate == 10.0
    every = [
        np.median(np.subtract.outer(some_other, some))
        for some in product(one, repeat=3)
        for some_other in product(other, repeat=3)
    ]
    assert (found.low, found.high) == approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.51)
    assert found.low < 10 < found.high
    assert hodges_lehmann(one, other) == found


@pytest.mark.parametrize(("better", "verdict"), [("higher", "better"), ("lower", "worse")])
def test_a_clear_doubling_is_better_or_worse_by_the_metric_s_own_direction(better, verdict):
    base, new = [100, 101, 99, 102, 98], [200, 201, 199, 202, 198]
    found = compare(base, new, better=better)
    assert found.ratio.estimate == approx(2.0, rel=0.01)
    assert found.verdict == verdict
    assert compare(new, base, better=better).verdict != verdict


def test_a_difference_too_small_to_matter_is_equivalent_though_significant():
    found = compare([100, 101, 102, 103, 104], [105, 106, 106.5, 107, 107.4], better="higher", threshold_ratio=0.1)
    assert found.p < 0.05
    assert found.verdict == "equivalent"


def test_three_repetitions_are_inconclusive_however_far_apart_they_are():
    found = compare([1, 1.01, 1.02], [50, 51, 52], better="higher")
    assert found.reachable_p == approx(0.1)
    assert found.verdict == "inconclusive"


def test_a_family_needs_more_than_one_of_its_members_alone():
    pair = ([100, 101, 99, 102], [200, 201, 199, 202])
    assert compare(*pair, better="higher").verdict == "better"
    family = compare_family(dict.fromkeys("abc", pair), better="higher")
    assert {found.verdict for found in family.values()} == {"inconclusive"}
    assert family["a"].p_adjusted == approx(3 * family["a"].p)


def test_a_single_value_or_a_zero_is_inconclusive_and_not_an_error():
    assert compare([1], [2], better="higher").verdict == "inconclusive"
    assert compare([0, 1, 2, 3], [5, 6, 7, 8], better="higher").ratio is None
    with pytest.raises(ValueError, match="at least one value"):
        compare([], [1], better="higher")


@pytest.mark.slow
def test_runs_of_the_same_thing_are_flagged_no_more_often_than_the_nominal_rate():
    rng = np.random.default_rng(3)
    flagged = sum(rank_test(rng.lognormal(0, 0.2, 5), rng.lognormal(0, 0.2, 5)) < 0.05 for _ in range(1000))
    assert flagged <= 50 + 3 * (1000 * 0.05 * 0.95) ** 0.5
    assert flagged > 10, "a test that never rejects would pass the line above"
    verdicts = [
        compare(rng.lognormal(0, 0.2, 5), rng.lognormal(0, 0.2, 5), better="higher").verdict for _ in range(30)
    ]
    assert sum(verdict in ("better", "worse") for verdict in verdicts) <= 5
