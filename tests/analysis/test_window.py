"""Nothing that happened after the declared warm-up is left out of a figure: stalls, outages, steps, ..."""

import math

import numpy as np
import pytest
from queues import mean_s, p99_s, queue
from samples import a_load, a_trial, codes, metrics_of, samples_of, write_samples
from scipy.stats import binom, t

from seamark.model.sample import MISSING_NS, Failure
from seamark.model.scenario import Slo

approx = pytest.approx
LIMIT_S = 0.1
OBJECTIVES = (Slo(metric="latency_s", op="<=", limit=LIMIT_S), Slo(metric="latency_p95_s", op="<=", limit=LIMIT_S))
EVENTS = ("stall", "outage", "step", "drift", "pause")


def measured(folder, rows, settings, slos=OBJECTIVES):
    write_samples(folder.samples, rows)
    return metrics_of(a_trial(settings, slos=slos), a_load(), folder, scenario="s")


# Loads with an event


def arrivals(rng, rate_rps, length_s):
    """Poisson arrivals and the times that a quick server of many threads takes for them."""
    due = np.sort(rng.uniform(0, length_s, int(rate_rps * length_s)))
    return due, rng.lognormal(math.log(0.005), rng.uniform(0.1, 1.0), len(due))


def stalled(due, took, at_s, length_s):
    """Ends of requests on a server that answers nothing from `at_s` on for `length_s`."""
    inside = (due + took > at_s) & (due < at_s + length_s)
    return np.where(inside, at_s + length_s + took, due + took)


def load_with(event, rng, *, rate_rps, warmup_s, duration_s, at_s, length_s, fold):
    """An open loop in which something happens at `at_s` for `length_s`: its rows."""
    due, took = arrivals(rng, rate_rps, warmup_s + duration_s)
    inside, sent, failure = (due >= at_s) & (due < at_s + length_s), due, 0
    if event == "stall":
        return samples_of(due, None, stalled(due, took, at_s, length_s))
    if event == "pause":  # of the client: what was due in it is sent after it
        sent = np.where(inside, at_s + length_s, due)
    elif event == "outage":
        took, failure = np.where(inside, 0.001, took), np.where(inside, int(Failure.SERVER_ERROR), 0)
    elif event == "step":
        took = np.where(due >= at_s, fold * took, took)
    elif event == "drift":
        took = took * np.interp(due, [at_s, at_s + length_s], [1.0, fold])
    return samples_of(due, sent, sent + took, failure=failure)


def nearest_rank(times, probability):
    return np.sort(times)[math.ceil(probability * len(times)) - 1]


def hidden(document, rows, warmup_s, duration_s):
    """Figures of a document that are not those of everything due after the warm-up, counted anew."""
    start_ns, end_ns = round(warmup_s * 1e9), round((warmup_s + duration_s) * 1e9)
    due = rows[(rows["due_ns"] >= start_ns) & (rows["due_ns"] < end_ns)]
    ok = due[due["failure"] == 0]
    assert (due["sent_ns"] != MISSING_NS).all()
    took_s = (ok["last_ns"] - ok["due_ns"]) / 1e9
    ended = rows[(rows["last_ns"] > start_ns) & (rows["last_ns"] <= end_ns) & (rows["failure"] == 0)]
    p95_s = nearest_rank(took_s, 0.95)
    right = {
        "counts.requests": len(due),
        "counts.ok": len(ok),
        "counts.failed": len(due) - len(ok),
        "counts.warmup": int((rows["due_ns"] < start_ns).sum()),
        "errors.rate": (len(due) - len(ok)) / len(due),
        "requests_per_s": len(ended) / duration_s,
        "latency_ms.mean": 1e3 * took_s.mean(),
        "latency_ms.p50": 1e3 * nearest_rank(took_s, 0.5),
        "latency_ms.p95": 1e3 * p95_s,
        "latency_ms.max": 1e3 * took_s.max(),
        "goodput.ratio": (took_s <= LIMIT_S).sum() / len(due),
    }
    if len(ok) >= 1000:
        right["latency_ms.p99"] = 1e3 * nearest_rank(took_s, 0.99)
    wrong = [name for name, value in right.items() if look_up(document, name) != approx(value, rel=1e-6)]
    met = {slo["metric"]: slo["met"] for slo in document["slos"]}
    if met["latency_p95_s"] != (p95_s <= LIMIT_S):
        wrong.append("slos")
    if document["window"] != {
        "start_s": warmup_s,
        "end_s": warmup_s + duration_s,
        "rule": "all due after the warm-up",
    }:
        wrong.append("window")
    return wrong


