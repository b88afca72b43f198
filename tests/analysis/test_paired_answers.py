"""Comparisons of answers: the items of both sides in pairs, trials without quality, and one family with speeds."""

from dataclasses import replace

import numpy as np
import pytest
from two_groups import compare

from seamark.analysis.comparison.compared import Question, compared
from seamark.analysis.comparison.contrasts import Contrast
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.scored import TrialAnswers
from seamark.model.scenario import Comparing
from seamark.model.service import Quality
from seamark.report.comparison import comparison_lines
from seamark.stats.paired_proportions import score_limits
from seamark.stats.range import Range

RIGHT = Quality(range=(0, 1))


def answered(treatment, values, *, block=1, ids=None, clusters=None, speed=1.0, **answers):
    """Return a trial whose items have these scores."""
    names = tuple(f"q{place}" for place in range(len(values))) if ids is None else tuple(ids)
    items = zip(names, clusters or [None] * len(names), strict=True)
    scored = {item: value for item, value in zip(items, values, strict=True) if value is not None}
    return Observation(
        trial=f"{treatment}--r{block}",
        treatment=treatment,
        block=block,
        start=f"start of {treatment}",
        verdict="VALID",
        figures={"quality.score": Range.exact(0.5), "throughput.value": Range.exact(speed)},
        answers=TrialAnswers(scores=("score",), read=lambda: {"score": scored}, **answers),
    )


def one(base, new, *, margin=None, metrics=("score",)):
    """Return the comparison of two sides by their score."""
    contrast = Contrast(workload="w", factor="method", base="a", new="b", base_level="dense", new_level="lossy")
    comparing = Comparing(metrics=metrics, quality_margin=margin)
    question = Question(contrasts=(contrast,), comparing=comparing, qualities={"score": RIGHT})
    return compared(question, {"a": base, "b": new})


SAME = [1.0] * 400 + [0.0] * 100
LOST = [0.0] * 40 + SAME[40:]


@pytest.mark.covers("E-FR29")
def test_answers_of_one_trial_each_have_a_p_though_they_are_of_two_starts():
    [found] = one([answered("a", SAME)], [answered("b", LOST)]).comparisons
    assert (found.unit_of_inference, found.method, found.verdict) == ("item", "mcnemar", "worse")
    assert (found.answers.items, found.answers.higher, found.answers.lower) == (500, 0, 40)
    assert (found.shift.value, found.p) == (pytest.approx(-0.08), pytest.approx(2 * 0.5**40))


def test_items_are_paired_by_their_ids_and_not_by_their_place():
    ids = [f"q{place}" for place in range(500)]
    turned = answered("b", LOST[::-1], ids=ids[::-1])
    [found] = one([answered("a", SAME)], [turned]).comparisons
    assert (found.answers.lower, found.answers.higher) == (40, 0)


def test_items_of_one_side_alone_are_left_out_and_counted():
    few = answered("b", SAME[:300])
    result = one([answered("a", SAME)], [few], margin=0.02)
    [found] = result.comparisons
    assert (found.answers.items, found.answers.left_out, found.verdict) == (300, (200, 0), "equivalent")
    assert any("up to 200 of a baseline and 0 of another side" in line for line in comparison_lines(result))
    [apart] = one([answered("a", SAME)], [answered("b", SAME, ids=[f"other{n}" for n in range(500)])]).comparisons
    assert (apart.verdict, apart.reason) == ("inconclusive", "the two sides have no item in common")


def test_items_of_one_id_in_other_clusters_are_other_items():
    base = answered("a", [1.0, 0.0], clusters=("d1", "d1"))
    [found] = one([base], [answered("b", [1.0, 0.0], clusters=("d2", "d1"))]).comparisons
    assert (found.answers.items, found.answers.left_out) == (1, (1, 1))


