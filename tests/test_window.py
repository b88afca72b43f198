"""Nothing that happened after the declared warm-up is left out of a figure: stalls, outages, steps, pauses."""

from types import SimpleNamespace

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.metrics import measure
from seamark.model.failure import Failure
from seamark.model.scenario import Slo
from seamark.stats.quantiles import rank

approx = pytest.approx
OBJECTIVE = (Slo(metric="latency_s", op="<=", limit=0.1), Slo(metric="latency_p95_s", op="<=", limit=0.1))


@pytest.fixture
def folder(tmp_path):
    return SimpleNamespace(
        samples=tmp_path / "samples.parquet",
        chunks=tmp_path / "chunks.parquet",
        telemetry=tmp_path / "telemetry.parquet",
    )


def measured(folder, rows, settings, slos=OBJECTIVE):
    write_samples(folder.samples, rows)
    return measure(a_trial(settings, slos=slos), a_load(), folder, scenario="s").document


def codes(document):
    return {reason["code"] for reason in document["reasons"]}


def open_loop(rate_rps, duration_s, rng):
    """Poisson arrivals and service times of a quick server with many threads."""
    due = np.sort(rng.uniform(0, duration_s, int(rate_rps * duration_s)))
    return due, rng.lognormal(np.log(0.005), 0.4, len(due))


def stalled(due, took, at_s, length_s):
    """The ends of requests on a server that answers nothing from `at_s` on for `length_s`."""
    ended = due + took
    inside = (ended > at_s) & (due < at_s + length_s)
    return np.where(inside, at_s + length_s + took, ended)


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize("at_s", [0.0, 1.0, 6.0, 12.0, 18.0, 23.0])
def test_a_stall_is_in_every_headline_figure_wherever_it_lies(folder, at_s):
    due, took = open_loop(200.0, 25.0, np.random.default_rng(1))
    ended = stalled(due, took, at_s, 2.0)
    document = measured(
        folder, samples_of(due, None, ended), {"pattern": "poisson", "rate_rps": 200.0, "duration_s": 25.0}
    )
    response = np.sort(ended - due)
    assert document["counts"]["requests"] == len(due)
    assert document["latency_ms"]["p95"] == approx(1e3 * response[rank(0.95, len(due))], rel=1e-6)
    assert document["latency_ms"]["max"] == approx(1e3 * response[-1], rel=1e-6)
    assert document["goodput"]["ratio"] == approx((response <= 0.1).mean())
    assert [slo["met"] for slo in document["slos"]] == [False, False]


@pytest.mark.covers("E-FR09")
def test_an_outage_at_the_start_counts_as_errors(folder):
    due, took = open_loop(200.0, 30.0, np.random.default_rng(2))
    down = (due > 2.0) & (due < 6.0)
    took, failure = np.where(down, 0.001, took), np.where(down, int(Failure.SERVER_ERROR), 0)
    rows = samples_of(due, None, due + took, failure=failure)
    document = measured(folder, rows, {"pattern": "poisson", "rate_rps": 200.0, "duration_s": 30.0})
    assert document["errors"]["rate"] == approx(down.mean())
    assert document["counts"]["failed"] == down.sum()
    assert "error_rate" in codes(document)
