"""Stalls are named wherever they lie, and loads that only vary have none: by simulated loads of known servers."""

import heapq
import math

import numpy as np
import pytest
from samples import a_load, a_trial, metrics_of, samples_of, write_samples

from seamark.model.sample import Failure


def outages(folder, due, last, duration_s, **settings):
    """Outages of a load, each with its start and end."""
    failure = settings.pop("failure", 0)
    write_samples(folder.samples, samples_of(due, None, last, failure=failure))
    document = metrics_of(a_trial({"duration_s": duration_s, **settings}), a_load(), folder, scenario="s")
    found = document["steady_state"]["outages"]
    assert bool(found) == any(reason["code"] == "outage" for reason in document["reasons"])
    return [(outage["start_s"], outage["end_s"]) for outage in found]


def gamma_arrivals(rng, rate_rps, duration_s, variation):
    """Arrivals of a stationary renewal process, with that coefficient of variation of its gaps."""
    shape = 1 / variation**2
    gaps = rng.gamma(shape, 1 / (rate_rps * shape), int(3 * rate_rps * duration_s + 100 * variation**2 + 200))
    times = np.cumsum(gaps)
    times -= times[-1] / 3
    return times[(times >= 0) & (times < duration_s)]


def service(rng, name, mean_s, size=None):
    """Service times of a distribution: fixed, exponential, or lognormal with that deviation of the logarithms."""
    if name == "fixed":
        return mean_s if size is None else np.full(size, mean_s)
    if name == "exponential":
        return rng.exponential(mean_s, size)
    return rng.lognormal(math.log(mean_s) - float(name) ** 2 / 2, float(name), size)


class Clock:
    """Servers that do nothing from `at_s` on for `length_s`."""

    def __init__(self, at_s=math.inf, length_s=0.0):
        self.at_s, self.length_s = at_s, length_s

    def end(self, start_s, took_s):
        until_s = self.at_s + self.length_s
        if start_s >= until_s:
            return start_s + took_s
        if start_s >= self.at_s:
            return until_s + took_s
        return start_s + took_s + (self.length_s if start_s + took_s > self.at_s else 0.0)


def open_load(rng, *, rate_rps, duration_s, variation, kind, mean_s, servers, clock):
    """Due times and ends of requests at `servers` of one queue, None for one server a request."""
    due = gamma_arrivals(rng, rate_rps, duration_s, variation)
    took, free = service(rng, kind, mean_s, len(due)), [0.0] * (servers or 0)
    last = np.empty_like(due)
    for place, (due_s, took_s) in enumerate(zip(due, took, strict=True)):
        start_s = max(due_s, heapq.heappop(free)) if servers else due_s
        last[place] = clock.end(start_s, took_s)
        if servers:
            heapq.heappush(free, last[place])
    return due, last


def closed_load(rng, *, users, duration_s, kind, mean_s, servers, think_s, clock):
    """Sends and ends of the requests of some users, who think for an exponential time."""

    def pauses():
        return rng.exponential(think_s) if think_s else 0.0

    ready, free, due, last = [pauses() for _ in range(users)], [0.0] * (servers or users), [], []
    heapq.heapify(ready)
    while ready:
        sent_s = heapq.heappop(ready)
        if sent_s >= duration_s:
            continue
        end_s = clock.end(max(sent_s, heapq.heappop(free)), service(rng, kind, mean_s))
        heapq.heappush(free, end_s)
        due.append(sent_s)
        last.append(end_s)
        heapq.heappush(ready, end_s + pauses())
    return np.array(due), np.array(last)


OPEN = [
    (1, "fixed", 0.002, 1), (1, "exponential", 0.0025, 1), (1, "exponential", 0.004, 1), (1, "1.0", 0.0015, 1),
    (1, "exponential", 0.005, None), (1, "1.0", 0.01, None), (1, "exponential", 0.03, 8),
    (2, "exponential", 0.0025, 1), (2, "exponential", 0.005, None), (4, "exponential", 0.005, None),
    (4, "1.0", 0.01, None), (8, "fixed", 0.01, None),
]  # fmt: skip
"""Variation of the gaps between arrivals; distribution and mean of the service time at 200/s; servers."""
HEAVY = [(1, "exponential", 0.0045, 1), (2, "1.5", 0.02, None), (8, "1.5", 0.05, None), (4, "exponential", 0.2, None)]
CLOSED = [
    (1, "exponential", 0.005, 1, 0.0), (4, "exponential", 0.005, 1, 0.0), (4, "1.0", 0.005, None, 0.0),
    (4, "exponential", 0.005, None, 0.05), (10, "1.0", 0.005, 2, 0.0), (32, "exponential", 0.02, None, 0.5),
    (32, "fixed", 0.02, 4, 0.0),
]  # fmt: skip
"""Users, distribution and mean of the service time, servers, think time."""
LENGTHS_S = (0.8, 3.0, 20.0)


def a_stall(rng, settings, duration_s):
    """One open load with a stall in which about 47 were due, at a random place, and that place."""
    variation, kind, mean_s, servers = settings
    length_s = rng.uniform(0.21, 0.26)
    at_s = rng.uniform(0.0, duration_s - length_s)
    return (
        at_s,
        length_s,
        open_load(
            rng,
            rate_rps=200.0,
            duration_s=duration_s,
            variation=variation,
            kind=kind,
            mean_s=mean_s,
            servers=servers,
            clock=Clock(at_s, length_s),
        ),
    )


