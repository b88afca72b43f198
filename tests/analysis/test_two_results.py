"""Two results that were not measured in turns: no p, and a verdict that knows how far results differ."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_comparison import HIGH, LOW, PATH, one, trials

from seamark.analysis.comparison.two_results import TwoResults, spread_of, widening
from seamark.model.results.comparison import Between
from seamark.model.scenario import Comparing


def apart(base, new, earlier=(), assumed_sd=0.05, **question):
    """Return the comparison of two results, the values of earlier results being known."""
    two = TwoResults(between=lambda record, path: spread_of(earlier, assumed_sd))
    return one(base, new, apart=two, **question)


def spread_at(sd, count):
    """Return values of `count` results, the logarithms of which have exactly this deviation."""
    scores = stats.zscore(np.arange(count), ddof=1)
    return [100 * math.exp(sd * score) for score in scores]


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("spread", "logs"),
    [
        (Between(sd=0.03, results=5), 2.7764 * 2**0.5 * 0.03),
        (Between(sd=0.06, results=12), 2.2010 * 2**0.5 * 0.06),
        (Between(sd=0.05), 1.95996 * 2**0.5 * 0.05),
    ],
)
def test_the_margin_is_widened_by_students_t_of_the_results_that_are_known(spread, logs):
    assert widening(spread) == pytest.approx(logs, rel=1e-4)
    if spread.results:
        assert widening(spread) == pytest.approx(stats.t.ppf(0.975, spread.results - 1) * 2**0.5 * spread.sd)


def test_the_spread_is_that_of_logarithms_and_assumed_below_five_results():
    known = spread_of(spread_at(0.03, 5))
    assert (known.sd, known.results) == (pytest.approx(0.03), 5)
    assert spread_of(spread_at(0.03, 4)) == Between(sd=0.05)
    assert spread_of([0.0, *spread_at(0.03, 5)], 0.1) == Between(sd=0.1)


@pytest.mark.covers("E-FR29")
def test_two_results_have_one_unit_a_side_an_interval_within_each_and_no_p():
    found = apart(trials("a", LOW), trials("b", HIGH))
    assert (found.unit_of_inference, found.base.units, found.new.units, found.base.trials) == ("result", 1, 1, 5)
    assert (found.p, found.p_adjusted, found.pairs) == (None, None, 0)
    assert found.ratio.value == pytest.approx(1.1, abs=0.001)
    assert 1.05 < found.ratio.low < 1.1 < found.ratio.high < 1.15
    assert found.confidence == pytest.approx(1 - 2 * 4 / math.comb(10, 5))  # U <= 2 in 4 of 252 orders
    assert (found.verdict, found.between.sd) == ("inconclusive", 0.05)
    assert found.between.limit == pytest.approx(1.05 * math.exp(1.95996 * 2**0.5 * 0.05), rel=1e-4)


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.3, "better"), (1.17, "inconclusive"), (1.0, "inconclusive"), (0.7, "worse")]
)
def test_better_and_worse_are_beyond_the_margin_and_what_results_differ_by(factor, verdict):
    """SD 3 % of 8 results: 1.05 x exp(2.3646 x sqrt(2) x 0.03) = 1.161, and the interval reaches 2 % further."""
    found = apart(trials("a", LOW), trials("b", [factor * value for value in LOW]), spread_at(0.03, 8))
    assert found.verdict == verdict
    assert found.between.limit == pytest.approx(1.05 * math.exp(2.36462 * 2**0.5 * 0.03), rel=1e-4)
    assert (found.reason is None) == (verdict != "inconclusive")


def test_results_that_hardly_differ_by_themselves_can_be_equivalent():
    steady = [value / 10 + 90 for value in LOW]
    assert apart(trials("a", steady), trials("b", steady), spread_at(0.003, 8)).verdict == "equivalent"
    assert apart(trials("a", steady), trials("b", steady), spread_at(0.03, 8)).verdict == "inconclusive"


def test_one_trial_a_side_is_judged_by_a_history_and_by_no_assumption():
    base, new = trials("a", LOW[:1]), trials("b", [2 * LOW[0]])
    assert apart(base, new, spread_at(0.03, 8)).verdict == "better"
    assumed = apart(base, new)
    assert (assumed.verdict, assumed.ratio.low) == ("inconclusive", None)
    assert "`repetitions: 4`" in assumed.remedy


@pytest.mark.parametrize("count", [1, 5])
def test_two_results_with_ranges_are_judged_by_both_ends(count):
    """100 to any rate against 200: twice as much by the lower ends, and perhaps far less."""
    base, new = trials("a", LOW[:count]), trials("b", [2 * value for value in LOW[:count]])
    open_ended = [replace(each, figures={PATH: replace(each.figure(PATH), high=None)}) for each in base]
    history = spread_at(0.03, 8)
    assert apart(base, new, history).verdict == "better"
    found = apart(open_ended, new, history)
    assert (found.verdict, found.ratio.value) == ("inconclusive", pytest.approx(2.0))
    assert "percentile_lower_bound" in found.remedy
    assert apart(new, open_ended, history).verdict == "inconclusive"
    half = [
        replace(each, figures={PATH: replace(each.figure(PATH), high=1.1 * each.figure(PATH).low)}) for each in new
    ]
    assert apart(base, half, history).verdict == "better"
    no_limit = [replace(each, figures={PATH: replace(each.figure(PATH), high=None)}) for each in new]
    assert (apart(open_ended, no_limit, history).ratio, apart(base, no_limit, history).verdict) == (None, "better")


def test_a_remedy_that_would_not_help_is_not_given():
    def remedy(**facts):
        return one(base, new, apart=TwoResults(between=lambda record, path: spread_of(()), **facts)).remedy

    base, new = trials("a", LOW), trials("b", HIGH)
    assert "in turns" in remedy()
    assert remedy(can_alternate=False) is None


def test_values_without_a_ratio_are_equivalent_only_where_nothing_differs():
    zeros = [0.0] * 5
    assert apart(trials("a", zeros), trials("b", zeros)).verdict == "equivalent"
    assert apart(trials("a", zeros), trials("b", HIGH)).verdict == "inconclusive"


def false_verdicts(draws, machine_sd, results, repetitions, rng):
    """Return how often two equal results are told apart: both, and those of the history, each on its day."""
    comparing, wrong = Comparing(metrics=("throughput",), margin=1e-6), 0
    for _ in range(draws):
        days = np.exp(rng.normal(0, machine_sd, results + 2))
        values = [day * np.exp(rng.normal(0, 0.005, repetitions)) for day in days]
        history = [float(np.median(own)) for own in values[2:]]
        found = apart(trials("a", values[0]), trials("b", values[1]), history, comparing=comparing)
        wrong += found.verdict in ("better", "worse")
    return wrong


@pytest.mark.slow
@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize("machine_sd", [0.03, 0.06])
def test_equal_results_are_told_apart_at_most_at_the_nominal_rate(machine_sd):
    """Without a margin, which would make it rarer still. By trials alone 39 and 63 % were better or worse."""
    wrong = false_verdicts(250, machine_sd, 5, 5, np.random.default_rng(3))
    assert wrong <= 250 * 0.05 + 3 * (250 * 0.05 * 0.95) ** 0.5


@pytest.mark.sweep
@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize("machine_sd", [0.03, 0.06])
@pytest.mark.parametrize("results", [5, 8, 20])
@pytest.mark.parametrize("repetitions", [2, 5, 10])
def test_equal_results_are_told_apart_at_most_at_the_nominal_rate_for_any_history(machine_sd, results, repetitions):
    wrong = false_verdicts(2500, machine_sd, results, repetitions, np.random.default_rng(results * repetitions))
    assert wrong <= 2500 * 0.05 + 3 * (2500 * 0.05 * 0.95) ** 0.5
