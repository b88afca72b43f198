"""Latency CDF: against a plain sort of all samples, and without percentiles that the tables withhold."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from make_results import Made, make_results

from seamark.model.sample import SAMPLE, Failure
from seamark.report.figures.latency_cdf import latency_pictures, marked, pooled
from seamark.report.page.content import Picture, Text
from seamark.report.source import read_results


def write(path, due_ns, took_ns, failure=None):
    failure = np.zeros(len(due_ns), dtype=np.int8) if failure is None else failure
    columns = {name: np.zeros(len(due_ns), dtype=SAMPLE[name]) for name in SAMPLE.names}
    columns |= {"due_ns": due_ns, "sent_ns": due_ns, "last_ns": due_ns + took_ns, "failure": failure}
    table = pa.table(columns)
    pq.write_table(table, path, row_group_size=7_000)
    return path


def test_every_point_of_the_curve_is_an_exact_count(tmp_path):
    rng = np.random.default_rng(1)
    parts = [(rng.lognormal(14, 1, size) + 1).astype(np.int64) for size in (50_000, 20_000)]
    trials = [
        (write(tmp_path / f"{i}.parquet", np.arange(len(part), dtype=np.int64), part), None)
        for i, part in enumerate(parts)
    ]
    curve = pooled(trials)
    took_ms = np.sort(np.concatenate(parts)) / 1e6
    assert curve.n == 70_000
    assert len(curve.at_ms) <= 2001
    assert np.array_equal(np.searchsorted(took_ms, curve.at_ms, side="left") / 70_000, curve.share)
    for share in (0.5, 0.9, 0.99, 0.999):
        near = curve.at_ms[np.searchsorted(curve.share, share * 0.99999)]
        assert near == pytest.approx(np.quantile(took_ms, share), rel=0.01)
    assert curve.share[-1] <= 0.999


def test_only_good_requests_due_in_the_window_count(tmp_path):
    due_ns = np.arange(0, 10, dtype=np.int64) * 1_000_000_000
    took_ns = np.full(10, 5_000_000, dtype=np.int64)
    failure = np.array([0, 0, 0, Failure.RESET, 0, 0, 0, 0, 0, 0], dtype=np.int8)
    path = write(tmp_path / "a.parquet", due_ns, took_ns, failure)
    curve = pooled([(path, (2.0, 6.0))])
    assert curve.n == 3
    assert curve.at_ms[0] <= 5 < curve.at_ms[-1]


def test_a_curve_ends_where_fewer_than_ten_requests_are_left(tmp_path):
    took_ns = np.arange(1, 1001, dtype=np.int64) * 1_000_000
    curve = pooled([(write(tmp_path / "a.parquet", np.zeros(1000, dtype=np.int64), took_ns), None)])
    assert curve.share[-1] == pytest.approx(0.99, abs=0.002)


@pytest.mark.covers("E-FR09")
def test_a_curve_counts_requests_that_timed_out_and_says_from_where_on_it_is_a_lower_bound(tmp_path):
    took_ns = np.arange(1, 20_001, dtype=np.int64) * 100_000
    failure = np.where(took_ns >= 1_500_000_000, Failure.TIMEOUT, Failure.NONE).astype(np.int8)
    took_ns = np.minimum(took_ns, 1_500_000_000)
    curve = pooled([(write(tmp_path / "a.parquet", np.zeros(20_000, dtype=np.int64), took_ns, failure), None)])
    assert curve.n == 20_000
    assert curve.known_until_ms == pytest.approx(1500, rel=0.002)
    assert curve.share[curve.at_ms.searchsorted(curve.known_until_ms)] == pytest.approx(0.75, abs=0.002)


def test_no_good_request_gives_no_curve(tmp_path):
    path = write(tmp_path / "a.parquet", np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int64), np.ones(3, np.int8))
    assert pooled([(path, None)]) is None


@pytest.mark.parametrize(
    ("n", "shares"), [(17, ()), (20, (0.5,)), (199, (0.5,)), (200, (0.5, 0.95)), (1000, (0.5, 0.95, 0.99))]
)
def test_a_percentile_is_marked_where_the_tables_give_it(n, shares):
    assert marked(n) == shares


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
    blocks = latency_pictures(results, "slow", results.treatments, "slow", tmp_path / "figures")
    (picture,) = blocks
    assert isinstance(picture, Picture)
    numbers = [int(n) for n in re.findall(r"n = (\d+)", picture.svg.decode())]
    assert len(numbers) == 1
    assert 20 <= numbers[0] < 200
    assert "Not drawn: 1 treatment of fewer than 20 good requests." in picture.caption
    alone = latency_pictures(results, "slow", results.treatments[:1], "slow", tmp_path / "figures")
    assert [type(block) for block in alone] == [Text]
