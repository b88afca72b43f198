"""Answers to the same items: intervals and power against literal forms, verdicts at their stated rates, averages."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import optimize, stats

from seamark.analysis.comparison.factors import averages
from seamark.stats.paired_compare import is_not_worse, paired_test, paired_verdict
from seamark.stats.paired_proportions import detectable_difference, mcnemar_power, score_limits

approx = pytest.approx


def literal_statistic(n, b, c, difference):
    """Score statistic with the restricted likelihood maximised by a general search; b only base, c only new."""

    def minus_likelihood(rare):
        parts = ((b, rare), (c, rare + difference), (n - b - c, 1 - 2 * rare - difference))
        return -sum(count * np.log(max(share, 1e-300)) for count, share in parts)

    low, high = max(0.0, -difference), (1 - difference) / 2
    rare = optimize.minimize_scalar(
        minus_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    return (c - b - n * difference) / np.sqrt(n * (2 * rare + difference * (1 - difference)))


@pytest.mark.parametrize(("n", "b", "c"), [(50, 2, 12), (44, 3, 1), (500, 21, 6), (30, 7, 7), (200, 1, 4)])
def test_score_limits_are_where_the_statistic_of_the_restricted_likelihood_is_the_quantile(n, b, c):
    low, high = score_limits(n, b, c)
    assert low < (c - b) / n < high
    assert literal_statistic(n, b, c, low) == approx(1.95996, abs=2e-3)
    assert literal_statistic(n, b, c, high) == approx(-1.95996, abs=2e-3)


def test_score_limits_have_the_closed_form_without_discordant_pairs_and_turn_with_the_sides():
    z2 = stats.norm.ppf(0.975) ** 2
    assert score_limits(500, 0, 0) == approx((-z2 / (500 + z2), z2 / (500 + z2)), abs=1e-9)
    low, high = score_limits(80, 9, 4)
    assert score_limits(80, 4, 9) == approx((-high, -low), abs=1e-9)
    assert score_limits(5, 5, 0)[0] == -1.0
    assert score_limits(5, 0, 5)[1] == 1.0


@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 3, 3), (5, -1, 0)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="no part of"):
        score_limits(*counts)


def test_power_is_that_of_all_tables_added_one_by_one():
    n, difference, discordant = 12, 0.45, 0.6
    base, new = (discordant - difference) / 2, (discordant + difference) / 2
    whole = 0.0
    for b, c in product(range(n + 1), repeat=2):
        if b + c <= n and stats.binomtest(b, b + c).pvalue <= 0.05 if b + c else False:
            whole += comb(n, b) * comb(n - b, c) * base**b * new**c * (1 - base - new) ** (n - b - c)
    assert mcnemar_power(n, difference, discordant) == approx(whole, rel=1e-9)


def test_the_smallest_difference_has_the_power_and_a_smaller_one_has_not():
    found = detectable_difference(500, 0.1)
    assert found == approx(0.0407, abs=0.0005)
    assert mcnemar_power(500, found, 0.1) >= 0.8 > mcnemar_power(500, found - 0.001, 0.1)
    assert detectable_difference(500, 0.1, alpha=0.05 / 8) > found
    assert detectable_difference(500, 0.005) is None, "five answers of 500 reach no p of 0.05"


@pytest.mark.slow
def test_a_planted_loss_of_3_points_in_500_pairs_is_found_at_the_stated_power():
    rng = np.random.default_rng(7)
    stated = mcnemar_power(500, 0.03, 0.05)
    studies = rng.multinomial(500, [0.04, 0.01, 0.95], size=2000)
    rejected = np.mean([stats.binomtest(int(b), int(b + c)).pvalue <= 0.05 for b, c, _ in studies])
    assert rejected == approx(stated, abs=3 * np.sqrt(stated * (1 - stated) / 2000))
    assert 0.8 < stated < 0.9


def planted(rng, items, loss, gain, right=0.7):
    base = (rng.random(items) < right).astype(float)
    draw = rng.random(items)
    lost, won = (base == 1) & (draw < loss / right), (base == 0) & (draw < gain / (1 - right))
    return base, np.where(lost, 0.0, np.where(won, 1.0, base))


def test_right_and_wrong_answers_have_mcnemars_test_and_scores_or_clusters_the_sign_flip():
    base, new = planted(np.random.default_rng(1), 300, 0.05, 0.02)
    found = paired_test(base, new)
    assert (found.method, found.units, found.p_error) == ("mcnemar", 300, None)
    assert found.p == approx(stats.binomtest(found.lower, found.lower + found.higher).pvalue)
    alone = paired_test(base, new, clusters=[f"d{n}" for n in range(300)])
    assert alone == found, "clusters of one item each are no clusters"
    grouped = paired_test(base, new, clusters=[n // 5 for n in range(300)], largest_difference=1.0)
    assert (grouped.method, grouped.units, grouped.clustered) == ("sign-flip", 60, True)
    scored = paired_test(base / 2, new)
    assert scored.method == "sign-flip"
    assert 0 < scored.p_error < 0.01


def test_verdicts_need_the_whole_interval_within_the_margin_or_a_small_p():
    same = np.ones(500)
    few = same.copy()
    few[:3] = 0
    equal = paired_test(same, same)
    assert paired_verdict(equal, 1.0, better="higher", margin=0.01) == "equivalent"
    assert paired_verdict(equal, 1.0, better="higher", margin=None) == "inconclusive"
    assert paired_verdict(paired_test(same[:100], same[:100]), 1.0, better="higher", margin=0.01) == "inconclusive"
    lost = paired_test(same, few)
    assert paired_verdict(lost, lost.p, better="higher", margin=0.01) == "inconclusive"
    assert paired_verdict(lost, lost.p, better="higher", margin=0.02) == "equivalent"
    few[:40] = 0
    worse = paired_test(same, few)
    assert paired_verdict(worse, worse.p, better="higher", margin=0.01) == "worse"
    assert paired_verdict(worse, worse.p, better="lower", margin=0.01) == "better"
    assert not is_not_worse(worse, better="higher", margin=0.01)
    assert is_not_worse(worse, better="lower", margin=0.01)
    assert is_not_worse(paired_test(few, same), better="higher", margin=0.01), "a gain is no loss"


def test_a_single_changed_score_of_few_clusters_does_not_narrow_the_interval_below_what_was_not_seen():
    base = np.full(100, 0.5)
    new = base.copy()
    new[0] = 0.4
    clusters = [n // 2 for n in range(100)]
    blind, known = (paired_test(base, new, clusters=clusters, largest_difference=most) for most in (None, 1.0))
    assert blind.interval.low > -0.004
    assert known.interval.low < -0.06, "one of 50 clusters may hide up to 7 %"
    assert paired_test(base, base, clusters=clusters).interval is None


@pytest.mark.covers("E-FR29")
def test_clusters_that_differ_are_equivalent_by_their_own_spread_whatever_the_range():
    """40 clusters whose differences have an SD of 0.01: by the rule of three a margin of 0.02 took 183."""
    rng = np.random.default_rng(2)
    base, clusters = rng.random(200), np.repeat(np.arange(40), 5)
    new = base + np.repeat(rng.normal(0, 0.01, 40), 5)
    ranged, free = (paired_test(base, new, clusters=clusters, largest_difference=most) for most in (1.0, None))
    assert ranged.interval == free.interval
    assert paired_verdict(ranged, ranged.p, better="higher", margin=0.02) == "equivalent"
    means = (new - base).reshape(40, 5).mean(axis=1)
    expected = stats.t.interval(0.95, 39, loc=means.mean(), scale=stats.sem(means))
    assert (ranged.interval.low, ranged.interval.high) == approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [6, 20, pytest.param(100, marks=pytest.mark.sweep)])
def test_intervals_of_clusters_with_a_range_cover_the_truth_at_their_level(clusters):
    rng, draws, held = np.random.default_rng(clusters), 1000, 0
    for _ in range(draws):
        new = np.repeat(rng.normal(0.05, 0.1, clusters), 3)
        found = paired_test(np.zeros(len(new)), new, clusters=np.arange(len(new)) // 3, largest_difference=1.0)
        held += found.interval.low <= 0.05 <= found.interval.high
    assert held / draws == approx(0.95, abs=3 * (0.95 * 0.05 / draws) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("expected", [1, 3, 8])
def test_intervals_of_clusters_that_rarely_differ_still_cover_the_truth(expected):
    """One item of eight is lost in a few of 60 clusters; t alone covers 64 % where it is one cluster."""
    rng, draws, held = np.random.default_rng(expected), 1000, 0
    labels, base = np.repeat(np.arange(60), 8), np.ones(480)
    for _ in range(draws):
        new = base.copy()
        new[::8] -= rng.random(60) < expected / 60
        interval = paired_test(base, new, clusters=labels, largest_difference=1.0).interval
        held += interval.low <= -expected / 480 <= interval.high
    assert held / draws >= 0.93


@pytest.mark.sweep
def test_200_studies_of_two_equal_methods_differ_and_equal_no_more_often_than_stated():
    """Clustered and independent answers: better or worse in at most 5 %, equivalent at the margin's edge in at most
    5 %."""
    rng = np.random.default_rng(11)
    different = {"independent": 0, "clustered": 0}
    for _ in range(200):
        base, new = planted(rng, 500, 0.04, 0.04)
        found = paired_test(base, new)
        different["independent"] += paired_verdict(found, found.p, better="higher", margin=None) != "inconclusive"
        shift = np.repeat(rng.choice([-0.1, 0.0, 0.1], 100), 5)
        scores = rng.random(500)
        found = paired_test(scores, scores + shift, clusters=np.repeat(np.arange(100), 5))
        different["clustered"] += paired_verdict(found, found.p, better="higher", margin=None) != "inconclusive"
    assert all(count <= 19 for count in different.values()), different  # 99.7 % of binomial(200, 0.05)
    edge = 0
    for _ in range(400):
        base, new = planted(rng, 500, 0.02, 0.0)
        edge += paired_verdict(paired_test(base, new), 1.0, better="higher", margin=0.02) == "equivalent"
    assert edge <= 400 * 0.05


@pytest.mark.sweep
@pytest.mark.parametrize(("loss", "gain"), [(0.01, 0.01), (0.002, 0.0), (0.05, 0.02)])
def test_score_intervals_cover_the_truth_at_their_level(loss, gain):
    rng = np.random.default_rng(3)
    tables = rng.multinomial(300, [loss, gain, 1 - loss - gain], size=2000)
    limits = [score_limits(300, int(b), int(c)) for b, c, _ in tables]
    assert np.mean([low <= gain - loss <= high for low, high in limits]) > 0.93


def test_the_macro_average_counts_subsets_alike_and_the_micro_average_items():
    found = averages({"a": [1.0, 1.0, 1.0, 0.0], "b": [0.0]})
    assert (found["macro"], found["micro"], found["items"]) == (0.375, 0.6, 5)


@pytest.mark.parametrize("absent", [None, []])
def test_there_is_no_average_over_what_is_left_of_the_subsets(absent):
    found = averages({"a": [1.0], "b": absent, "c": [0.0]})
    assert (found["macro"], found["micro"], found["missing"]) == (None, None, ("b",))
