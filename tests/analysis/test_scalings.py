"""Scaling in a summary: which sweeps have a speed-up, which blocks count, and why there is none."""

import json
from dataclasses import replace

import pytest
from samples import a_metrics, a_trial, a_view

from seamark.analysis.summary.knees import point_of
from seamark.analysis.summary.scalings import scalings
from seamark.model.results.load_record import SearchOutcome
from seamark.model.results.summary import Scaling
from seamark.model.results.trial_metrics import Throughput, VerdictReason
from seamark.report.page.content import Table, Text
from seamark.report.page.search import scaling_blocks
from seamark.storage.codec import decode, encode

LEVELS = (1, 2, 4, 8)


def a_point(rates, pattern="closed", metrics=(), **factors):
    """A treatment with the throughput of each repetition; None where it failed."""
    views = [
        a_view(
            replace(a_trial({"pattern": pattern}), repetition=n),
            None
            if rate is None
            else a_metrics(throughput=Throughput(value=rate, unit="tokens_per_s"), **dict(metrics)),
        )
        for n, rate in enumerate(rates, 1)
    ]
    return point_of("chat", factors, views)


def amdahl(n, contention=0.1):
    return 100.0 * n / (1 + contention * (n - 1))


def sweep(factor="gpus", factors=(0.9, 1.0, 1.05, 1.1, 1.2), **fixed):
    return [a_point([amdahl(n) * f for f in factors], **{factor: n}, **fixed) for n in LEVELS]


@pytest.mark.covers("E-FR26")
@pytest.mark.parametrize("factor", ["gpus", "nodes", "concurrency"])
def test_a_sweep_has_speed_up_efficiency_and_both_laws_and_is_read_again_from_the_summary(factor):
    (found,) = scalings(sweep(factor)[::-1])
    assert (found.factor, found.levels, found.blocks, found.unit) == (factor, LEVELS, 5, "tokens_per_s")
    assert [one.value for one in found.speedup] == pytest.approx([amdahl(n) / 100 for n in LEVELS])
    assert [fit.law for fit in found.fits] == ["amdahl", "usl"]
    assert found.fits[0].contention.value == pytest.approx(0.1)
    assert decode(json.loads(json.dumps(encode(found))), Scaling) == found


def test_what_follows_the_factor_is_not_fixed_and_what_does_not_makes_a_sweep_of_its_own():
    points = [
        a_point([amdahl(n)], gpus=n, tensor_parallel=n, model=model) for n in LEVELS for model in ("small", "large")
    ]
    assert [found.fixed for found in scalings(points)] == [{"model": "small"}, {"model": "large"}]


def test_only_repetitions_that_have_every_level_count_and_a_doubt_is_named():
    points = sweep()
    doubt = VerdictReason(code="high_errors", severity="suspect", text="", remedy="")
    points[1] = a_point([None, 180.0, None, 190.0, None], metrics={"reasons": (doubt,)}, gpus=2)
    (found,) = scalings(points)
    assert (found.blocks, found.doubts) == (2, ("high_errors",))
    assert found.speedup[1].low is None


@pytest.mark.covers("E-FR26")
def test_an_open_loop_that_got_what_it_offered_has_no_speed_up_and_a_search_or_a_saturated_one_has():
    def swept(**metrics):
        return scalings([a_point([100.0 * n], "poisson", metrics, gpus=n) for n in LEVELS])[0]

    below = swept(saturated=False)
    assert below.refused
    assert below.speedup == ()
    assert isinstance(scaling_blocks([below])[0], Text)
    assert swept(saturated=True).speedup[3].value == pytest.approx(8)
    assert swept(search=SearchOutcome(setting="rate_rps", found=50.0)).throughput == pytest.approx((50.0,) * 4)


@pytest.mark.covers("E-FR26")
def test_the_report_has_a_table_of_levels_and_one_of_laws_that_only_three_levels_and_five_blocks_allow():
    def tables(points):
        return [table for table in scaling_blocks(scalings(points)) if isinstance(table, Table)]

    levels, laws = tables(sweep())
    assert len(levels.rows) == len(LEVELS)
    assert levels.rows[3][2].text.startswith("4.71 (")
    assert [row[0].text for row in laws.rows] == ["Amdahl", "USL"]
    (alone,) = tables(sweep(factors=(1.0,))[:2])
    assert alone.rows[1][2].text == "1.82"
    assert scalings(sweep("concurrency")[:2]) == (), "two numbers of users are a comparison"
    both = tables([*sweep(model="small"), *sweep(model="large")])
    assert [[row[0].text for row in table.rows] for table in both] == [
        ["small"] * 4 + ["large"] * 4,
        ["small"] * 2 + ["large"] * 2,
    ]
