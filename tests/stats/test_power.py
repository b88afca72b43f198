"""What a design can tell: the figures against tables and against a test that is done in full."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, wilcoxon

from seamark.stats.compare import reachable_p
from seamark.stats.decision import detectable_shift, repetitions_for


def smallest_p(repetitions: int) -> float:
    return reachable_p("rank-sum", repetitions, repetitions)


@pytest.mark.parametrize(("repetitions", "p"), [(1, 1.0), (2, 1 / 3), (3, 0.10), (4, 0.0286), (5, 0.0079)])
def test_the_smallest_p_is_that_of_complete_separation(repetitions: int, p: float) -> None:
    assert smallest_p(repetitions) == pytest.approx(p, rel=0.01)
    low, high = range(repetitions), range(100, 100 + repetitions)
    assert smallest_p(repetitions) == pytest.approx(mannwhitneyu(low, high, method="exact").pvalue)


@pytest.mark.parametrize(("comparisons", "repetitions"), [(1, 4), (2, 5), (6, 5), (7, 6), (17, 6)])
def test_more_comparisons_take_more_repetitions(comparisons: int, repetitions: int) -> None:
    assert repetitions_for(0.05, comparisons) == repetitions
    assert comparisons * smallest_p(repetitions) <= 0.05 < comparisons * smallest_p(repetitions - 1)


def test_three_repetitions_detect_nothing() -> None:
    assert detectable_shift(3) is None


@pytest.mark.parametrize("repetitions", [4, 5, 8, 15])
def test_a_shift_of_the_stated_size_is_found_with_the_stated_power(repetitions: int) -> None:
    shift = detectable_shift(repetitions)
    assert shift is not None
    draw = np.random.default_rng(99)
    low = draw.standard_normal((4000, repetitions))
    high = draw.standard_normal((4000, repetitions)) + shift
    found = mannwhitneyu(low, high, method="exact", axis=1).pvalue <= 0.05
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_simulation_and_approximation_meet() -> None:
    simulated, approximated = detectable_shift(30), detectable_shift(31)
    assert simulated is not None
    assert approximated is not None
    assert simulated == pytest.approx(approximated, rel=0.08)


def test_pairs_are_in_the_same_unit_and_lose_nothing_by_blocks_that_differ() -> None:
    """2.33 at five repetitions, 2.51 at six, where pairs begin: both in standard deviations within a block."""
    unpaired, paired = detectable_shift(5), detectable_shift(6, paired=True)
    assert (unpaired, paired) == (pytest.approx(2.33, abs=0.03), pytest.approx(2.51, abs=0.03))
    assert paired is not None
    draw = np.random.default_rng(5)
    blocks = 10 * draw.standard_normal((4000, 6))
    low, high = (blocks + draw.standard_normal((4000, 6)) for _ in range(2))
    found = wilcoxon(high + paired - low, axis=1, method="exact").pvalue <= 0.05
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)
