"""Quantiles of times of which some are lower bounds, against the truth that the bounds were made from."""

import numpy as np
import pytest

from seamark.stats import censored
from seamark.stats.censored import Estimate, exact_quantile
from seamark.stats.histogram import of
from seamark.stats.quantiles import quantiles

QUANTILES = (0.1, 0.5, 0.9, 0.99, 1.0)


def parted(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True times, those that are known, and bounds of the rest: some of one time-out, some of any moment."""
    true = rng.lognormal(14, 1, size).astype(np.int64) + 1
    timeout = int(np.quantile(true, rng.uniform(0.5, 1)))
    late = true > timeout
    cut = ~late & (rng.random(size) < rng.choice([0, 0, 0.1]))
    bounds = np.concatenate([np.full(int(late.sum()), timeout), rng.integers(0, true[cut] + 1)])
    return true, true[~late & ~cut], bounds


@pytest.mark.parametrize("seed", range(50))
def test_a_quantile_is_the_true_one_or_says_that_it_is_a_lower_bound(seed):
    true, known, bounds = parted(np.random.default_rng(seed), 700)
    for probability in QUANTILES:
        [truth] = quantiles(true, (probability,))
        exact = exact_quantile(known, bounds, probability)
        assert exact.value == truth or (exact.lower_bound and exact.value <= truth)
        pooled = censored.quantile(of(known), of(bounds), probability)
        assert pooled.value == pytest.approx(truth, rel=0.011) or (
            pooled.lower_bound and pooled.value <= 1.011 * truth
        )
        assert pooled.lower_bound >= exact.lower_bound


def test_only_what_reaches_into_time_outs_is_a_lower_bound():
    known, bounds = np.arange(1, 991), np.full(10, 2000)
    assert exact_quantile(known, bounds, 0.99) == Estimate(value=990)
    assert exact_quantile(known, bounds, 0.991) == Estimate(value=2000, lower_bound=True)
    assert exact_quantile(known, np.zeros(0, dtype=np.int64), 1.0) == Estimate(value=990)


def test_a_bound_below_a_quantile_makes_it_uncertain_since_the_true_time_may_lie_above():
    assert exact_quantile(np.arange(10, 20), np.array([3]), 0.5) == Estimate(value=14, lower_bound=True)
    assert censored.quantile(of(np.arange(10, 20)), of(np.array([0])), 0.5).lower_bound
    assert censored.minimum(of(np.arange(10, 20)), of(np.array([3]))) == Estimate(value=3, lower_bound=True)


def test_the_greatest_time_is_a_lower_bound_as_soon_as_one_request_has_no_answer():
    assert censored.maximum(of(np.array([5, 50])), of(np.array([7]))) == Estimate(value=50, lower_bound=True)
    assert censored.maximum(of(np.array([5, 50])), of(np.zeros(0, dtype=np.int64))) == Estimate(value=50)
    assert censored.maximum(of(np.zeros(0, dtype=np.int64)), of(np.zeros(0, dtype=np.int64))) is None
