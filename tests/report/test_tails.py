"""Distributions of response times: no percentile is shown that the tables withhold."""

import re

import pytest
from make_results import Made, make_results

from seamark.report.figures.latency_cdf import latency_pictures, marked
from seamark.report.page.content import Picture, Text
from seamark.report.source import read_results


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