@pytest.mark.covers("B12")
def test_trials_with_unanswered_items_have_no_quality_and_are_in_no_mean():
    broken = answered("b", LOST, unanswered=3)
    [none] = one([answered("a", SAME)], [broken]).comparisons
    assert none.verdict == "inconclusive"
    assert none.reason == "invalid for quality: the trial of the other side lacks answers to some items"
    whole = answered("b", SAME, block=2)
    result = one([answered("a", SAME), answered("a", SAME, block=2)], [broken, whole], margin=0.02)
    [found] = result.comparisons
    assert (found.answers.unusable, found.answers.discordant, found.verdict) == ((0, 1), 0, "equivalent")
    assert "1 trial with unanswered items left out: invalid for quality." in comparison_lines(result)


def test_items_of_other_seeds_are_not_paired():
    base, new = answered("a", SAME, seeds={"task_seed": 1}), answered("b", LOST, seeds={"task_seed": 2})
    [found] = one([base], [new]).comparisons
    assert found.reason == "items of other seeds: task_seed is 1 and 2"


def test_repetitions_of_an_item_are_one_item_with_their_mean():
    base = [answered("a", [1.0, 1.0, 0.0], block=block) for block in (1, 2)]
    new = [answered("b", [1.0, 0.0, 0.0]), answered("b", [1.0, 1.0, 0.0], block=2)]
    [found] = one(base, new).comparisons
    assert (found.answers.items, found.answers.blocks, found.answers.new_mean) == (3, 2, 0.5)
    assert found.method == "sign-flip", "0.5 is neither right nor wrong"


def test_clusters_are_the_unit_where_items_share_them():
    clusters = tuple(f"d{place // 5}" for place in range(500))
    [found] = one([answered("a", SAME, clusters=clusters)], [answered("b", LOST, clusters=clusters)]).comparisons
    assert (found.unit_of_inference, found.method, found.base.units) == ("cluster", "sign-flip", 100)
    assert found.p == pytest.approx(2 / 2**8), "eight clusters lost everything"


@pytest.mark.covers("E-FR29")
def test_scores_and_speeds_are_one_family_for_holm():
    speeds = np.random.default_rng(0).normal(100, 1, 16)
    base = [replace(answered("a", SAME, block=n, speed=v), start="S") for n, v in enumerate(speeds[:8], 1)]
    new = [
        replace(answered("b", [0.0] * 6 + SAME[6:], block=n, speed=v + 9), start="S")
        for n, v in enumerate(speeds[8:], 1)
    ]
    result = one(base, new, metrics=("score", "throughput"))
    score, speed = result.comparisons
    alone = compare(
        {n: each.figures["throughput.value"].low for n, each in enumerate(base)},
        {n: each.figures["throughput.value"].low for n, each in enumerate(new)},
        better="higher",
    )
    assert result.family == 2
    assert (score.p, speed.p) == (pytest.approx(2 / 64), pytest.approx(alone.p))
    least, most = sorted((score.p, speed.p))
    assert sorted((score.p_adjusted, speed.p_adjusted)) == pytest.approx([2 * least, max(2 * least, most)])


def test_the_margin_is_what_equivalence_and_not_worse_are_held_against():
    [found] = one([answered("a", SAME)], [answered("b", SAME)], margin=0.01).comparisons
    assert (found.verdict, found.answers.not_worse) == ("equivalent", True)
    [unstated] = one([answered("a", SAME)], [answered("b", SAME)]).comparisons
    assert (unstated.verdict, unstated.answers.not_worse) == ("inconclusive", None)
    assert "`compare: {quality_margin: 0.01}`" in unstated.remedy
    [narrow] = one([answered("a", SAME)], [answered("b", SAME)], margin=0.005).comparisons
    assert narrow.reason == "a difference of more than 0.005 is neither shown nor excluded by 500 items"


