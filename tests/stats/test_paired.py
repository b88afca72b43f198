"""Paired scores: tests and intervals against SciPy, literal transcriptions and simulations of known truth."""

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
from scipy import stats

from seamark.stats.paired import mcnemar_p, mean_difference, mean_limits, sign_flip

approx = pytest.approx


def scores_of(table):
    """Scores of items that both, only base, only new and neither solve, in this order."""
    both, only_base, only_new, neither = table
    base = [1] * (both + only_base) + [0] * (only_new + neither)
    new = [1] * both + [0] * only_base + [1] * only_new + [0] * neither
    return base, new


def clustered(rng, clusters, within=1.0, between=1.0, items=(3, 9)):
    """Scores of base and new with a true mean difference of 0, and the cluster of each item."""
    sizes = rng.integers(*items, clusters)
    labels = np.repeat(np.arange(clusters), sizes)
    base = rng.normal(0, 1, len(labels))
    new = base + rng.normal(0, between, clusters)[labels] + rng.normal(0, within, len(labels))
    return base, new, labels


@pytest.mark.parametrize("table", [(40, 9, 2, 7), (0, 0, 1, 0), (3, 5, 5, 1), (0, 3, 14, 0), (500, 61, 102, 400)])
def test_mcnemar_is_the_two_sided_binomial_test_of_the_pairs_that_differ(table):
    assert mcnemar_p(*scores_of(table)) == approx(stats.binomtest(table[1], table[1] + table[2]).pvalue, rel=1e-10)


def test_mcnemar_without_discordant_pairs_has_p_1():
    assert mcnemar_p(*scores_of((5, 0, 0, 3))) == 1.0


def test_mcnemar_takes_booleans_and_refuses_other_scores():
    assert mcnemar_p([True, False], np.array([True, True])) == 1.0
    with pytest.raises(ValueError, match="0 and 1"):
        mcnemar_p([1, 0, 0.5], [1, 0, 1])


def enumerated_p(sums):
    observed = abs(sum(sums))
    patterns = list(product((1, -1), repeat=len(sums)))
    return np.mean([abs(sum(s * v for s, v in zip(signs, sums, strict=True))) >= observed for signs in patterns])


