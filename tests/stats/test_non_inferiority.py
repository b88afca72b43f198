"""Non-inferiority at a margin: limits against SciPy's t test, and the rates of verdicts at the margin itself."""

import math

import numpy as np
import pytest
from scipy import stats

from seamark.stats.non_inferiority import non_inferiority

approx = pytest.approx
HIGHER = {"better": "higher", "margin": 0.05}


def verdict_of(difference, **more):
    """Verdict for eleven differences with that mean and a standard error of 0.01."""
    spread = np.linspace(-1, 1, 11)
    spread *= 0.01 * math.sqrt(11) / spread.std(ddof=1)
    return non_inferiority(np.zeros(11), difference + spread, **{**HIGHER, **more}).verdict


def test_limits_are_those_of_the_two_one_sided_t_tests():
    rng = np.random.default_rng(0)
    base, new = rng.random(40), rng.random(40)
    result = non_inferiority(base, new, alpha=0.025, **HIGHER)
    above = stats.ttest_rel(new, base, alternative="greater").confidence_interval(0.975)
    below = stats.ttest_rel(new, base, alternative="less").confidence_interval(0.975)
    assert (result.low, result.high) == approx((above.low, below.high))
    assert (result.difference, result.margin, result.alpha) == (approx(np.mean(new - base)), 0.05, 0.025)


def test_a_verdict_turns_where_the_one_sided_limit_crosses_the_margin():
    reach = stats.t.ppf(0.95, 10) * 0.01
    for sign, better in ((1, "higher"), (-1, "lower")):
        assert verdict_of(sign * (-0.05 + reach + 1e-9), better=better) == "non-inferior"
        assert verdict_of(sign * (-0.05 + reach - 1e-9), better=better) == "inconclusive"
        assert verdict_of(sign * (-0.05 - reach + 1e-9), better=better) == "inconclusive"
        assert verdict_of(sign * (-0.05 - reach - 1e-9), better=better) == "inferior"


def test_a_limit_exactly_at_the_margin_is_inconclusive():
    base, new = np.zeros(9), np.linspace(-0.3, 0.1, 9)
    limits = non_inferiority(base, new, **HIGHER)
    assert limits.low < limits.high < 0
    for limit in (limits.low, limits.high):
        assert non_inferiority(base, new, better="higher", margin=-limit).verdict == "inconclusive"


def test_the_direction_of_the_score_decides_which_side_is_worse():
    assert (verdict_of(0.2), verdict_of(-0.2)) == ("non-inferior", "inferior")
    assert (verdict_of(0.2, better="lower"), verdict_of(-0.2, better="lower")) == ("inferior", "non-inferior")


def test_a_significant_loss_within_the_margin_is_non_inferior_and_with_a_margin_of_0_inferior():
    assert verdict_of(-0.025) == "non-inferior"
    assert verdict_of(-0.025, margin=0) == "inferior"
    assert verdict_of(0.0, margin=0) == "inconclusive"
    assert verdict_of(0.025, margin=0) == "non-inferior"


def test_at_the_margin_each_verdict_is_wrong_at_the_stated_rate_with_clusters_and_more_often_without():
    draws = 1000
    wrong = {"clusters": {"non-inferior": 0, "inferior": 0}, "items": {"non-inferior": 0, "inferior": 0}}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(25), rng.integers(3, 9, 25))
        base = rng.random(len(labels))
        new = base - 0.05 + rng.normal(0, 0.1, 25)[labels] + rng.normal(0, 0.1, len(labels))
        for name, used in (("clusters", labels), ("items", None)):
            verdict = non_inferiority(base, new, clusters=used, **HIGHER).verdict
            if verdict != "inconclusive":
                wrong[name][verdict] += 1
    low, high = stats.binom.ppf([0.002, 0.998], draws, 0.05)
    for verdict in ("non-inferior", "inferior"):
        assert low <= wrong["clusters"][verdict] <= high
        assert wrong["items"][verdict] > 1.5 * high


def test_equal_scores_are_inconclusive_unless_the_largest_difference_is_known_and_items_are_enough():
    few, enough = np.ones(58), np.ones(59)  # 0.95**59 < 0.05 < 0.95**58
    assert non_inferiority(enough, enough, **HIGHER).verdict == "inconclusive"
    assert non_inferiority(enough, enough, **HIGHER).low is None
    assert non_inferiority(few, few, largest_difference=1, **HIGHER).verdict == "inconclusive"
    result = non_inferiority(enough, enough, largest_difference=1, **HIGHER)
    assert result.verdict == "non-inferior"
    assert -result.low == result.high == approx(1 - 0.05 ** (1 / 59))


@pytest.mark.parametrize("shift", [0.0, 0.2, -0.3])
def test_limits_of_equal_differences_are_wrong_at_most_as_often_as_stated_if_rare_ones_are_the_largest(shift):
    clusters = 20
    result = non_inferiority(np.zeros(clusters), np.full(clusters, shift), largest_difference=1, **HIGHER)
    wrong = {"low": 0.0, "high": 0.0}
    for rare_share in np.linspace(0, 1, 2001):
        seen_in_no_cluster = (1 - rare_share) ** clusters
        if result.low > (1 - rare_share) * shift - rare_share:
            wrong["low"] = max(wrong["low"], seen_in_no_cluster)
        if result.high < (1 - rare_share) * shift + rare_share:
            wrong["high"] = max(wrong["high"], seen_in_no_cluster)
    assert wrong == {"low": approx(0.05, abs=0.001), "high": approx(0.05, abs=0.001)}
    assert max(wrong.values()) <= 0.05


def test_a_single_cluster_is_inconclusive_without_limits():
    result = non_inferiority([0.1, 0.2], [0.9, 0.8], clusters=["a", "a"], largest_difference=1, **HIGHER)
    assert (result.low, result.high, result.verdict) == (None, None, "inconclusive")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"margin": -0.01}, "margin"),
        ({"margin": math.nan}, "margin"),
        ({"margin": math.inf}, "margin"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": 0.5}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"largest_difference": 0.9}, "largest_difference"),
        ({"largest_difference": math.nan}, "largest_difference"),
        ({"largest_difference": math.inf}, "largest_difference"),
        ({"clusters": ["a"]}, "cluster label"),
    ],
)
def test_settings_that_make_no_sense_are_refused(more, name):
    with pytest.raises(ValueError, match=name):
        non_inferiority([1, 0], [0, 0], **{**HIGHER, **more})


def test_scores_that_are_no_finite_pairs_are_refused():
    for base, new in (([], []), ([1], [1, 0]), ([math.nan], [1])):
        with pytest.raises(ValueError, match="scores"):
            non_inferiority(base, new, **HIGHER)