def look_up(document, path):
    for name in path.split("."):
        document = document[name]
    return document


def any_load(seed):
    """A load with an event of any kind, place, length and size: what it was, its rows and its settings."""
    rng = np.random.default_rng(seed)
    event = EVENTS[seed % len(EVENTS)]
    duration_s, warmup_s = float(rng.choice([10.0, 30.0, 60.0])), float(rng.choice([0.0, 1.0, 2.5]))
    rate_rps = float(rng.choice([40.0, 100.0, 200.0]))
    length_s = min(float(rng.uniform(0.2, 5.0)), duration_s / 3)
    rows = load_with(
        event,
        rng,
        rate_rps=rate_rps,
        warmup_s=warmup_s,
        duration_s=duration_s,
        at_s=float(rng.uniform(0, warmup_s + duration_s - length_s)),
        length_s=length_s,
        fold=float(rng.uniform(2, 50)),
    )
    return event, rows, {"pattern": "poisson", "rate_rps": rate_rps, "warmup_s": warmup_s, "duration_s": duration_s}


def hidden_in(folder, seed):
    event, rows, settings = any_load(seed)
    return event, hidden(measured(folder, rows, settings), rows, settings["warmup_s"], settings["duration_s"])


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize("seed", range(25))
def test_no_event_is_left_out_of_the_figures_wherever_it_lies(folder, seed):
    assert hidden_in(folder, seed) == (EVENTS[seed % len(EVENTS)], [])


@pytest.mark.sweep
@pytest.mark.covers("E-FR09")
def test_none_of_a_thousand_events_is_left_out_of_the_figures(folder, counted):
    for seed in range(1000):
        event, wrong = hidden_in(folder, 10_000 + seed)
        counted(f"loads with a {event}", "hidden" if wrong else "all of it in the figures")
        assert not wrong, (seed, event, wrong)


@pytest.mark.parametrize("at_s", [0.0, 1.0, 6.0, 12.0, 18.0, 23.0])
def test_a_stall_is_named_wherever_it_lies(folder, at_s):
    due, took = arrivals(np.random.default_rng(1), 200.0, 25.0)
    rows = samples_of(due, None, stalled(due, took, at_s, 2.0))
    document = measured(folder, rows, {"pattern": "poisson", "rate_rps": 200.0, "duration_s": 25.0})
    (outage,) = document["steady_state"]["outages"]
    assert outage["start_s"] == approx(at_s, abs=0.26)
    assert outage["end_s"] == approx(at_s + 2, abs=0.26)
    assert (outage["missed"], outage["failed"]) == (approx(400, rel=0.2), 0)
    assert "outage" in codes(document)
    assert "no_steady_state" not in codes(document)
    assert document["verdict"] == "SUSPECT"


def test_failures_for_a_while_are_an_outage_and_few_failures_all_the_time_are_none(folder):
    settings = {"pattern": "poisson", "rate_rps": 200.0, "duration_s": 30.0}
    due, took = arrivals(np.random.default_rng(2), 200.0, 30.0)
    down = (due > 2.0) & (due < 2.9)
    rows = samples_of(due, None, due + took, failure=np.where(down, int(Failure.SERVER_ERROR), 0))
    (outage,) = measured(folder, rows, settings)["steady_state"]["outages"]
    assert (outage["start_s"], outage["end_s"]) == (approx(2.0, abs=0.31), approx(2.9, abs=0.31))
    rows = samples_of(due, None, due + took, failure=np.where(np.arange(len(due)) % 20, 0, int(Failure.TIMEOUT)))
    assert measured(folder, rows, settings)["steady_state"]["outages"] == []


def test_rounds_of_requests_that_end_together_are_no_outages(folder):
    ends = np.repeat(np.arange(1, 41) * 0.5, 64)
    rows = samples_of(ends - 0.5, None, ends - 1e-4)
    settings = {"pattern": "closed", "concurrency": 64, "duration_s": 20.0}
    assert measured(folder, rows, settings)["steady_state"]["outages"] == []


# Steady state: late changes, and what is called a change that is none


