"""Latency CDF: against a plain sort of all requests, and without percentiles that the tables withhold."""

import re
from dataclasses import replace

import numpy as np
import pytest
from make_results import Made, make_results
from matplotlib.figure import Figure
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary import write_metrics
from seamark.analysis.trial_view import record_of
from seamark.model.results.trial_metrics import Histograms
from seamark.report.figures.latency_cdf import _draw, latency_blocks, marked, pooled
from seamark.report.page.content import Picture, Text
from seamark.report.source import read_results
from seamark.stats.histogram import RELATIVE_ERROR, of
from seamark.storage.documents import write as write_noun
from seamark.storage.paths import TrialFolder


def write(folder, took_ns, unanswered_ns=()):
    """Write a trial's histogram.json: times of answered requests, and lower bounds of those without an answer."""
    known = record_of(of(np.asarray(took_ns)))
    bounds = record_of(of(np.asarray(unanswered_ns, dtype=np.int64)))
    histograms = {"response_ns": known, "service_ns": known}
    write_noun(folder.histogram, Histograms(trial="t", histograms=histograms, censored={"response_ns": bounds}))
    return folder


@pytest.fixture
def folder(tmp_path):
    return TrialFolder(root=tmp_path / "s" / "d--w--r1")


def shares(curve):
    return (curve.buckets["requests"].cumsum() / curve.n).to_numpy()


def test_a_curve_pools_the_requests_of_all_trials(tmp_path):
    rng = np.random.default_rng(1)
    parts = [(rng.lognormal(14, 1, size) + 1).astype(np.int64) for size in (50_000, 20_000)]
    curve = pooled(write(TrialFolder(root=tmp_path / str(n)), part) for n, part in enumerate(parts))
    took_ms = np.concatenate(parts) / 1e6
    assert curve.n == curve.buckets["requests"].sum() == 70_000
    for share in (0.5, 0.9, 0.99, 0.999):
        near = curve.buckets["ms"][np.searchsorted(shares(curve), share)]
        assert near == pytest.approx(np.quantile(took_ms, share), rel=0.01)


def test_the_percentiles_of_a_curve_are_those_of_the_tables(folder):
    due_s = np.arange(2000) / 200
    write_samples(folder.samples, samples_of(due_s, None, due_s + np.random.default_rng(1).uniform(0.01, 0.1, 2000)))
    write_noun(folder.load, a_load())
    metrics = write_metrics(a_trial(), folder)
    curve = pooled([folder])
    assert curve.n == metrics.counts.ok > 1000
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        at_ms = curve.buckets["ms"][np.searchsorted(shares(curve), share)]
        assert at_ms == pytest.approx(getattr(metrics.latency_ms, name), rel=0.01)


def test_a_histogram_that_is_damaged_or_of_another_error_is_left_out_and_counted(tmp_path):
    good, bad, other = (TrialFolder(root=tmp_path / name) for name in ("good", "bad", "other"))
    write(good, np.full(30, 5_000_000))
    write(bad, np.full(30, 5_000_000)).histogram.write_text("{")
    text = write(other, np.full(30, 5_000_000)).histogram.read_text()
    other.histogram.write_text(text.replace(f'"relative_error": {RELATIVE_ERROR}', '"relative_error": 0.01'))
    assert other.histogram.read_text() != text
    curve = pooled([good, bad, other])
    assert (curve.n, curve.unread) == (30, 2)


@pytest.mark.covers("E-FR09")
def test_a_curve_counts_requests_that_timed_out_and_says_from_where_on_it_is_a_lower_bound(folder):
    took_ns = np.arange(1, 20_001, dtype=np.int64) * 100_000
    late = took_ns >= 1_500_000_000
    curve = pooled([write(folder, took_ns[~late], np.full(late.sum(), 1_500_000_000))])
    assert curve.n == 20_000
    assert curve.known_until_ms == 1500
    below = curve.buckets["ms"] < 1500 * (1 - RELATIVE_ERROR)
    assert curve.buckets["requests"][below].sum() / curve.n == pytest.approx(0.75, abs=0.01)


def test_no_good_request_gives_no_curve(folder):
    assert pooled([write(folder, np.array([], dtype=np.int64), np.ones(3, dtype=np.int64))]) is None


@pytest.mark.parametrize(
    ("n", "shares"), [(17, ()), (20, (0.5,)), (199, (0.5,)), (200, (0.5, 0.95)), (1000, (0.5, 0.95, 0.99))]
)
def test_a_percentile_is_marked_where_the_tables_give_it(n, shares):
    assert marked(n) == shares


@pytest.mark.slow
@pytest.mark.covers("E-FR28")
def test_too_few_requests_for_a_median_are_not_drawn_and_the_report_says_so(tmp_path):
    made = Made(
        service="slow",
        component="inference",
        unit="item",
        service_ms=600.0,
        cap_rps=1_000,
        factors={"concurrency": (1, 4)},
    )
    results = read_results(make_results(tmp_path / "r", services=(made,), repetitions=1, fail=(), suspect=()))
    [workload] = results.services["slow"]
    (picture,) = latency_blocks(workload)
    assert isinstance(picture, Picture)
    numbers = [int(n) for n in re.findall(r"n = (\d+)", picture.svg.decode())]
    assert len(numbers) == 1
    assert 20 <= numbers[0] < 200
    assert "Not drawn: 1 treatment of fewer than 20 good requests." in picture.caption
    alone = latency_blocks(replace(workload, treatments=results.treatments[:1]))
    assert [type(block) for block in alone] == [Text]


@pytest.mark.parametrize("complementary", [False, True])
def test_markers_stand_at_the_height_of_their_percentile_whatever_the_steps(folder, complementary):
    """Seven of ten requests are in one bucket: the median lies inside its step."""
    took_ns = np.concatenate([np.full(700, 5_000_000), np.linspace(6e6, 20e6, 300).astype(np.int64)])
    curve = pooled([write(folder, took_ns)])
    axis = Figure().add_subplot()
    _draw(axis, curve, 0, complementary=complementary)
    marked_at = sorted(line.get_ydata()[0] for line in axis.lines[1:])
    assert marked_at[-1 if complementary else 0] == pytest.approx(0.5)
    assert pytest.approx(0.05 if complementary else 0.95) in marked_at
