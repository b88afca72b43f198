"""Amdahl's law and the Universal Scalability Law: known curves give their parameters, with honest intervals."""

import numpy as np
import pytest

from seamark.stats.scaling import scaling

LEVELS = (1, 2, 4, 8, 16)


def usl(n: float, rate: float = 100.0, contention: float = 0.05, coherency: float = 0.001) -> float:
    return rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))


@pytest.mark.covers("E-FR26")
def test_a_known_curve_gives_its_parameters_its_speed_up_and_its_efficiency():
    curve = scaling(LEVELS, [[usl(n) for n in LEVELS]])
    amdahl, full = curve.fits
    assert (full.rate.value, full.contention.value, full.coherency.value) == pytest.approx((100, 0.05, 0.001))
    assert full.misfit < 1e-9 < amdahl.misfit
    assert [one.value for one in curve.speedup] == pytest.approx([usl(n) / 100 for n in LEVELS])
    assert [one.value for one in curve.efficiency] == pytest.approx([usl(n) / 100 / n for n in LEVELS])
    assert curve.speedup[1].low is None, "one block has no interval"


@pytest.mark.covers("E-FR26")
def test_amdahls_law_with_a_twentieth_in_sequence_is_found_from_three_levels_on():
    """Amdahl 1967: 5 % in sequence limit the speed-up to 20; 16 workers give 9.14."""
    levels = (1, 4, 16)
    (fit,) = scaling(levels, [[usl(n, coherency=0) for n in levels]]).fits
    assert (fit.law, fit.contention.value) == ("amdahl", pytest.approx(0.05))
    assert fit.throughput(16) / fit.throughput(1) == pytest.approx(9.142857)
    assert scaling((1, 2), [[1, 2]]).fits == ()


@pytest.mark.covers("E-FR26")
def test_the_published_benchmark_of_gunther_has_his_parameters():
    """The ray tracer of Gunther (2007), which the R package usl fits with contention 0.05002 and coherency 4.7e-6 (by
    least squares of throughput, not of relative errors)."""
    measured = {1: 20, 4: 78, 8: 130, 12: 170, 16: 190, 20: 200, 24: 210, 28: 230, 32: 260, 48: 280, 64: 310}
    amdahl, full = scaling(tuple(measured), [tuple(measured.values())]).fits
    assert full.contention.value == pytest.approx(0.05, abs=0.015)
    assert 0 <= full.coherency.value < 1e-4
    assert amdahl.contention.value == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("faster", [1.0, 1.5])
def test_perfect_scaling_has_no_contention_and_faster_than_perfect_is_a_misfit(faster):
    curve = scaling((1, 2, 4, 8), [[10, 20 * faster, 40 * faster, 80 * faster]])
    for fit in curve.fits:
        assert fit.contention.value == pytest.approx(0, abs=1e-9)
        assert (fit.misfit > 0.1) == (faster > 1)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.covers("E-FR26")
def test_intervals_cover_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(5)
    blocks = [[usl(n, contention=0.2, coherency=0.004) for n in LEVELS]] * 8
    covered = np.zeros(3)
    for seed in range(40):
        noisy = blocks[:8] * np.exp(rng.normal(0, 0.03, (8, 5)) + rng.normal(0, 0.2, (8, 1)))
        curve = scaling(LEVELS, noisy, seed)
        found = curve.speedup[3], curve.fits[1].contention, curve.fits[1].coherency
        truth = usl(8, contention=0.2, coherency=0.004) / usl(1), 0.2, 0.004
        covered += [one.low <= true <= one.high for one, true in zip(found, truth, strict=True)]
    assert all(34 <= count <= 40 for count in covered), covered


@pytest.mark.parametrize("blocks", [[[1, 2]], [[1, 0, 2]], []])
def test_blocks_that_are_not_whole_are_refused(blocks):
    with pytest.raises(ValueError):
        scaling((1, 2, 4), blocks)


@pytest.mark.covers("E-FR26")
def test_an_interval_of_whole_blocks_needs_five_of_them():
    """Blocks that differ by a common factor have the same speed-up: resampled levels would not."""
    five = [[factor * usl(n) for n in LEVELS] for factor in (0.8, 0.9, 1.0, 1.1, 1.25)]
    curve = scaling(LEVELS, five)
    assert (curve.speedup[4].low, curve.speedup[4].high) == pytest.approx((usl(16) / 100, usl(16) / 100))
    rate = curve.fits[1].rate
    assert 80 <= rate.low < 100 < rate.high <= 125.001
    assert {one.low for one in (*scaling(LEVELS, five[:4]).speedup, scaling(LEVELS, five[:4]).fits[1].rate)} == {None}
