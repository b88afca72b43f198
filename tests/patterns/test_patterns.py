"""Each pattern does what its name says: its rate, in each part of the load, and the burstiness of its gaps."""

from collections.abc import Callable
from itertools import islice, pairwise
from statistics import fmean, pvariance

import numpy as np
import pytest
from scipy import stats

from seamark.patterns.patterns import Bursts, Constant, Diurnal, Gamma, Pattern, Poisson, Ramp, Steps
from seamark.patterns.table import schedule


def arrivals_s(pattern: Pattern, until_s: float, seed: int = 7) -> np.ndarray:
    return np.concatenate(list(schedule(pattern, seed=seed, until_s=until_s))) / 1e9


def counts(at_s: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    return np.histogram(at_s, edges_s)[0]


@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(
    ("pattern", "cv2"),
    [
        (Constant(rate_rps=2), 0),
        (Poisson(rate_rps=2), 1),
        (Gamma(rate_rps=2, burstiness=1), 1),
        (Gamma(rate_rps=2, burstiness=0.25), 4),
        (Gamma(rate_rps=2, burstiness=5), 1 / 5),
        (Gamma(rate_rps=2, burstiness=1000), 0.001),
    ],
)
def test_a_pattern_has_the_rate_and_burstiness_its_name_promises(pattern: Pattern, cv2: float) -> None:
    at_s = list(islice(pattern.arrivals(np.random.default_rng(1)), 40_000))
    gaps_s = [later - earlier for earlier, later in pairwise(at_s)]
    assert 1 / fmean(gaps_s) == pytest.approx(2, rel=0.02)
    assert pvariance(gaps_s) / fmean(gaps_s) ** 2 == pytest.approx(cv2, rel=0.06)
    assert pattern.gap_variation**2 == pytest.approx(cv2 or 1), "of even arrivals the bound"


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        Poisson(rate_rps=500.0),
        Gamma(rate_rps=500.0, burstiness=0.1),
        Gamma(rate_rps=500.0, burstiness=20.0),
        Bursts(rate_rps=200.0, burst_rps=1700.0, burst_s=2.0, every_s=10.0),
        Diurnal(rate_rps=500.0, amplitude=0.9, period_s=20.0),
    ],
)
def test_the_mean_rate_over_many_seeds_is_the_one_asked_for(pattern: Pattern) -> None:
    seen = [arrivals_s(pattern, 40.0, seed).size for seed in range(60)]
    error = np.std(seen, ddof=1) / len(seen) ** 0.5
    assert abs(fmean(seen) - 20_000) < 4 * error + 5  # gamma gaps begin as if an arrival had just come
    assert pattern.expected(40.0) == pytest.approx(20_000)
    if not isinstance(pattern, Gamma):
        assert np.var(seen, ddof=1) / 20_000 == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize(
    ("pattern", "distribution"),
    [
        (Poisson(rate_rps=1000.0), stats.expon(scale=1e-3)),
        (Gamma(rate_rps=1000.0, burstiness=0.5), stats.gamma(0.5, scale=2e-3)),
        (Gamma(rate_rps=1000.0, burstiness=3.0), stats.gamma(3, scale=1e-3 / 3)),
    ],
)
def test_gaps_are_distributed_as_the_name_says_and_never_clamped(pattern: Pattern, distribution: object) -> None:
    gaps_s = np.diff(arrivals_s(pattern, 100.0))
    assert stats.kstest(gaps_s, distribution.cdf).pvalue > 0.01
    assert gaps_s.max() > distribution.ppf(1 - 1e-4)
    assert gaps_s.min() < distribution.ppf(1e-3)


def test_gamma_of_shape_one_and_vllms_formula_agree() -> None:
    ours = np.diff(arrivals_s(Gamma(rate_rps=10.0, burstiness=0.3), 5000.0))
    theirs = np.random.default_rng(3).gamma(shape=0.3, scale=1 / (10 * 0.3), size=50_000)
    assert stats.ks_2samp(ours, theirs).pvalue > 0.01


def test_very_bursty_gaps_may_tie_but_keep_the_rate() -> None:
    at_s = arrivals_s(Gamma(rate_rps=1000.0, burstiness=0.01), 2000.0)
    assert (np.diff(at_s) == 0).mean() > 0.3
    assert at_s.size == pytest.approx(2_000_000, rel=0.03)  # four times its standard error


def test_a_constant_load_sends_rate_times_duration_requests_without_drift() -> None:
    at_s = arrivals_s(Constant(rate_rps=3.0), 3000.0)
    assert at_s.size == 9000
    assert at_s[-1] == round(8999 / 3 * 1e9) / 1e9


@pytest.mark.parametrize(("low", "high"), [(100.0, 900.0), (900.0, 100.0), (500.0, 500.0)])
def test_a_ramp_goes_linearly_from_one_rate_to_the_other_and_stays_there(low: float, high: float) -> None:
    seen = counts(arrivals_s(Ramp(rate_rps=low, to_rps=high, over_s=10.0), 15.0), np.arange(16))
    for second in range(15):
        middle_s = min(second + 0.5, 10.0)
        assert seen[second] == pytest.approx(low + (high - low) * middle_s / 10, abs=2)


