"""Whole searches on simulated queues whose largest load is known: the truth lies in the bracket that is stated."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from seamark.model.results.load_record import SearchOutcome
from seamark.model.results.search_record import Probe
from seamark.model.scenario import Search
from seamark.trials.search.largest_load import Limit, ProbeObservation, judged, largest_load

SERVICE_S = 0.004
WARMUP_S = 0.5
MEAN = Limit(name="latency_mean_s <= 0.01", statistic="mean", limit=0.01)
TAIL = Limit(name="latency_p99_s <= 0.1", statistic="quantile", limit=0.1, probability=0.99)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """One server, first come first served, at Poisson arrivals; `truth` is the largest rate that meets `limit`."""

    limit: Limit
    service_s: Callable[[np.random.Generator, int], np.ndarray]
    truth: float

    def response_s(self, rng: np.random.Generator, rate_rps: float, duration_s: float) -> np.ndarray:
        """Return the response times of what is due after the warm-up, from an empty queue on (Lindley)."""
        until_s = WARMUP_S + duration_s
        due_s = np.sort(rng.uniform(0, until_s, rng.poisson(rate_rps * until_s)))
        service_s = self.service_s(rng, len(due_s))
        backlog_s = np.concatenate([[0.0], np.cumsum(service_s[:-1] - np.diff(due_s))])
        waited_s = backlog_s - np.minimum.accumulate(np.minimum(backlog_s, 0))
        return np.asarray((waited_s + service_s)[due_s >= WARMUP_S])


QUEUES = {
    "M/D/1, mean": Queue(limit=MEAN, service_s=lambda rng, n: np.full(n, SERVICE_S), truth=0.75 / SERVICE_S),
    "M/M/1, p99": Queue(
        limit=TAIL, service_s=lambda rng, n: rng.exponential(SERVICE_S, n), truth=1 / SERVICE_S - math.log(100) / 0.1
    ),
}


def searched(queue: Queue, search: Search, duration_s: float, seed: int) -> tuple[SearchOutcome, list[str], float]:
    """Return what a search finds on a queue, the verdicts of its probes, and the seconds that it would have taken."""
    rng = np.random.default_rng(seed)
    verdicts: list[str] = []
    spent_s = 0.0

    def measure(probe: Probe) -> ProbeObservation:
        nonlocal spent_s
        length_s = probe.times * duration_s
        if probe.level * SERVICE_S > 1.15:  # the watch for over-saturation ends such a load
            seen, length_s = ProbeObservation(against=("it cannot keep up",), sure=True), 2.0
        else:
            seen = ProbeObservation(values={queue.limit: queue.response_s(rng, probe.level, length_s)})
        spent_s += WARMUP_S + length_s + 0.3
        return replace(seen, took_s=WARMUP_S + length_s + 0.3)

    found = largest_load(search, duration_s, measure, lambda probe, verdict, why: verdicts.append(verdict))
    return found, verdicts, spent_s


def a_search(seed: int, budget_s: float) -> Search:
    """Searches whose grids lie differently about the truth."""
    begin = 40 * 1.1 ** np.random.default_rng(seed).uniform()
    return Search(setting="rate_rps", from_level=float(begin), to_level=1000, within=0.1, budget_s=budget_s)


def inside(found: SearchOutcome, truth: float) -> bool:
    low, high = found.bracket
    return (low is None or low <= truth) and (high is None or truth < high)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "budget_s"), [("M/D/1, mean", 45), ("M/D/1, mean", 300), ("M/M/1, p99", 600)])
def test_the_truth_lies_in_the_bracket_and_the_found_load_is_near_it(name, budget_s):
    queue, ratios, covered = QUEUES[name], [], 0
    for seed in range(20):
        found, verdicts, spent_s = searched(queue, a_search(seed, budget_s), 4, seed)
        assert spent_s <= budget_s + 5
        assert found.confidence == pytest.approx(1 - 0.005 * len(verdicts))
        assert found.found is not None
        covered += inside(found, queue.truth)
        ratios.append(found.found / queue.truth)
    assert covered >= 18
    assert 0.85 < np.median(ratios) < 1.05


def test_a_search_with_time_enough_ends_with_a_narrow_bracket():
    widths = []
    for seed in range(10):
        found, _, _ = searched(QUEUES["M/D/1, mean"], a_search(seed, 600), 10, seed)
        low, high = found.bracket
        assert found.outcome in ("converged", "undecided")
        assert low is not None
        assert high is not None
        widths.append(high / low)
    assert np.median(widths) < 1.3


def test_a_load_that_fails_by_chance_or_falls_short_once_is_not_the_end():
    late, quick = np.full(800, 0.02), np.full(800, 0.005)
    assert judged([ProbeObservation(values={MEAN: late})])[0] == "fail"
    few = np.where(np.arange(10_000) % 150 == 0, 0.2, 0.01)
    assert "0.67 % of requests took longer than 100 ms; 1 % may" in judged([ProbeObservation(values={TAIL: few})])[1]
    assert judged([ProbeObservation(values={MEAN: quick})])[0] == "pass"
    assert judged([ProbeObservation(against=("saturated",))])[0] == "likely_fail"
    assert judged([ProbeObservation(against=("saturated",)), ProbeObservation(against=("saturated",))])[0] == "fail"
    assert judged([ProbeObservation(against=("over-saturated",), sure=True)])[0] == "fail"
    verdict, why = judged([ProbeObservation(values={MEAN: quick}), ProbeObservation(void="the client was late")])
    assert (verdict, why) == ("void", "the client was late")
    few = np.array([0.001, 0.002, 0.3] * 5)
    assert judged([ProbeObservation(values={TAIL: few})])[0] == "likely_fail"


@pytest.mark.sweep
@pytest.mark.parametrize("name", QUEUES)
@pytest.mark.parametrize(("duration_s", "budget_s"), [(4, 45), (4, 300), (10, 900)])
def test_of_200_searches_nine_tenths_and_more_have_the_truth_in_their_bracket(name, duration_s, budget_s, counted):
    queue, outcomes = QUEUES[name], Counter[bool]()
    for seed in range(200):
        found, _, _ = searched(queue, a_search(seed, budget_s), duration_s, seed)
        outcomes[inside(found, queue.truth)] += 1
        counted(f"searches on {name}, {budget_s} s", "inside" if inside(found, queue.truth) else "outside")
        counted(f"outcomes on {name}, {budget_s} s", found.outcome)
    assert outcomes[True] >= 180
