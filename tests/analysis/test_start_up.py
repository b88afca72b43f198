"""What `warmup_s: auto` cuts off a load: a start-up, at most a quarter, and never an outage, a failure or a tail."""

import math

import numpy as np
import pytest
from queues import queue
from samples import a_load, a_trial, metrics_of, samples_of, write_samples
from scipy.stats import binom

from seamark.model.sample import Failure

approx = pytest.approx
DURATION_S = 20.0
LONGEST_S = DURATION_S / 4
LOAD_S = DURATION_S + LONGEST_S
RATE_RPS = 200.0
SETTINGS = {"pattern": "poisson", "rate_rps": RATE_RPS, "warmup_s": "auto", "duration_s": DURATION_S}


def measured(folder, rows, **settings):
    write_samples(folder.samples, rows)
    trial, load = a_trial(SETTINGS | settings), a_load(warmup_s=LONGEST_S, duration_s=DURATION_S)
    return metrics_of(trial, load, folder, scenario="s")


def warming_up(rng, ends_s, fold, shape="decay"):
    """Arrivals of a load, and response times that are `fold` times as long at its start and settle by `ends_s`."""
    due = np.sort(rng.uniform(0, LOAD_S, int(RATE_RPS * LOAD_S)))
    took = rng.lognormal(math.log(0.005), 0.3, len(due))
    if shape == "decay":
        return due, took * (1 + (fold - 1) * np.exp(-due / (ends_s / 4)))
    return due, took * np.where(due < ends_s, np.interp(due, [0, ends_s], [fold, 1.2]), 1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["decay", "line"])
@pytest.mark.parametrize("ends_s", [2.0, 4.0])
def test_a_start_up_is_cut_off_and_its_figures_are_kept(folder, ends_s, shape):
    due, took = warming_up(np.random.default_rng(1), ends_s, 20.0, shape)
    document = measured(folder, samples_of(due, None, due + took))
    auto, cut_s = document["warmup_auto"], document["warmup_auto"]["cut_s"]
    assert 0.3 * ends_s <= cut_s <= 1.3 * ends_s
    assert auto["limit_s"] == LONGEST_S
    assert document["window"] == {
        "start_s": cut_s,
        "end_s": LOAD_S,
        "rule": "all due after the start-up (warmup_s: auto)",
    }
    counts, part = document["counts"], auto["part"]
    assert counts["requests"] == (due >= cut_s).sum(), "what lies between the cut and the longest warm-up counts"
    assert counts["warmup"] == part["requests"] == (due < cut_s).sum()
    assert (part["failed"], part["end_s"]) == (0, cut_s)
    assert part["latency_ms"]["p50"] == approx(1e3 * np.sort(took[due < cut_s])[math.ceil(part["ok"] / 2) - 1])
    (note,) = [reason for reason in document["reasons"] if reason["code"] == "warmup_cut"]
    assert note["severity"] == "note"
    assert f"cut off the first {cut_s:.3g} s" in note["text"]
    assert f"{part['requests']:,} requests, 0 failed" in note["text"]


def test_what_is_not_over_in_a_quarter_is_not_cut_off(folder):
    due, took = warming_up(np.random.default_rng(1), 12.0, 20.0, "line")
    document = measured(folder, samples_of(due, None, due + took))
    assert document["warmup_auto"]["cut_s"] == 0
    assert document["warmup_auto"]["part"] is None
    assert document["window"]["start_s"] == 0
    assert document["counts"]["requests"] == len(due)
    assert document["steady_state"]["steady"] is False


def outage_at_start(seed):
    """A load with a start-up or none, and in its first part a stall, failures, a slow tail, or a pause of the client;
    what it has, and which requests it is about."""
    rng = np.random.default_rng(seed)
    due, took = warming_up(rng, float(rng.uniform(1, 4)), float(rng.choice([1.0, 20.0])))
    at_s, length_s = float(rng.choice([0.0, rng.uniform(0, 3)])), float(rng.uniform(0.2, 2))
    inside, chosen = (due >= at_s) & (due < at_s + length_s), rng.uniform(size=len(due))
    kind = ("stall", "failures", "few failures", "tail", "pause")[seed % 5]
    if kind == "stall":
        held = (due + took > at_s) & (due < at_s + length_s)
        ended = np.where(held, at_s + length_s + took, due + took)
        return kind, held & (ended - due - took > 0.05), samples_of(due, None, ended)
    if kind == "pause":  # what was due in it is sent after it
        sent = np.where(inside, at_s + length_s, due)
        return kind, inside & (sent - due > 0.05), samples_of(due, sent, sent + took)
    if kind == "tail":
        slow = inside & (chosen < 0.05)
        return kind, slow, samples_of(due, None, due + np.where(slow, took * 20, took))
    failed = inside & (chosen < (1.0 if kind == "failures" else 0.1))
    return kind, failed, samples_of(due, None, due + took, failure=np.where(failed, int(Failure.SERVER_ERROR), 0))


def bad_rows_cut_off(folder, seed):
    """Which kind of fault a load has, and how many requests of it `auto` cuts off."""
    kind, bad, rows = outage_at_start(seed)
    cut_ns = 1e9 * measured(folder, rows)["warmup_auto"]["cut_s"]
    return kind, int((bad & (rows["due_ns"] < cut_ns)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_an_outage_at_the_start_is_never_cut_off(folder, seed):
    kind, cut = bad_rows_cut_off(folder, seed)
    assert not cut, kind


@pytest.mark.sweep
def test_none_of_a_thousand_outages_at_the_start_is_cut_off(folder, counted):
    for seed in range(1000):
        kind, cut = bad_rows_cut_off(folder, 1000 + seed)
        counted(f"loads with {kind} in their first quarter, warmup_s: auto", "cut off" if cut else "measured")
        assert not cut, (seed, kind)


def cuts(folder, utilisation, seeds):
    for seed in seeds:
        of = {"rate_rps": 1000.0 * utilisation, "warmup_s": LONGEST_S, "duration_s": DURATION_S}
        due, ended = queue(np.random.default_rng(seed), utilisation=utilisation, **of)
        document = measured(folder, samples_of(due, None, ended), rate_rps=of["rate_rps"])
        yield document["warmup_auto"]["cut_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_nothing_is_cut_off_a_queue_at_rest(folder, utilisation):
    assert sum(cuts(folder, utilisation, range(20))) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_noise_is_cut_off_at_the_nominal_rate_at_most(folder, utilisation, counted):
    found = list(cuts(folder, utilisation, range(500)))
    for each in found:
        counted(f"M/M/1 at {utilisation}, warmup_s: auto", "cut" if each else "whole")
    assert sum(found) <= binom.ppf(0.995, 500, 0.02)


def test_a_load_whose_rate_is_meant_to_change_is_not_cut(folder):
    due = np.sqrt(np.arange(5000) / 5000) * LOAD_S
    settings = {"pattern": "ramp", "rate_rps": 1.0, "ramp_to_rps": 400.0}
    document = measured(folder, samples_of(due, None, due + 0.001), **settings)
    assert document["warmup_auto"]["cut_s"] == 0
    assert document["warmup_auto"]["reason"] == "nothing was cut: the rate is meant to change"


def test_a_warm_up_in_seconds_is_what_it_says_and_nothing_is_said_of_auto(folder):
    due, took = warming_up(np.random.default_rng(1), 4.0, 20.0)
    document = measured(folder, samples_of(due, None, due + took), warmup_s=LONGEST_S)
    assert document["warmup_auto"] is None
    assert document["window"]["start_s"] == LONGEST_S