def test_steps_have_their_rates_equal_gaps_and_the_last_one_stays() -> None:
    at_s = arrivals_s(Steps(rates_rps=(50.0, 400.0, 0.0, 100.0), lengths_s=(2.0, 3.0, 4.0, 1.0)), 20.0)
    assert counts(at_s, np.array([0, 2, 5, 9, 10, 20])).tolist() == [100, 1200, 0, 100, 1000]
    for start_s, end_s, rate_rps in [(0, 2, 50), (2, 5, 400), (9, 20, 100)]:
        gaps_s = np.diff(at_s[(at_s >= start_s) & (at_s < end_s)])
        assert gaps_s == pytest.approx(1 / rate_rps, abs=2e-9)


def test_steps_may_begin_and_end_with_silence() -> None:
    at_s = arrivals_s(Steps(rates_rps=(0.0, 10.0, 0.0), lengths_s=(1.0, 2.0, 1.0)), 1000.0)
    assert at_s == pytest.approx(np.arange(20) / 10 + 1)


def test_bursts_have_both_rates_and_lie_in_the_middle_of_their_periods() -> None:
    at_s = arrivals_s(Bursts(rate_rps=100.0, burst_rps=1000.0, burst_s=2.0, every_s=10.0), 1000.0)
    seen = counts(at_s % 10, np.array([0, 4, 6, 10]))
    expected = np.array([4, 2, 4]) * [100, 1000, 100] * 100
    assert (np.abs(seen - expected) < 4 * expected**0.5).all()
    assert stats.chisquare(counts(at_s % 10, np.linspace(4, 6, 41))).pvalue > 0.01
    inside = (at_s % 10 > 4) & (at_s % 10 < 6)
    gaps_s = np.diff(at_s)[inside[1:] & inside[:-1] & (np.diff(at_s) < 1)]
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=0.02)


def test_every_burst_is_there_and_none_is_at_an_end_of_the_load() -> None:
    at_s = arrivals_s(Bursts(rate_rps=1e-6, burst_rps=500.0, burst_s=0.5, every_s=4.0), 40.0)
    seen = counts(at_s, np.arange(0, 40.25, 0.25)).reshape(10, 16)
    assert (seen[:, 7:9] > 60).all()
    assert seen[:, :7].sum() + seen[:, 9:].sum() == 0


@pytest.mark.slow
@pytest.mark.parametrize("amplitude", [0.0, 0.3, 0.99, 1.0])
def test_diurnal_counts_follow_the_sine(amplitude: float) -> None:
    at_s = arrivals_s(Diurnal(rate_rps=500.0, amplitude=amplitude, period_s=60.0), 600.0)
    edges = np.linspace(0, 2 * np.pi, 49)
    expected = np.diff(edges - amplitude * np.cos(edges)) / (2 * np.pi) * at_s.size
    seen = counts(at_s % 60, edges / (2 * np.pi) * 60)
    assert stats.chisquare(seen, expected).pvalue > 0.01
    if amplitude:
        assert stats.chisquare(seen).pvalue < 1e-6
    assert abs(at_s.size - 300_000) < 4 * 300_000**0.5


def test_a_diurnal_load_is_a_time_change_that_is_exact_down_to_rates_near_zero() -> None:
    pattern = Diurnal(rate_rps=1e4, amplitude=1.0, period_s=1.0)
    at_s = np.array(list(islice(pattern.arrivals(np.random.default_rng(4)), 50_000)))
    units = np.cumsum(-np.log1p(-np.random.default_rng(4).random(50_000)))
    reached = 1e4 * (at_s + (1 - np.cos(2 * np.pi * at_s)) / (2 * np.pi))
    assert np.abs(reached - units).max() < 1e-6


@pytest.mark.parametrize(
    "rate_of",
    [
        (Ramp(rate_rps=100.0, to_rps=900.0, over_s=10.0), lambda t: np.minimum(100 + 80 * t, 900)),
        (Steps(rates_rps=(50.0, 0.0, 80.0), lengths_s=(3.0, 2.0, 1.0)), lambda t: 50 * (t < 3) + 80 * (t >= 5)),
        (
            Bursts(rate_rps=10.0, burst_rps=70.0, burst_s=1.0, every_s=4.0),
            lambda t: np.where((t % 4 >= 1.5) & (t % 4 < 2.5), 70, 10),
        ),
        (Diurnal(rate_rps=40.0, amplitude=0.6, period_s=7.0), lambda t: 40 + 24 * np.sin(2 * np.pi * t / 7)),
        (Constant(rate_rps=30.0), lambda t: 30 + 0 * t),
    ],
    ids=lambda each: type(each[0]).__name__,
)
def test_what_is_expected_is_the_integral_of_the_rate(
    rate_of: tuple[Pattern, Callable[[np.ndarray], np.ndarray]],
) -> None:
    pattern, rate = rate_of
    for until_s in (0.5, 2.0, 5.0, 13.3):
        middles = (np.arange(100_000) + 0.5) / 100_000 * until_s
        assert pattern.expected(until_s) == pytest.approx(rate(middles).mean() * until_s, rel=1e-4)
