"""Over-saturation is told early from a server that bears its load, however that swings, lasts or stands still."""

import math
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.engine.saturation import MOST_POINTS, Saturation, saturation_of
from seamark.load.workers.records import read_segments
from seamark.model.load_profile import LoadProfile
from seamark.services.ephemeral_server import ephemeral_server

EVERY_S = 0.1


def seen_at_s(came_s, left_s, until_s: float, detector: Saturation) -> float | None:
    """Return when the detector sees over-saturation in a load of these arrivals and departures; None: never."""
    left_s = np.sort(left_s)
    for at_s in np.arange(EVERY_S, until_s, EVERY_S):
        due, completed = np.searchsorted(came_s, at_s), np.searchsorted(left_s, at_s)
        if detector.update(float(at_s), int(due), int(completed)):
            return float(at_s)
    return None


def arrivals(rng, rate_rps: float, until_s: float, shape: float = 1.0):
    gaps = rng.gamma(shape, 1 / (shape * rate_rps), size=int(rate_rps * until_s * 1.5) + 100)
    came = np.cumsum(gaps)
    return came[came < until_s]


def first_come_first_served(came_s, service_s):
    """Return departures of one server: d_i = max(d_(i-1), a_i) + s_i."""
    work = np.cumsum(service_s)
    return np.maximum.accumulate(came_s - work + service_s) + work


@pytest.mark.services
@pytest.mark.parametrize("rate_rps", [5.0, 30.0, 200.0, 1000.0])
@pytest.mark.parametrize("shape", [1.0, 0.25])
@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 60), marks=pytest.mark.sweep)], ids=["few", "all"]
)
def test_a_server_at_four_fifths_of_its_capacity_is_never_called_over_saturated(rate_rps, shape, seeds):
    until_s = min(60.0, 20_000 / rate_rps)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, rate_rps, until_s, shape)
        left_s = first_come_first_served(came_s, rng.exponential(0.8 / rate_rps, len(came_s)))
        detector = Saturation(warmup_s=1.0, gap_variation=shape**-0.5)
        assert seen_at_s(came_s, left_s, until_s, detector) is None, seed


@pytest.mark.services
@pytest.mark.parametrize(
    ("rate_rps", "utilisation", "within_s"), [(1000, 1.25, 10), (400, 2, 6), (100, 2, 15), (20, 3, 45)]
)
def test_an_overload_is_seen_soon(rate_rps, utilisation, within_s):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, rate_rps, 60.0)
        left_s = first_come_first_served(came_s, rng.exponential(utilisation / rate_rps, len(came_s)))
        seen_s = seen_at_s(came_s, left_s, 60.0, Saturation(warmup_s=0.5))
        assert seen_s is not None, seed
        assert 2.0 <= seen_s <= within_s, seed


@pytest.mark.services
@pytest.mark.parametrize(
    ("rate_rps", "utilisation", "from_s", "within_s"), [(400, 2, 10, 30), (400, 1.5, 20, 40), (1000, 1.25, 20, 45)]
)
def test_an_overload_that_begins_in_mid_load_is_seen_too(rate_rps, utilisation, from_s, within_s):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, rate_rps, 60.0)
        busy = np.where(came_s < from_s, 0.7, utilisation)
        left_s = first_come_first_served(came_s, busy * rng.exponential(1 / rate_rps, len(came_s)))
        seen_s = seen_at_s(came_s, left_s, 60.0, Saturation(warmup_s=0.5))
        assert seen_s is not None, seed
        assert from_s < seen_s <= within_s, seed


@pytest.mark.sweep
@pytest.mark.services
def test_replies_with_heavy_tails_are_hardly_ever_called_so():
    """Service times with a standard deviation of seven means, and without one, at a server that bears its load and at
    one that answers all side by side."""
    seen = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, 30.0, 60.0)
        for times in (rng.lognormal(-2.0, 2.0, len(came_s)), 0.5 * rng.pareto(1.5, len(came_s))):
            for left_s in (first_come_first_served(came_s, 0.8 / 30 * times), came_s + 10.0 * times):
                seen.append(seen_at_s(came_s, left_s, 60.0, Saturation(warmup_s=1.0)))
    assert sum(each is not None for each in seen) <= 0.01 * len(seen)


