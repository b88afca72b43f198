"""Both ends of statistics of times of which some are lower bounds, against the truth that these were made from."""

import math

import numpy as np
import pytest

from seamark.stats import censored
from seamark.stats.censored import exact_quantile
from seamark.stats.histogram import of
from seamark.stats.quantiles import interval_ranks, rank, ranks_of, samples_needed
from seamark.stats.range import Range

QUANTILES = (0.1, 0.5, 0.9, 0.99, 1.0)
NONE = np.zeros(0, dtype=np.int64)


def nearest(probability: float, count: int) -> tuple[int, int]:
    at = rank(probability, count)
    return at, at


def parted(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True times, those that are known, and bounds of the rest: some of one time-out, some of any moment."""
    true = rng.lognormal(14, 1, size).astype(np.int64) + 1
    timeout = int(np.quantile(true, rng.uniform(0.5, 1)))
    late = true > timeout
    cut = ~late & (rng.random(size) < rng.choice([0, 0, 0.1]))
    bounds = np.concatenate([np.full(int(late.sum()), timeout), rng.integers(0, true[cut] + 1)])
    return true, true[~late & ~cut], bounds


@pytest.mark.parametrize("seed", range(50))
def test_the_truth_lies_between_the_two_ends(seed):
    true, known, bounds = parted(np.random.default_rng(seed), 700)
    for probability in QUANTILES:
        truth = np.sort(true)[rank(probability, 700)]
        ranks = nearest(probability, 700)
        exact = exact_quantile(known, bounds, ranks)
        assert exact.low <= truth
        assert exact.high is None or truth <= exact.high
        pooled = censored.quantile(of(known), of(bounds), ranks)
        assert pooled.low == pytest.approx(exact.low, rel=0.0051)
        assert (pooled.high is None) == (exact.high is None)
        assert pooled.high is None or pooled.high == pytest.approx(exact.high, rel=0.0051)
    mean = censored.mean(of(known), of(bounds))
    assert mean.low <= true.mean()


def test_only_what_reaches_into_time_outs_has_no_upper_end():
    known, bounds = np.arange(1, 991), np.full(10, 2000)
    assert exact_quantile(known, bounds, nearest(0.99, 1000)) == Range.exact(990)
    assert exact_quantile(known, bounds, nearest(0.991, 1000)) == Range(low=2000, high=None)
    assert exact_quantile(known, NONE, nearest(1.0, 990)) == Range.exact(990)


def test_a_request_that_was_cut_off_early_moves_a_quantile_by_one_rank_at_most():
    ranks = nearest(0.5, 11)
    assert exact_quantile(np.arange(10, 20), np.array([3]), ranks) == Range(low=14, high=15)
    assert censored.quantile(of(np.arange(10, 20)), of(np.array([0])), ranks).high == pytest.approx(15, rel=0.005)
    assert censored.minimum(of(np.arange(10, 20)), of(np.array([3]))) == Range(low=3, high=10)
    few = np.random.default_rng(1).normal(15.5e6, 1e5, 286).astype(np.int64)
    assert exact_quantile(few, np.array([4_000_000]), nearest(0.5, 287)).is_narrow, "one of 287 is a number"
    assert censored.quantile(of(few), of(np.array([4_000_000])), nearest(0.5, 287)).is_narrow


def test_the_greatest_time_is_open_as_soon_as_one_request_has_no_answer():
    assert censored.maximum(of(np.array([5, 50])), of(np.array([7]))) == Range(low=50, high=None)
    assert censored.maximum(of(np.array([5, 50])), of(NONE)) == Range.exact(50)
    assert censored.maximum(of(NONE), of(NONE)) is None
    assert censored.mean(of(np.array([5, 50])), of(np.array([20]))) == Range(low=25, high=None)


@pytest.mark.parametrize(
    ("op", "limit", "met"), [("<=", 1.0, True), ("<=", 0.12, None), ("<=", 0.1, False), (">=", 0.1, True)]
)
def test_both_ends_on_one_side_of_a_limit_decide_it(op, limit, met):
    assert Range(low=0.117, high=0.125).meets(op, limit) is met
    assert Range(low=0.117, high=None).meets(op, limit) in (met, None)


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_with_few_samples_beyond_it_a_percentile_has_the_ends_of_its_order_statistic_interval(probability):
    stats = pytest.importorskip("scipy.stats")
    assert ranks_of(probability, 59) == (nearest(probability, 59) if probability == 0.5 else None)
    enough = samples_needed(probability)
    assert ranks_of(probability, max(60, enough)) == nearest(probability, max(60, enough))
    for count in {60, 71, 72, 200, 367, 368, 999, 3688, 3689, 9999}:
        if count < enough:
            low, high = ranks_of(probability, count)
            below = stats.binom(count, probability).cdf
            assert below(low) <= 0.025 < below(low + 1)
            assert below(count - 1) < 0.975 if high is None else below(high - 1) < 0.975 <= below(high)


def test_the_interval_of_a_median_covers_it_in_95_percent_and_no_narrower_one_does():
    def covered(low: int, high: int) -> float:
        return sum(math.comb(200, below) for below in range(low + 1, high + 1)) / 2**200

    low, high = interval_ranks(0.5, 200)
    assert covered(low, high) >= 0.95 > covered(low + 1, high - 1)


def test_the_interval_of_a_p99_is_open_under_368_samples():
    assert ranks_of(0.99, 367)[1] is None
    assert ranks_of(0.99, 368)[1] == 367
