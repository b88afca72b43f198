"""All workers of a trial share one schedule, whatever its pattern; a pattern is made of the trial's settings."""

import tracemalloc
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.model.load_profile import LoadProfile
from seamark.model.scenario import Scenario, Workload
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.patterns.patterns import BLOCK, Bursts, Constant, Diurnal, Gamma, Pattern, Poisson, Ramp, Steps, Trace
from seamark.patterns.table import PATTERNS, pattern_of, schedule
from seamark.planning.plan import plan

RANDOM = [
    Poisson(rate_rps=1003.0),
    Gamma(rate_rps=1009.0, burstiness=0.1),
    Gamma(rate_rps=1009.0, burstiness=30.0),
    Bursts(rate_rps=150.0, burst_rps=4000.0, burst_s=0.3, every_s=1.7),
    Diurnal(rate_rps=900.0, amplitude=1.0, period_s=2.5),
]
COMPUTED = [
    *RANDOM,
    Constant(rate_rps=997.0),
    Ramp(rate_rps=10.0, to_rps=3000.0, over_s=5.0),
    Ramp(rate_rps=3000.0, to_rps=10.0, over_s=5.0),
    Steps(rates_rps=(700.0, 0.0, 1500.0), lengths_s=(2.0, 0.5, 1.0)),
]
SETTINGS = {
    "rate_rps": 20.0,
    "ramp_to_rps": 40.0,
    "burstiness": 0.5,
    "step_rates": "10,30",
    "burst_rps": 90.0,
    "burst_s": 1.0,
    "burst_every_s": 5.0,
    "amplitude": 0.7,
    "period_s": 5.0,
    "trace": "there.jsonl",
}


@pytest.fixture(params=[*COMPUTED, "trace"], ids=lambda each: repr(each).partition("(")[0].strip("'"))
def pattern(request: pytest.FixtureRequest, tmp_path: Path) -> Pattern:
    """Every pattern, a trace of 5000 arrivals with ties among them."""
    if request.param != "trace":
        return request.param
    ms = np.sort(np.random.default_rng(5).integers(0, 6000, 5000))
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp": {at}, "input_length": 7, "output_length": 9}}\n' for at in ms))
    return Trace(path=str(path))


def all_of(pattern: Pattern, **given: object) -> np.ndarray:
    blocks = list(schedule(pattern, **({"seed": 7, "until_s": 6.0} | given)))
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)


@pytest.mark.covers("E-FR25")
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_merged_shards_equal_the_single_schedule_byte_for_byte(pattern: Pattern, workers: int) -> None:
    single = all_of(pattern)
    assert single.size > 3000
    merged = np.zeros_like(single)
    for k in range(workers):
        merged[k::workers] = all_of(pattern, worker=k, workers=workers)
    assert merged.tobytes() == single.tobytes()


@pytest.mark.slow
def test_more_workers_than_a_block_has_arrivals_share_the_schedule_too() -> None:
    single, workers = all_of(RANDOM[0]), BLOCK + 500
    assert (
        single.tolist()
        == [
            at
            for turn in zip_longest(*(all_of(RANDOM[0], worker=k, workers=workers) for k in range(workers)))
            for at in turn
        ][: single.size]
    )


@pytest.mark.covers("E-FR25")
@pytest.mark.parametrize("workers", [1, 2, 4, 16])
@pytest.mark.parametrize("pattern", [Poisson(rate_rps=2000.0), Gamma(rate_rps=2000.0, burstiness=0.5)])
def test_gaps_are_not_correlated_whatever_the_workers(pattern: Pattern, workers: int) -> None:
    shards = [all_of(pattern, until_s=20.0, worker=k, workers=workers) for k in range(workers)]
    gaps = np.diff(np.sort(np.concatenate(shards))).astype(float)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02


def test_a_schedule_never_goes_back_and_ends_before_its_duration(pattern: Pattern) -> None:
    due_ns = all_of(pattern, until_s=3.0)
    assert (np.diff(due_ns) >= 0).all()
    assert due_ns[0] >= 0
    assert 2.5e9 < due_ns[-1] < 3e9


@pytest.mark.parametrize("pattern", RANDOM, ids=lambda each: repr(each).partition("(")[0])
def test_another_seed_makes_another_schedule_and_the_same_seed_the_same(pattern: Pattern) -> None:
    first = all_of(pattern, seed=1)
    assert first.tobytes() != all_of(pattern, seed=2).tobytes()
    assert first.tobytes() == all_of(pattern, seed=1).tobytes()