def named_of_stalls(folder, seeds, places, lengths_s=LENGTHS_S):
    """How many stalls, in which 40 were due and that last three typical replies, are named, of how many."""
    named = of = 0
    for seed in seeds:
        for settings in places:
            rng = np.random.default_rng(seed)
            duration_s = lengths_s[seed % len(lengths_s)]
            at_s, length_s, (due, last) = a_stall(rng, settings, duration_s)
            many = ((due >= at_s) & (due < at_s + length_s)).sum() >= 40
            if not many or length_s < 3 * np.median(last - due):
                continue
            found = outages(folder, due, last, duration_s, pattern="gamma", rate_rps=200.0)
            of += 1
            named += any(start_s < at_s + length_s and end_s > at_s for start_s, end_s in found)
    return named, of


def false_names(folder, seeds, duration_s=20.0):
    """How many loads without any stall have an outage, of how many."""
    false = of = 0
    for seed in seeds:
        for variation, kind, mean_s, servers in (*OPEN, *HEAVY):
            rng = np.random.default_rng(1000 + seed)
            load = {"variation": variation, "kind": kind, "mean_s": mean_s, "servers": servers, "clock": Clock()}
            due, last = open_load(rng, rate_rps=200.0, duration_s=duration_s, **load)
            false += bool(outages(folder, due, last, duration_s, pattern="gamma", rate_rps=200.0))
            of += 1
        for users, kind, mean_s, servers, think_s in CLOSED:
            rng = np.random.default_rng(2000 + seed)
            load = {"users": users, "kind": kind, "mean_s": mean_s, "servers": servers, "think_s": think_s}
            due, last = closed_load(rng, duration_s=duration_s, clock=Clock(), **load)
            settings = {"pattern": "closed", "concurrency": users, "think_time_s": think_s}
            false += bool(outages(folder, due, last, duration_s, **settings))
            of += 1
    return false, of


@pytest.mark.slow
def test_a_stall_in_which_forty_requests_were_due_is_named_in_short_loads_too(folder):
    named, of = named_of_stalls(folder, range(3), OPEN)
    assert of >= 15
    assert named >= of - 1


@pytest.mark.slow
def test_loads_that_only_vary_have_no_outage(folder):
    assert false_names(folder, range(1), duration_s=5.0)[0] == 0


@pytest.mark.sweep
def test_ninety_nine_of_a_hundred_stalls_are_named(folder, counted):
    named, of = named_of_stalls(folder, range(100), OPEN)
    counted("stalls named", f"{named} of {of}")
    assert named >= 0.99 * of


@pytest.mark.sweep
def test_one_in_a_hundred_steady_loads_at_most_has_an_outage(folder, counted):
    false, of = false_names(folder, range(30))
    counted("steady loads with an outage", f"{false} of {of}")
    assert false <= 0.01 * of


@pytest.mark.sweep
def test_six_tenths_of_a_second_in_sixty_are_named_in_a_hundred_of_a_hundred_places(folder):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        at_s = rng.uniform(0, 59.4)
        load = {"variation": 1, "kind": "0.5", "mean_s": 0.005, "servers": None, "clock": Clock(at_s, 0.6)}
        due, last = open_load(rng, rate_rps=200.0, duration_s=60.0, **load)
        ((start_s, end_s),) = outages(folder, due, last, 60.0, pattern="poisson", rate_rps=200.0)
        assert (start_s, end_s) == (pytest.approx(at_s, abs=0.1), pytest.approx(at_s + 0.6, abs=0.1))


@pytest.mark.parametrize(
    ("users", "servers", "think_s"), [(1, 1, 0.0), (4, 1, 0.0), (4, None, 0.0), (10, None, 0.02)]
)
def test_a_stall_of_a_closed_loop_is_named(folder, users, servers, think_s):
    rng = np.random.default_rng(1)
    load = {"users": users, "kind": "exponential", "mean_s": 0.005, "servers": servers, "think_s": think_s}
    due, last = closed_load(rng, duration_s=4.0, clock=Clock(2.0, 0.4), **load)
    settings = {"pattern": "closed", "concurrency": users, "think_time_s": think_s}
    ((start_s, end_s),) = outages(folder, due, last, 4.0, **settings)
    assert start_s == pytest.approx(2.0, abs=0.1)
    assert end_s == pytest.approx(2.4, abs=0.1)


def test_a_burst_that_ends_a_silence_is_no_outage(folder):
    due = np.concatenate([np.arange(0, 3, 0.02), 4.0 + np.arange(30) * 1e-4, np.arange(5, 8, 0.02)])
    assert outages(folder, due, due + 0.05, 8.0, pattern="poisson", rate_rps=50.0) == []


def test_replies_that_come_in_batches_are_no_outages(folder):
    due = np.arange(0, 20, 0.01)
    assert outages(folder, due, (np.floor(due / 0.5) + 1) * 0.5, 20.0, pattern="constant", rate_rps=100.0) == []


def test_failures_of_a_fifth_of_a_second_are_an_outage(folder):
    due = np.arange(0, 10, 0.005)
    failure = np.where((due >= 4.0) & (due < 4.2), int(Failure.SERVER_ERROR), 0)
    ((start_s, end_s),) = outages(folder, due, due + 0.002, 10.0, pattern="constant", rate_rps=200.0, failure=failure)
    assert (start_s, end_s) == (pytest.approx(4.0, abs=0.02), pytest.approx(4.2, abs=0.02))