def late_step(seed):
    """A load whose response time is five times as long from some moment of its last fifth on."""
    rng = np.random.default_rng(seed)
    duration_s = float(rng.choice([10.0, 30.0, 60.0]))
    change_s, rate_rps = duration_s * rng.uniform(0.8, 0.95), float(rng.choice([40.0, 100.0, 200.0]))
    if seed % 2:
        due, took = arrivals(rng, rate_rps, duration_s)
        rows = samples_of(due, None, due + np.where(due >= change_s, 5 * took, took))
        return rows, {"pattern": "poisson", "rate_rps": rate_rps, "duration_s": duration_s}
    ended = np.cumsum(rng.lognormal(math.log(1 / rate_rps), rng.uniform(0.1, 1.0), int(2 * rate_rps * duration_s)))
    ended = np.where(ended > change_s, change_s + 5 * (ended - change_s), ended)
    sent = np.concatenate([[0.0], ended[:-1]])
    chosen = sent < duration_s
    return samples_of(sent[chosen], None, ended[chosen]), {"duration_s": duration_s}


def steady(folder, rows, settings):
    return measured(folder, rows, settings, ())["steady_state"]["steady"]


@pytest.mark.slow
def test_a_late_step_is_flagged(folder):
    assert sum(steady(folder, *late_step(seed)) is False for seed in range(20)) >= 19


@pytest.mark.sweep
def test_late_steps_are_flagged_in_nearly_all_cases(folder, counted):
    flagged = 0
    for seed in range(1000):
        found = steady(folder, *late_step(seed)) is False
        flagged += found
        counted("steps to the fivefold in the last fifth", "flagged" if found else "missed")
    assert flagged >= 950


def false_flags(folder, utilisation, seeds):
    for seed in seeds:
        settings = {"rate_rps": 1000.0 * utilisation, "warmup_s": 1.0, "duration_s": 20.0}
        due, ended = queue(np.random.default_rng(seed), utilisation=utilisation, **settings)
        yield steady(folder, samples_of(due, None, ended), {"pattern": "poisson", **settings}) is False


@pytest.mark.slow
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_a_queue_at_rest_is_seldom_called_unsteady(folder, utilisation):
    assert sum(false_flags(folder, utilisation, range(25))) <= 2


@pytest.mark.sweep
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_a_queue_at_rest_is_called_unsteady_at_the_nominal_rate_at_most(folder, utilisation, counted):
    flags = list(false_flags(folder, utilisation, range(1000)))
    for flag in flags:
        counted(f"M/M/1 at {utilisation}, nominal 1 %", "false flags" if flag else "steady")
    assert sum(flags) <= binom.ppf(0.995, 1000, 0.01)


# Queues, against theory


@pytest.mark.sweep
@pytest.mark.parametrize("fixed", [False, True], ids=["M/M/1", "M/D/1"])
@pytest.mark.parametrize("utilisation", [0.8, 0.85, 0.9, 0.95])
def test_mean_and_p99_of_a_queue_are_those_of_theory(folder, utilisation, fixed, counted):
    seeds = 50
    settings = {"rate_rps": 1000.0 * utilisation, "warmup_s": 2.0, "duration_s": 100.0}
    found = []
    for seed in range(seeds):
        due, ended = queue(np.random.default_rng(seed), utilisation=utilisation, fixed=fixed, **settings)
        document = measured(folder, samples_of(due, None, ended), {"pattern": "poisson", **settings}, ())
        found.append([document["latency_ms"][name] / 1e3 for name in ("mean", "p99")])
    middle, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(seeds)
    theory = [of(utilisation=utilisation, rate_rps=settings["rate_rps"], fixed=fixed) for of in (mean_s, p99_s)]
    inside = np.abs(middle - theory) <= t.ppf(0.995, seeds - 1) * error
    for each in inside:
        counted("means and p99 of queues in their 99 % interval", "inside" if each else "outside")
    assert inside.all(), (middle, theory, error)


@pytest.mark.slow
def test_a_queue_near_its_capacity_is_not_measured_better_than_it_is(folder):
    settings = {"rate_rps": 900.0, "warmup_s": 2.0, "duration_s": 30.0}
    means = []
    for seed in range(10):
        due, ended = queue(np.random.default_rng(100 + seed), utilisation=0.9, **settings)
        rows = samples_of(due, None, ended)
        means.append(measured(folder, rows, {"pattern": "poisson", **settings}, ())["latency_ms"]["mean"] / 1e3)
    theory = mean_s(utilisation=0.9, rate_rps=900.0)
    assert abs(np.mean(means) - theory) <= t.ppf(0.995, 9) * np.std(means, ddof=1) / math.sqrt(10)