@pytest.mark.services
@pytest.mark.parametrize("kind", ["exponential", "constant", pytest.param("lognormal", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("mean_s", [10.0, *(pytest.param(each, marks=pytest.mark.sweep) for each in (2.0, 30.0))])
def test_requests_that_pile_up_only_because_replies_take_long_are_not_called_so(kind, mean_s):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, 100.0, 90.0)
        takes_s = np.full(len(came_s), mean_s)
        if kind == "exponential":
            takes_s = rng.exponential(mean_s, len(came_s))
        elif kind == "lognormal":
            takes_s = rng.lognormal(math.log(mean_s) - 0.5, 1.0, len(came_s))
        assert seen_at_s(came_s, came_s + takes_s, 90.0, Saturation(warmup_s=1.0)) is None, seed


@pytest.mark.services
@pytest.mark.parametrize("from_s", [0.0, 1.0, 5.0, 14.0])
def test_a_stall_that_the_server_recovers_from_is_not_called_so(from_s):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        came_s = arrivals(rng, 200.0, 30.0)
        held_s = np.where((came_s >= from_s) & (came_s < from_s + 2.0), from_s + 2.0, came_s)
        left_s = first_come_first_served(held_s, rng.exponential(0.6 / 200, len(came_s)))
        assert seen_at_s(came_s, left_s, 30.0, Saturation(warmup_s=2.0)) is None, seed


def test_what_an_objective_allows_by_littles_law_is_not_called_so():
    rng = np.random.default_rng(1)
    came_s = arrivals(rng, 400.0, 10.0)
    left_s = first_come_first_served(came_s, np.full(len(came_s), 1.25 / 400))
    strict = seen_at_s(came_s, left_s, 10.0, Saturation(limit_s=0.1))
    lax = seen_at_s(came_s, left_s, 10.0, Saturation(limit_s=10.0))
    assert strict is not None
    assert lax is None


def test_a_long_load_is_watched_in_constant_memory_and_still_seen_to_overflow():
    detector = Saturation(warmup_s=5000.0)
    at_s = np.arange(0.1, 5002.0, 0.1)
    found = [detector.update(float(t), int(100 * t), int(80 * t)) for t in at_s]
    assert len(pickle.dumps(detector)) < 100 * MOST_POINTS
    assert not any(found[:50_000])
    assert found[-1]


def test_only_loads_that_ask_for_it_and_have_one_rate_are_watched():
    asked = {"pattern": "poisson", "rate_rps": 10.0, "stop_when_saturated": True}
    assert saturation_of(LoadProfile.of(asked), None) is not None
    for other in ({"stop_when_saturated": False}, {"pattern": "closed"}, {"pattern": "ramp", "ramp_to_rps": 5.0}):
        assert saturation_of(LoadProfile.of(asked | other), None) is None


def load(port: int, folder: Path, rate_rps: float, **settings):
    whole = {"pattern": "poisson", "rate_rps": rate_rps, "warmup_s": 0.5, "duration_s": 30.0, "concurrency": 64}
    job = LoadJob(
        driver="seamark.drivers.openai:OpenAi",
        workers="wire",
        settings={**whole, "gen_tokens": 1, "stop_when_saturated": True, **settings},
        seed=3,
        data=folder,
        ports={"main": port},
    )
    return run_load(job, Path(sys.executable), folder / "parts")


@pytest.mark.serial
@pytest.mark.services
@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.sweep), 2])
def test_an_overloaded_server_ends_its_load_long_before_the_end_and_nothing_is_lost(shards, tmp_path):
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 10, "--queue", "md1") as port:
        began_s = time.monotonic()
        outcome = load(port, tmp_path, 250.0, shards=shards)
        took_s = time.monotonic() - began_s
    assert outcome.over_saturated_at_s is not None
    assert 2.0 <= outcome.over_saturated_at_s < 15.0
    assert took_s < 22.0
    assert outcome.aborted is None
    assert outcome.died == 0
    samples = read_segments(outcome.segments)
    assert len(samples) == outcome.scheduled
    # Each worker ends at the signal that reaches it: none has a gap in its own arrivals, and all end together.
    last = []
    for worker in range(shards):
        own = sorted(index for index in samples["index"] if index % shards == worker)
        assert own == list(range(worker, own[-1] + 1, shards))
        last.append(own[-1])
    assert max(last) - min(last) < 25, "workers ended more than a tenth of a second apart"


@pytest.mark.serial
@pytest.mark.services
def test_a_load_that_the_server_bears_runs_to_its_end(tmp_path):
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 10, "--queue", "md1") as port:
        outcome = load(port, tmp_path, 60.0, duration_s=3.0)
    assert outcome.over_saturated_at_s is None
    assert outcome.scheduled > 150


@pytest.mark.serial
@pytest.mark.services
def test_threads_that_cannot_keep_up_are_seen_as_well(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    settings = {"pattern": "poisson", "rate_rps": 250.0, "warmup_s": 0.5, "duration_s": 30.0, "concurrency": 2}
    job = LoadJob(
        driver="odd_drivers:Sleeping",
        workers="threads",
        settings={**settings, "sleep_s": 0.02, "stop_when_saturated": True},
        seed=5,
        data=tmp_path,
    )
    outcome = run_load(job, Path(sys.executable), tmp_path / "parts")
    assert outcome.over_saturated_at_s is not None
    assert outcome.over_saturated_at_s < 15.0
    assert len(read_segments(outcome.segments)) == outcome.scheduled