@pytest.mark.parametrize("requests", [0, 1, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_schedule_stops_after_so_many_requests(pattern: Pattern, requests: int, workers: int) -> None:
    sizes = [all_of(pattern, requests=requests, worker=k, workers=workers).size for k in range(workers)]
    assert sum(sizes) == requests
    assert max(sizes) - min(sizes) <= 1


def peak_bytes(pattern: Pattern, count: int, worker: int = 0, workers: int = 1) -> int:
    """Return the most memory that a schedule of so many arrivals needs at once."""
    blocks = schedule(pattern, seed=1, until_s=1e9, requests=count, worker=worker, workers=workers)
    tracemalloc.start()
    try:
        sent = sum(block.size for block in blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sent == len(range(worker, count, workers))
    return peak


@pytest.mark.services
@pytest.mark.parametrize(
    "kind", [Gamma, *(pytest.param(each, marks=pytest.mark.sweep) for each in (Poisson, Bursts))]
)
def test_a_schedule_of_ten_million_arrivals_takes_no_more_memory_than_a_short_one(kind: type[Pattern]) -> None:
    pattern = next(each for each in RANDOM if isinstance(each, kind))
    assert peak_bytes(pattern, 10_000_000, worker=1, workers=2) < peak_bytes(pattern, 20_000) + 20_000 < 300_000


def test_a_schedule_is_made_block_by_block(pattern: Pattern) -> None:
    blocks = list(islice(schedule(pattern, seed=1, until_s=604800.0), 10))
    assert max(block.size for block in blocks) <= BLOCK
    assert peak_bytes(pattern, 4_000) < 300_000


def made_of(settings: dict[str, Any]) -> Pattern | None:
    """Return the pattern of a load of 10 s with these settings."""
    return pattern_of(LoadProfile.of({"warmup_s": 2.0, "duration_s": 8.0} | settings))


@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "closed"])
def test_a_pattern_is_made_of_its_settings_and_without_one_is_an_error_that_names_it(name: str) -> None:
    settings = {"pattern": name} | {key: SETTINGS[key] for key in PATTERNS[name].needs}
    made = made_of(settings)
    assert type(made).__name__.lower() == name
    for key in PATTERNS[name].needs:
        with pytest.raises(ValueError, match=f"pattern '{name}' needs {key}"):
            made_of(settings | {key: None})


def test_a_closed_loop_has_no_pattern() -> None:
    assert made_of({"pattern": "closed"}) is None
    assert made_of({}) is None


def test_settings_reach_the_field_they_are_for() -> None:
    def made(name: str, **more: object) -> Pattern | None:
        return made_of({"pattern": name, **SETTINGS, **more})

    assert made("gamma") == Gamma(rate_rps=20.0, burstiness=0.5)
    assert made("ramp") == Ramp(rate_rps=20.0, to_rps=40.0, over_s=10.0)
    assert made("steps") == Steps(rates_rps=(10.0, 30.0), lengths_s=(5.0, 5.0))
    assert made("steps", step_rates=" 10:2, 0 : 1.5,7:3") == Steps(
        rates_rps=(10.0, 0.0, 7.0), lengths_s=(2.0, 1.5, 3.0)
    )
    assert made("bursts") == Bursts(rate_rps=20.0, burst_rps=90.0, burst_s=1.0, every_s=5.0)
    assert made("diurnal") == Diurnal(rate_rps=20.0, amplitude=0.7, period_s=5.0)
    assert made("trace") == Trace(path="there.jsonl", time_scale=1.0)
    assert made("trace", time_scale=0.25) == Trace(path="there.jsonl", time_scale=0.25)
    assert made("trace", trace_lengths=False) == Trace(path="there.jsonl", lengths=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pattern": "sawtooth", "rate_rps": 1}, "'sawtooth' is not one of closed, constant"),
        ({"pattern": "steps", "step_rates": "5"}, "one rate is not a sequence of steps"),
        (
            {"pattern": "bursts", "rate_rps": 1, "burst_rps": 2, "burst_s": 3, "burst_every_s": 3},
            "a burst of 3 s does not fit into a period of 3 s",
        ),
    ],
)
def test_settings_that_make_no_load_are_an_error_that_says_why(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made_of(settings)


@pytest.mark.covers("E-FR14")
@pytest.mark.parametrize(
    ("levels", "trial_id", "config_hash"),
    [
        ({"concurrency": (8,)}, "toy-0cb1abde--concurrency-8-b0404221--r1", "b23581153c7b97f4"),
        (
            {"pattern": ("poisson",), "rate_rps": (100.0,)},
            "toy-0cb1abde--poisson-rate_rps-100-f75914c9--r1",
            "f947154a0c055844",
        ),
        (
            {"pattern": ("ramp",), "rate_rps": (100.0,), "ramp_to_rps": (200.0,)},
            "toy-0cb1abde--ramp-rate_rps-100-ramp_to_rps-200-150f194a--r1",
            "95c71a6c607f17c1",
        ),
    ],
)
def test_trials_that_were_measured_before_a_pattern_came_keep_name_and_hash(
    levels: dict, trial_id: str, config_hash: str
) -> None:
    toy = Service(
        name="toy",
        component="null",
        summary="a toy",
        version="1",
        licence="Apache-2.0",
        driver="toys:Toy",
        workers="wire",
        settings=(),
    )
    workload = Workload(name="toy", component="null", service="toy", levels=levels)
    scenario = Scenario(name="study", path=Path("study.yaml"), workloads=(workload,), repetitions=1)
    [trial] = plan(scenario, {"toy": toy}, Site(name="here", summary="")).trials
    assert (trial.id, trial.config_hash[:16]) == (trial_id, config_hash)
