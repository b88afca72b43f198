"""Requests without an answer in the figures: time-outs and what the end of a load cut off are lower bounds."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import a_load, a_metrics, a_trial, codes, samples_of, write_samples

from seamark.analysis.gate import gate_of_trial
from seamark.analysis.metrics.objectives import judged_objectives
from seamark.analysis.prometheus_text import figures_of, text_of
from seamark.analysis.summary import write_metrics
from seamark.analysis.summary.summary import summarise
from seamark.analysis.trial_view import read_histograms
from seamark.model.results.summary import Summary
from seamark.model.results.times import BoundedDistribution
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.sample import Failure
from seamark.model.scenario import Slo
from seamark.model.trial import Plan
from seamark.report.terminal import quick_load_text, summary_table
from seamark.storage.codec import decode, encode
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder, TrialFolder

pytestmark = pytest.mark.covers("E-FR09")
approx = pytest.approx
OPEN = {"pattern": "constant", "rate_rps": 2000.0, "timeout_s": 2.0}


def rows_with_time_outs(share: float = 0.009, **changes: Any) -> np.ndarray:
    """20,000 requests of 1 to 12.7 ms in 10 s, of which a share timed out after 2 s."""
    due = np.arange(20_000) / 2000.0
    late = np.arange(20_000) % 1000 < 1000 * share
    took_s = np.where(late, 2.0, np.random.default_rng(3).uniform(0.001, 0.0127, 20_000))
    return samples_of(due, None, due + took_s, failure=np.where(late, Failure.TIMEOUT, 0), **changes)


def measured(
    folder: TrialFolder, rows: np.ndarray, slos: tuple[Slo, ...] = (), settings: Any = OPEN, **load: Any
) -> dict[str, Any]:
    write_samples(folder.samples, rows)
    write(folder.load, a_load(**load))
    return encode(write_metrics(a_trial(settings, slos=slos), folder))


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(root=tmp_path / "s" / "d-1--w-1--r1")


def test_a_percentile_that_reaches_into_time_outs_is_a_lower_bound_and_a_reason_says_so(folder):
    document = measured(folder, rows_with_time_outs())
    times = document["latency_ms"]
    assert document["errors"]["rate"] == approx(0.009, abs=1e-4), "not enough for the reason error_rate"
    assert times["p99"] < 12.7
    assert times["p999"] == times["max"] == approx(2000)
    assert {name: high for name, (_, high) in times["ranges"].items()} == dict.fromkeys(["p999", "mean", "max"])
    assert times["censored"] == document["counts"]["timeouts"] == 180
    assert times["mean"] == approx(6.85, rel=0.01), "of the answered ones"
    assert set(document["service_time_ms"]["ranges"]) == {"p999", "mean", "max"}
    assert document["ttft_ms"] is None, "no reply was streamed"
    [reason] = [reason for reason in document["reasons"] if reason["code"] == "percentile_lower_bound"]
    assert "180 of 20,000 requests timed out" in reason["text"]
    assert "latency p999 at least 2000 ms" in reason["text"]


@pytest.mark.parametrize(("limit", "met"), [(0.0009, False), (0.05, None), (0.12, True)])
def test_an_error_rate_is_a_range_from_all_unseen_requests_good_to_all_failed(folder, limit, met):
    """Of 1,000 requests 1 failed, 60 were never sent, and 40 had no answer when the load ended."""
    due = np.arange(1000) / 100.0
    failure = np.zeros(1000, dtype=int)
    failure[500], failure[900:] = int(Failure.RESET), int(Failure.CANCELLED)
    sent = np.where(np.arange(1000) < 940, due, np.nan)
    rows = samples_of(due, sent, np.where(failure == Failure.CANCELLED, np.nan, due + 0.002), failure=failure)
    slo = Slo(metric="error_rate", op="<=", limit=limit)
    document = measured(folder, rows, (slo,), {"pattern": "constant", "rate_rps": 100.0})
    assert document["errors"]["rate"] == approx(1 / 940, rel=1e-6), "of those sent"
    assert document["errors"]["ranges"] == {"rate": [approx(0.001), approx(0.101)]}
    [judged] = document["slos"]
    assert (judged["met"], judged["range"]) == (met, [approx(0.001), approx(0.101)])


def test_without_time_outs_no_figure_is_marked(folder):
    document = measured(folder, rows_with_time_outs(0.0))
    assert document["latency_ms"]["ranges"] == document["errors"]["ranges"] == {}
    assert document["latency_ms"]["censored"] == 0
    assert "percentile_lower_bound" not in codes(document)


def test_a_request_that_timed_out_after_its_first_token_has_a_time_to_it(folder):
    rows = rows_with_time_outs(units=5)
    begun = (rows["failure"] == 0) | (rows["index"] % 1000 < 5)
    rows["first_ns"] = np.where(begun, rows["due_ns"] + 1_000_000, rows["first_ns"])
    document = measured(folder, rows)
    assert document["ttft_ms"]["censored"] == document["ttft_response_ms"]["censored"] == 80
    assert document["ttft_ms"]["mean"] == document["ttft_ms"]["p99"] == approx(1)
    assert set(document["ttft_ms"]["ranges"]) == {"p999", "mean", "max"}
    assert document["latency_ms"]["censored"] == 180
    assert document["tpot_ms"]["mean"] < 12.7 / 4, "of whole replies only"


def test_what_a_load_leaves_unanswered_and_never_sent_is_in_its_percentiles(folder):
    """Twice what is served is offered: half of the requests were never sent."""
    due = np.arange(10_000) / 1000.0
    sent = np.arange(10_000) / 500.0
    kept = sent < 10
    gone = np.where(kept, 0, int(Failure.CANCELLED))
    rows = samples_of(due, np.where(kept, sent, np.nan), np.where(kept, sent + 0.002, np.nan), failure=gone)
    document = measured(folder, rows, settings={"pattern": "constant", "rate_rps": 1000.0})
    times = document["latency_ms"]
    assert times["censored"] == document["counts"]["unfinished"] == 5000
    assert {"p50", "p99", "max"} <= set(times["ranges"])
    assert times["p50"] < 5000, "which it would be if all had been served"
    assert document["service_time_ms"]["censored"] == 0, "what was never sent was not served"
    text = quick_load_text(decode(document, TrialMetrics), None)
    assert "response time †" in text
    assert "† : saturated" in text
    assert "≥" in text


def test_a_request_that_was_never_sent_waits_for_its_first_token_since_it_was_due(folder):
    """1,000 requests a second are offered and 800 served: 2,000 are never sent."""
    due, sent = np.arange(10_000) / 1000.0, np.arange(10_000) / 800.0
    kept = sent < 10
    sent = np.where(kept, sent, np.nan)
    gone = np.where(kept, 0, int(Failure.CANCELLED))
    rows = samples_of(due, sent, sent + 0.002, first_s=sent + 0.001, failure=gone, units=4)
    slos = (Slo(metric="ttft_response_p95_s", op="<=", limit=1.95),)
    document = measured(folder, rows, slos, {"pattern": "constant", "rate_rps": 1000.0})
    assert document["ttft_response_ms"]["censored"] == document["latency_ms"]["censored"] == 2000
    assert "p95" in document["ttft_response_ms"]["ranges"]
    assert document["slos"][0]["met"] is not True
    assert document["ttft_ms"]["censored"] == 0, "what was never sent has no time since its send"
    assert document["schedule_lag_ms"]["max"] == approx(2000, rel=0.01), "of those that were sent"


def test_an_objective_is_never_met_by_a_lower_bound(folder):
    slos = tuple(
        Slo(metric=name, op=op, limit=limit)
        for name, op, limit in (
            ("latency_p999_s", "<=", 0.5),
            ("latency_p999_s", "<=", 3.0),
            ("latency_p999_s", ">=", 1.0),
            ("latency_p99_s", "<=", 0.5),
            ("latency_mean_s", "<=", 0.5),
            ("latency_mean_s", "<=", 0.001),
            ("latency_s", "<=", 0.5),
        )
    )
    document = measured(folder, rows_with_time_outs(), slos=slos)
    assert [slo["met"] for slo in document["slos"]] == [False, None, True, True, None, False, True]
    assert [slo["range"] is not None for slo in document["slos"]] == [True, True, True, False, True, True, False]
    assert document["slos"][4]["value"] == approx(0.00685 * 0.991 + 2 * 0.009, rel=0.01), "time-outs as they waited"
    assert "objective latency_p999_s <= 3: ≥ 2.00, unknown" in quick_load_text(decode(document, TrialMetrics), None)


def few_unsent(count: int, unsent: int, spread_ms: float) -> np.ndarray:
    """Requests of 100 a second and of rising times from 20 ms on; the last ones due were never sent."""
    due = np.arange(count) / 100.0
    gone = np.arange(count) >= count - unsent
    took_s = 0.02 + np.random.default_rng(1).permutation(count) * spread_ms / 1e3 / count
    sent = np.where(gone, np.nan, due)
    return samples_of(due, sent, sent + took_s, failure=np.where(gone, int(Failure.CANCELLED), 0))


CONSTANT = {"pattern": "constant", "rate_rps": 100.0, "timeout_s": 2.0, "warmup_s": 0.0}


def test_a_range_on_one_side_of_a_limit_passes_the_gate_and_across_it_does_not(folder):
    slos = tuple(Slo(metric="latency_p99_s", op="<=", limit=limit) for limit in (1.0, 0.119, 0.1))
    settings = CONSTANT | {"duration_s": 12.0}
    document = measured(folder, few_unsent(1200, 4, 100.0), slos, settings)
    low, high = document["latency_ms"]["ranges"]["p99"]
    assert document["latency_ms"]["p99"] == low == approx(118.6, abs=0.5)
    assert high == approx(119, abs=0.6)
    assert [slo["met"] for slo in document["slos"]] == [True, None, False]
    only = decode(measured(folder, few_unsent(1200, 4, 100.0), slos[:1], settings), TrialMetrics)
    assert gate_of_trial(only).passed
    across = decode(measured(folder, few_unsent(1200, 4, 100.0), slos[1:2], settings), TrialMetrics)
    assert not gate_of_trial(across).passed


def test_one_unsent_request_of_287_leaves_the_median_a_number(folder):
    document = measured(folder, few_unsent(287, 1, 10.0), settings=CONSTANT | {"duration_s": 2.87})
    low, high = document["latency_ms"]["ranges"]["p50"]
    assert low < high < 1.01 * low
    text = quick_load_text(decode(document, TrialMetrics), None)
    [times] = [line.split()[3] for line in text.splitlines() if line.startswith("response time")]
    assert float(times) == approx(low, rel=0.01)


@pytest.mark.parametrize("metric", ["latency_s", "latency_p99_s"])
def test_with_400_samples_a_p99_is_an_interval_for_objectives_and_under_368_it_can_only_be_missed(folder, metric):
    slos = tuple(Slo(metric=metric, op="<=", limit=limit) for limit in (0.5, 0.118, 0.05))
    for count, met in ((400, [True, None, False]), (300, [None, None, False]), (59, [None, None, None])):
        document = measured(folder, few_unsent(count, 0, 100.0), slos, CONSTANT | {"duration_s": count / 100})
        assert document["latency_ms"]["p99"] is None
        assert [slo["met"] for slo in document["slos"]] == met


def test_goodput_is_a_range_where_requests_were_cut_off_before_they_missed(folder):
    slos = (Slo(metric="latency_s", op="<=", limit=0.07),)
    document = measured(folder, few_unsent(1200, 4, 100.0), slos, CONSTANT | {"duration_s": 12.0})
    low, high = document["goodput"]["ranges"]["ratio"]
    assert document["goodput"]["ratio"] == approx(low)
    assert high == approx(low + 4 / 1200)


def test_old_figures_without_bounds_are_judged_as_they_stand():
    older = a_metrics(latency_ms=decode({"p99": 900.0}, BoundedDistribution))
    [judged] = judged_objectives((Slo(metric="latency_p99_s", op="<=", limit=1.0),), older)
    assert judged.met is True


def test_tables_terminal_and_export_mark_what_is_a_lower_bound(folder):
    document = measured(folder, rows_with_time_outs())
    [row] = csv.DictReader(folder.metrics_csv.open())
    assert row["latency_ms_ranges"].startswith("p999=2000.. mean=")
    assert row["latency_ms_censored"] == "180"
    trial = a_trial(OPEN)
    text = text_of([figures_of(decode(document, TrialMetrics), trial, {})])
    bounds = [
        line for line in text.splitlines() if line.startswith("seamark_latency_seconds") and 'bound="lower"' in line
    ]
    assert [line.split('statistic="')[1].split('"')[0] for line in bounds] == ["p999", "max"]
    assert re.search(r'seamark_latency_seconds\{.*of="answered".*statistic="mean"', text)
    assert "seamark_latency_censored_requests{" in text
    shown = quick_load_text(decode(document, TrialMetrics), None)
    assert "≥ 2,000" in shown
    assert "(6.8" in shown
    assert "≥ a, a–b : " in shown


def test_pooled_percentiles_of_repetitions_reach_into_time_outs(folder, tmp_path):
    """A repetition without a time-out and one with 1.8 %: 0.9 % of all."""
    other = TrialFolder(root=tmp_path / "s" / "d-1--w-1--r2")
    measured(folder, rows_with_time_outs(0.018))
    clean = rows_with_time_outs()
    clean["failure"], clean["last_ns"] = 0, clean["due_ns"] + 5_000_000
    write_samples(other.samples, clean)
    write(other.load, a_load())
    trials = (a_trial(OPEN), a_trial(OPEN, repetition=2))
    write_metrics(trials[1], other)
    plan = Plan(
        scenario="s", source="s", seed=1, repetitions=2, max_retries=0, factors={}, deployments=(), trials=trials
    )
    summary = encode(summarise(plan, ScenarioFolder(root=tmp_path / "s")))
    [times] = [treatment["latency_ms"] for treatment in summary["treatments"]]
    assert times["p999"] == approx(2000, rel=0.005)
    assert set(times["ranges"]) == {"p999", "mean", "max"}
    assert times["n"] == 40_000
    assert times["p99"] < 13
    table = summary_table(decode(summary, Summary), 160)
    assert table.caption is None, "none of the columns of this table is a range"
    summary["treatments"][0]["latency_ms"]["ranges"] = {"p99": [12.0, None]}
    cells = [str(cell) for column in summary_table(decode(summary, Summary), 160).columns for cell in column.cells]
    assert any(cell.startswith("≥") for cell in cells)
    assert "at least" in str(summary_table(decode(summary, Summary), 160).caption)


def test_a_histogram_file_of_an_older_version_has_no_bounds(folder):
    measured(folder, rows_with_time_outs())
    kept = json.loads(folder.histogram.read_text())
    assert kept["censored"]["response_ns"]["count"] == 180
    del kept["censored"]
    folder.histogram.write_text(json.dumps(kept))
    assert read_histograms(folder)[1] == {}