@pytest.mark.sweep
def test_200_studies_of_equal_methods_have_a_verdict_no_more_often_than_the_nominal_rate():
    rng, false = np.random.default_rng(5), 0
    for _ in range(200):
        easy = rng.random(500) < 0.7
        sides = [(easy ^ (rng.random(500) < 0.05)).astype(float) for _ in range(4)]
        contrasts = tuple(Contrast(workload="w", factor="m", base="0", new=str(n), new_level=n) for n in range(1, 4))
        question = Question(contrasts=contrasts, comparing=Comparing(metrics=("score",)), qualities={"score": RIGHT})
        found = compared(question, {str(n): [answered(str(n), side)] for n, side in enumerate(sides)})
        false += any(each.verdict in ("better", "worse") for each in found.comparisons)
    assert false <= 19, f"{false} of 200: 99.7 % of binomial(200, 0.05) is 19"


@pytest.mark.sweep
def test_a_planted_loss_of_3_points_in_500_paired_answers_is_found_at_the_stated_power():
    from seamark.stats.paired_proportions import mcnemar_power

    rng, found = np.random.default_rng(6), 0
    for _ in range(300):
        kinds = rng.choice(3, 500, p=[0.04, 0.01, 0.95])
        base = np.where(kinds == 0, 1.0, np.where(kinds == 1, 0.0, 1.0))
        new = np.where(kinds == 0, 0.0, np.where(kinds == 1, 1.0, 1.0))
        [one_study] = one([answered("a", base.tolist())], [answered("b", new.tolist())]).comparisons
        found += one_study.verdict == "worse"
    stated = mcnemar_power(500, 0.03, 0.05)
    assert found / 300 == pytest.approx(stated, abs=3 * (stated * (1 - stated) / 300) ** 0.5)


def test_items_that_were_scored_by_other_references_are_not_paired():
    found = one([answered("a", SAME, key="one")], [answered("b", LOST, key="two")]).comparisons[0]
    assert found.verdict == "inconclusive"
    assert found.reason == "the two sides were scored by other references of the same items"
    assert one([answered("a", SAME, key="one")], [answered("b", LOST, key="one")]).comparisons[0].reason is None
    assert one([answered("a", SAME, key="one")], [answered("b", LOST)]).comparisons[0].reason is None


@pytest.mark.covers("E-FR29")
def test_the_printed_interval_is_the_one_that_decides_in_its_family():
    """Eight methods: a loss of 40 of 500 against margins on both sides of the end of the interval at 1 - 0.1 / 8."""
    contrasts = tuple(Contrast(workload="w", factor="method", base="a", new=f"b{n}", new_level=n) for n in range(8))
    seen = {"a": [answered("a", SAME)]} | {f"b{n}": [answered(f"b{n}", LOST)] for n in range(8)}

    def found(margin):
        comparing = Comparing(metrics=("score",), quality_margin=margin)
        asked = Question(contrasts=contrasts, comparing=comparing, qualities={"score": RIGHT})
        return compared(asked, seen)

    first = found(0.1).comparisons[0]
    assert first.confidence == pytest.approx(1 - 0.1 / 8)
    assert (first.shift.low, first.shift.high) == pytest.approx(score_limits(500, 40, 0, 1 - 0.1 / 8))
    edge = -first.shift.low
    assert [found(edge + by).comparisons[0].answers.not_worse for by in (-1e-6, 1e-6)] == [False, True]
    assert "intervals at 98.75 %" in "\n".join(comparison_lines(found(0.1)))


def test_a_level_that_is_not_worse_is_not_called_just_inconclusive():
    base, new = [1.0] * 80 + [0.0] * 20, [1.0] * 83 + [0.0] * 17
    [line, *_] = comparison_lines(found := one([answered("a", base)], [answered("b", new)], margin=0.05))
    assert (found.comparisons[0].verdict, found.comparisons[0].answers.not_worse) == ("inconclusive", True)
    assert "not worse, else inconclusive" in line
    assert "a gain of more than" in found.comparisons[0].reason