@pytest.mark.parametrize("seed", range(4))
def test_sign_flips_are_those_of_scipy_and_of_a_literal_enumeration(seed):
    rng = np.random.default_rng(seed)
    base, new = rng.random(10), rng.random(10) + 0.1
    result = sign_flip(base, new, seed=0)
    scipys = stats.permutation_test((new - base,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert result.p == approx(scipys.pvalue) == approx(enumerated_p(list(new - base)))
    assert (result.method, result.units, result.arrangements) == ("exact", 10, 1024)
    assert sign_flip(new, base, seed=0).p == result.p


def test_the_signs_of_a_cluster_flip_together():
    base, new = np.zeros(7), np.array([1.0, 2.0, 2.0, 0.5, -1.0, 3.0, 1.5])
    labels = ["a", "a", "b", "b", "c", "c", "c"]
    result = sign_flip(base, new, seed=0, clusters=labels)
    assert result.p == enumerated_p([3.0, 2.5, 3.5]) == 2 / 8
    assert result.units == 3
    assert result.p > sign_flip(base, new, seed=0).p


def test_items_without_a_difference_do_not_change_p_and_leave_it_exact():
    base, new = scores_of((4000, 3, 11, 4000))
    result = sign_flip(base, new, seed=0)
    assert (result.method, result.arrangements, result.units) == ("exact", 2**14, 8014)
    assert result.p == approx(mcnemar_p(base, new))
    for equal in ([1, 1, 0], [0, 0, 0]):
        assert sign_flip(equal, equal, seed=0).p == 1.0


def test_clusters_with_a_sum_of_0_but_for_rounding_leave_p_exact():
    new = np.append(np.tile([0.1, 0.2, -0.3], 30), [1.0, 2.0, 4.0])
    labels = np.append(np.repeat(np.arange(30), 3), [30, 31, 32])
    assert 0.1 + 0.2 - 0.3 != 0
    result = sign_flip(np.zeros(93), new, seed=0, clusters=labels)
    assert (result.method, result.arrangements, result.units, result.p) == ("exact", 8, 33, 2 / 8)


def test_rounding_errors_do_not_change_p():
    steps = np.array([1, 2, -3, 1, 4, 2, -1, 3, 2, 1])
    exact = enumerated_p(steps.tolist())
    for base, unit in (
        (np.zeros(10), 0.1),
        (np.full(10, 0.7), 0.1),
        (np.full(10, 1000.3), 0.01),
        (np.ones(10), 1 / 3),
    ):
        new = base + steps * unit
        assert sign_flip(base, new, seed=0).p == exact
        assert sign_flip(new, base, seed=0).p == exact
    naive = enumerated_p([0.1, 0.2, -0.3, 0.1, 0.4])
    assert naive != sign_flip(np.zeros(5), [0.1, 0.2, -0.3, 0.1, 0.4], seed=0).p == enumerated_p([1, 2, -3, 1, 4])


def test_random_signs_agree_with_the_exact_p_and_never_give_0():
    base, new = scores_of((5, 6, 18, 5))
    result = sign_flip(base, new, seed=1)
    exact = mcnemar_p(base, new)
    assert (result.method, result.arrangements) == ("monte-carlo", 9999)
    assert abs(result.p - exact) < 4 * math.sqrt(exact * (1 - exact) / 9999)
    assert sign_flip(base, new, seed=1) == result
    assert sign_flip(base, new, seed=2).p != result.p
    assert sign_flip(np.zeros(200), np.ones(200), seed=1).p == 1 / 10_000
    assert sign_flip(np.zeros(200), np.ones(200), seed=1, resamples=999).p == 1 / 1000


def test_random_signs_of_more_units_than_fit_in_one_block_are_all_counted():
    rng = np.random.default_rng(4)
    difference = rng.normal(0.015, 1, 3000)
    result = sign_flip(np.zeros(3000), difference, seed=0, resamples=2000)
    expected = 2 * stats.norm.sf(abs(difference.sum()) / math.sqrt((difference**2).sum()))
    assert 0.1 < expected < 0.9
    assert result.p == approx(expected, abs=4 * math.sqrt(0.25 / 2000))


def test_sixteen_units_are_enumerated_and_seventeen_are_drawn():
    rng = np.random.default_rng(3)
    for units, method in ((16, "exact"), (17, "monte-carlo")):
        assert sign_flip(np.zeros(units), rng.normal(0, 1, units), seed=0).method == method


def test_the_sign_flip_test_has_false_alarms_at_its_level_in_clustered_scores_and_the_one_by_items_more():
    alarms = {"clusters": 0, "items": 0}
    draws = 500
    for seed in range(draws):
        base, new, labels = clustered(np.random.default_rng(seed), 10)
        alarms["clusters"] += sign_flip(base, new, seed=0, clusters=labels).p <= 0.05
        alarms["items"] += sign_flip(base, new, seed=0, resamples=199).p <= 0.05
    low, high = stats.binom.ppf([0.005, 0.995], draws, 50 / 1024)  # 50 of 1,024 patterns reach p <= 0.05
    assert low <= alarms["clusters"] <= high
    assert alarms["items"] > 2 * high


def test_random_signs_have_false_alarms_at_their_level():
    rng = np.random.default_rng(8)
    draws = 1000
    alarms = sum(sign_flip(np.zeros(20), rng.laplace(0, 1, 20), seed=s, resamples=99).p <= 0.05 for s in range(draws))
    low, high = stats.binom.ppf([0.005, 0.995], draws, 0.05)
    assert low <= alarms <= high


def literal_error(base, new, labels):
    count, mean, squares = len(base), np.mean(np.subtract(new, base)), 0.0
    for cluster in set(labels):
        total = 0.0
        for one, other, label in zip(base, new, labels, strict=True):
            if label == cluster:
                total += other - one - mean
        squares += total**2
    groups = len(set(labels))
    return math.sqrt(groups / (groups - 1) * squares) / count


@pytest.mark.parametrize("seed", range(3))
def test_the_clustered_error_is_that_of_the_formula_written_as_loops(seed):
    base, new, labels = clustered(np.random.default_rng(seed), 7)
    order = np.random.default_rng(seed).permutation(len(labels))
    result = mean_difference(
        base[order], new[order], clusters=[f"document {n}" for n in labels[order]], confidence=0.9
    )
    error = literal_error(base, new, labels.tolist())
    assert result.standard_error == approx(error)
    assert result.difference == approx(np.mean(new - base))
    assert result.units == 7
    reach = stats.t.ppf(0.95, 6) * error
    assert result.interval.low == approx(result.difference - reach)
    assert result.interval.high == approx(result.difference + reach)
    assert result.interval.confidence == 0.9


def test_without_clusters_error_and_interval_are_those_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    base, new = rng.random(30), rng.random(30)
    result = mean_difference(base, new)
    assert result.standard_error == approx(np.std(new - base, ddof=1) / math.sqrt(30))
    limits = stats.ttest_rel(new, base).confidence_interval(0.95)
    assert (result.interval.low, result.interval.high) == approx((limits.low, limits.high))
    assert mean_difference(base, new, clusters=range(30)) == result


def test_clusters_of_one_size_have_the_interval_of_their_means():
    base, new, labels = clustered(np.random.default_rng(5), 12, items=(4, 5))
    means = (new - base).reshape(12, 4).mean(axis=1)
    limits = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    interval = mean_difference(base, new, clusters=labels).interval
    assert (interval.low, interval.high) == approx((limits.low, limits.high))


def test_copies_of_each_item_in_its_cluster_add_no_information():
    rng = np.random.default_rng(6)
    base, new = rng.random(15), rng.random(15)
    once = mean_difference(base, new)
    copied = mean_difference(np.tile(base, 9), np.tile(new, 9), clusters=np.tile(np.arange(15), 9))
    assert copied.standard_error == approx(once.standard_error)
    assert copied.interval.low == approx(once.interval.low)
    assert sign_flip(np.tile(base, 9), np.tile(new, 9), seed=0, clusters=np.tile(np.arange(15), 9)).p == approx(
        sign_flip(base, new, seed=0).p
    )


def test_equal_differences_have_no_spread_whatever_their_rounding():
    base = np.array([0.1, 0.7, 0.3, 0.2])
    result = mean_difference(base, base + 0.1)
    assert result.standard_error == 0.0
    assert result.interval.low == result.interval.high == approx(0.1)


def test_clustered_intervals_cover_the_truth_and_those_by_items_much_less():
    covered = {"clusters": 0, "items": 0}
    for seed in range(1000):
        base, new, labels = clustered(np.random.default_rng(seed), 30)
        for name, used in (("clusters", labels), ("items", None)):
            interval = mean_difference(base, new, clusters=used).interval
            covered[name] += interval.low <= 0 <= interval.high
    assert 930 <= covered["clusters"] <= 970
    assert covered["items"] < 800


def test_the_memory_of_many_signs_is_bounded():
    rng = np.random.default_rng(0)
    base, new = rng.random(10_000), rng.random(10_000)
    tracemalloc.start()
    sign_flip(base, new, seed=0, resamples=1000)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 40e6, "10,000 x 1,000 numbers at once are 80 MB"


CALLS = {
    "sign flip": lambda base, new, **more: sign_flip(base, new, seed=0, **more),
    "mean": mean_difference,
}


@pytest.mark.parametrize("call", [*CALLS.values(), mcnemar_p], ids=[*CALLS, "mcnemar"])
@pytest.mark.parametrize(
    ("base", "new"),
    [([], []), ([1, 0], [1]), ([1], [1, 0]), ([1, math.nan], [1, 0]), ([1, 0], [math.inf, 0]), ([[1, 0]], [[0, 1]])],
)
def test_scores_that_are_no_finite_pairs_are_refused(call, base, new):
    with pytest.raises(ValueError, match="scores"):
        call(base, new)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"], ["a", None], ["a", math.nan], np.array([1.0, np.nan])])
def test_labels_that_are_missing_are_refused(call, labels):
    with pytest.raises(ValueError, match="cluster label"):
        call([1, 0], [0, 0], clusters=labels)


@pytest.mark.parametrize("more", [{}, {"clusters": ["one"]}])
def test_a_single_unit_has_a_difference_and_no_interval(more):
    result = mean_difference([1.0], [3.0], **more)
    assert (result.difference, result.standard_error, result.interval) == (2.0, None, None)
    assert sign_flip([1.0], [3.0], seed=0, **more).p == 1.0


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan])
def test_impossible_levels_and_too_few_resamples_are_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        mean_difference([1, 0], [0, 0], confidence=confidence)
    with pytest.raises(ValueError, match="resamples"):
        sign_flip([1, 0], [0, 0], seed=0, resamples=0)


@pytest.mark.parametrize("items", [5, 12, 40])
def test_an_interval_of_a_mean_of_right_and_wrong_answers_covers_it_as_often_as_it_says_wherever_it_lies(items):
    right = np.arange(items + 1)
    shares = right / items
    found = [mean_limits(share, math.sqrt(share * (1 - share) / (items - 1)), items) for share in shares]
    for truth in np.linspace(0, 1, 101):
        covers = [each.low - 1e-12 <= truth <= each.high + 1e-12 for each in found]
        assert stats.binom.pmf(right, items, truth)[covers].sum() >= 0.95


def test_an_interval_of_equal_scores_is_that_of_what_a_sample_of_none_allows():
    assert mean_limits(0.0, 0.0, 40).high == pytest.approx(1 - 0.025 ** (1 / 40))
    assert mean_limits(1.0, 0.0, 12).low == pytest.approx(0.025 ** (1 / 12))


def test_an_interval_of_a_mean_follows_the_spread_of_scores_between_right_and_wrong():
    """Where scores differ little and are many, it is the t interval."""
    found = mean_limits(0.5, 0.01, 1000)
    assert (found.low, found.high) == pytest.approx((0.5 - 0.0196, 0.5 + 0.0196), abs=0.0005)
