"""Patterns do what their names say, and all workers of a trial share one schedule."""

from itertools import islice, pairwise
from statistics import fmean, pvariance

import numpy as np
import pytest

from seamark.load.arrivals import Constant, Pattern, Poisson, Ramp, pattern_of, schedule

PATTERNS = [
    Constant(rate_rps=997.0),
    Poisson(rate_rps=1003.0),
    Ramp(rate_rps=10.0, to_rps=3000.0, over_s=5.0),
    Ramp(rate_rps=3000.0, to_rps=10.0, over_s=5.0),
]


def all_of(pattern: Pattern, **given: object) -> np.ndarray:
    blocks = list(schedule(pattern, **({"seed": 7, "until_s": 6.0} | given)))
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)


@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(("pattern", "cv2"), [(Constant(rate_rps=2), 0), (Poisson(rate_rps=2), 1)])
def test_a_pattern_has_the_rate_and_burstiness_its_name_promises(pattern: Pattern, cv2: float) -> None:
    at_s = list(islice(pattern.arrivals(np.random.default_rng(1)), 40_000))
    gaps_s = [later - earlier for earlier, later in pairwise(at_s)]
    assert 1 / fmean(gaps_s) == pytest.approx(2, rel=0.02)
    assert pvariance(gaps_s) / fmean(gaps_s) ** 2 == pytest.approx(cv2, abs=0.05)


def test_poisson_gaps_are_exponential_and_never_clamped() -> None:
    gaps_s = np.diff(all_of(Poisson(rate_rps=1000.0), until_s=100.0)) / 1e9
    for share in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(gaps_s, share) == pytest.approx(-np.log1p(-share) / 1000, rel=0.05)
    assert gaps_s.max() > 8 / 1000


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_gaps_of_a_poisson_load_are_not_correlated_whatever_the_workers(workers: int) -> None:
    shards = [all_of(Poisson(rate_rps=2000.0), until_s=20.0, worker=k, workers=workers) for k in range(workers)]
    gaps = np.diff(np.sort(np.concatenate(shards))).astype(float)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02


@pytest.mark.covers("E-FR25")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("workers", [2, 4, 16, 1500])
def test_merged_shards_equal_the_single_schedule_byte_for_byte(pattern: Pattern, workers: int) -> None:
    single = all_of(pattern)
    merged = np.zeros_like(single)
    for k in range(workers):
        merged[k::workers] = all_of(pattern, worker=k, workers=workers)
    assert merged.tobytes() == single.tobytes()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_schedule_never_goes_back_and_ends_before_its_duration(pattern: Pattern) -> None:
    due_ns = all_of(pattern, until_s=3.0)
    assert (np.diff(due_ns) >= 0).all()
    assert due_ns[0] >= 0
    assert due_ns[-1] < 3e9


def test_another_seed_makes_another_poisson_schedule() -> None:
    first, second = all_of(Poisson(rate_rps=100.0), seed=1), all_of(Poisson(rate_rps=100.0), seed=2)
    assert first.tobytes() != second.tobytes()
    assert first.tobytes() == all_of(Poisson(rate_rps=100.0), seed=1).tobytes()


def test_a_constant_load_sends_rate_times_duration_requests_without_drift() -> None:
    due_ns = all_of(Constant(rate_rps=3.0), until_s=3000.0)
    assert due_ns.size == 9000
    assert due_ns[-1] == round(8999 / 3 * 1e9)


@pytest.mark.parametrize(("low", "high"), [(100.0, 900.0), (900.0, 100.0), (500.0, 500.0)])
def test_a_ramp_goes_linearly_from_one_rate_to_the_other_and_stays_there(low: float, high: float) -> None:
    at_s = all_of(Ramp(rate_rps=low, to_rps=high, over_s=10.0), until_s=15.0) / 1e9
    for second in range(15):
        middle_s = min(second + 0.5, 10.0)
        inside = np.count_nonzero((at_s >= second) & (at_s < second + 1))
        assert inside == pytest.approx(low + (high - low) * middle_s / 10, abs=2)


@pytest.mark.parametrize("requests", [0, 1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_schedule_stops_after_so_many_requests(requests: int, workers: int) -> None:
    sizes = [
        all_of(Poisson(rate_rps=1000.0), requests=requests, worker=k, workers=workers).size for k in range(workers)
    ]
    assert sum(sizes) == requests
    assert max(sizes) - min(sizes) <= 1


def test_a_long_schedule_is_made_block_by_block() -> None:
    blocks = schedule(Poisson(rate_rps=1e6), seed=1, until_s=604800.0)
    assert sum(next(blocks).size for _ in range(10)) < 20_000


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pattern": "poisson"}, "rate_rps"),
        ({"pattern": "ramp", "rate_rps": 1}, "ramp_to_rps"),
        ({"pattern": "sawtooth", "rate_rps": 1}, "sawtooth"),
    ],
)
def test_a_pattern_without_its_settings_is_an_error_that_names_them(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pattern_of(settings, over_s=1.0)
