"""Quality against cost: the level to take and why, with planted scores and costs."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from samples import a_trial
from scipy.stats import binomtest
from test_paired_answers import LOST, RIGHT, SAME, answered

from seamark.analysis.comparison.compared import Question
from seamark.analysis.comparison.contrasts import Contrast
from seamark.analysis.comparison.factors import compared_factors
from seamark.analysis.comparison.front import NOT_ITS_SPEED, fronts
from seamark.model.scenario import Comparing
from seamark.model.service import Quality
from seamark.model.trial import Deployment, Plan
from seamark.report.comparison import comparison_lines
from seamark.report.fronts import choice_sentence, front_sentence, share
from seamark.stats.paired_proportions import score_limits
from seamark.stats.range import Range

QUALITIES = {"score": RIGHT, "kv_bytes_read": Quality(better="lower")}


def costing(level, scores, costs, **more):
    """Return the trials of a level, one for each cost, on one start of a server."""
    made = []
    for block, cost in enumerate(costs, 1):
        one = answered(level, scores, block=block)
        figures = {**one.figures, "ttft_ms.p50": Range.exact(cost)}
        made.append(replace(one, start="S", figures=figures, **more))
    return made


def front_of(levels, margin=0.01, costs=("ttft_ms.p50",)):
    """Return the front of levels; the first is the baseline."""
    names = list(levels)
    contrasts = [
        Contrast(workload="w", factor="method", base=names[0], new=name, base_level=names[0], new_level=name)
        for name in names[1:]
    ]
    comparing = Comparing(quality_margin=margin, costs=costs)
    [found] = fronts(Question(contrasts=tuple(contrasts), comparing=comparing, qualities=QUALITIES), levels)
    return found


EIGHT = tuple(10.0 + 0.1 * n for n in range(8))


def times(factor):
    return tuple(factor * cost for cost in EIGHT)


def test_the_fastest_level_that_is_not_worse_is_named_and_a_faster_worse_one_is_not():
    found = front_of(
        {
            "dense": costing("dense", SAME, EIGHT),
            "same": costing("same", SAME, times(0.7)),
            "lossy": costing("lossy", LOST, times(0.4)),
        }
    )
    dense, same, lossy = found.points
    assert (dense.on_front, same.on_front, lossy.on_front) == (False, True, True)
    assert (dense.probability, same.probability) == (0.0, 1.0)
    assert (same.not_worse, lossy.not_worse, same.cheaper) == (True, False, True)
    assert (same.ratio, found.blocks) == (pytest.approx(0.7), 8)
    assert front_sentence(found).startswith(
        "The method with the least ttft_ms.p50 that is not worse than dense in score by more than 0.01: same ("
    )


def test_a_score_has_the_interval_of_its_items_and_none_where_all_are_about_one_context():
    dense, _ = front_of({"dense": costing("dense", SAME, (10.0,)), "same": costing("same", SAME, (7.0,))}).points
    right = binomtest(int(sum(SAME)), len(SAME)).proportion_ci(method="exact")
    assert (dense.quality_low, dense.quality_high) == pytest.approx((right.low, right.high), abs=0.001)
    one = answered("dense", SAME, clusters=("one",) * len(SAME)).answers
    alone = {
        name: [replace(trial, answers=one) for trial in costing(name, SAME, (10.0,))] for name in ("dense", "same")
    }
    assert front_of(alone).points[0].quality_low is None


def test_a_lower_cost_of_one_trial_each_is_not_called_shown():
    found = front_of({"dense": costing("dense", SAME, (10.0,)), "same": costing("same", SAME, (7.0,))})
    assert found.points[1].cheaper is None
    assert front_sentence(found).endswith("is not shown: one trial a side allows no test.")


@pytest.mark.parametrize(("read", "shown"), [((2.0, 2.0), True), ((2.0, 4.5), False), ((3.0, 3.0), False)])
def test_a_cost_that_each_answer_has_is_compared_by_item_so_that_one_trial_is_enough(read, shown):
    """3.0 for every item of the baseline; the other level has two kinds of items."""

    def reading(level, bytes_read):
        trial = answered(level, SAME)
        scores = trial.answers.read()
        scores["kv_bytes_read"] = dict(zip(scores["score"], bytes_read, strict=True))
        answers = replace(trial.answers, read=lambda: scores)
        figures = {**trial.figures, "quality.kv_bytes_read": Range.exact(sum(bytes_read) / len(bytes_read))}
        return [replace(trial, start="S", figures=figures, answers=answers)]

    mixed = (read * 250)[:500]
    levels = {"dense": reading("dense", (3.0,) * 500), "sparse": reading("sparse", mixed)}
    found = front_of(levels, costs=("quality.kv_bytes_read",))
    assert found.points[1].cheaper is shown


def test_a_small_saving_that_every_block_shows_is_called_shown():
    """4 % is within the margin of equivalence, which is about another question."""
    found = front_of({"dense": costing("dense", SAME, EIGHT), "same": costing("same", SAME, times(0.96))})
    assert found.points[1].cheaper is True
    assert front_sentence(found).startswith("The method with the least ttft_ms.p50")
    dearer = front_of({"dense": costing("dense", SAME, EIGHT), "same": costing("same", SAME, times(1.04))})
    assert dearer.points[1].cheaper is False


@pytest.mark.parametrize("lacking", ["dense", "sparse"])
def test_a_repetition_with_unanswered_questions_is_left_out_and_takes_no_level_off_the_front(lacking):
    def reading(level, read):
        made = []
        for trial in costing(level, SAME, (10.0, 10.0, 10.0)):
            lacks = level == lacking and trial.block == 1
            figures = trial.figures | ({} if lacks else {"quality.kv_bytes_read": Range.exact(read)})
            answers = replace(trial.answers, unanswered=3 if lacks else 0)
            made.append(replace(trial, figures=figures, answers=answers))
        return made

    levels = {"dense": reading("dense", 10.0), "sparse": reading("sparse", 5.0)}
    found = front_of(levels, costs=("quality.kv_bytes_read",))
    assert [(each.cost, each.reason) for each in found.points] == [(10.0, None), (5.0, None)]
    assert {each.level: each.trials for each in found.points} == {"dense": 3, "sparse": 3} | {lacking: 2}
    assert (found.blocks, found.points[1].ratio) == (2, 0.5)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (lambda n: {"span_s": (86_400.0 + 100 * n, 86_450.0 + 100 * n)}, "were not measured in turns"),
        (lambda n: {"block": 100 + n}, "have no block of trials in common"),
        (lambda n: {"start": "T"}, "the trials of a side are on one start of the server"),
    ],
)
def test_a_saving_that_no_pair_of_trials_can_show_is_not_shown_and_the_reason_is_said(changes, why):
    dense = [
        replace(each, span_s=(100.0 * n, 100.0 * n + 50)) for n, each in enumerate(costing("dense", SAME, EIGHT))
    ]
    same = [replace(each, **changes(n)) for n, each in enumerate(costing("same", SAME, times(0.5)))]
    found = front_of({"dense": dense, "same": same})
    assert found.points[1].cheaper is None
    assert why in front_sentence(found)
    other = {"dense": dense, "same": same, "quick": costing("quick", SAME, times(0.6))}
    assert front_of(other).points[2].cheaper is True, "of another level the test is possible"


def test_noise_of_the_cost_makes_no_winner():
    """Four of the eight blocks cost more, and four less."""
    swapped = tuple(reversed(times(0.999)))
    found = front_of({"dense": costing("dense", SAME, EIGHT), "same": costing("same", SAME, swapped)})
    assert found.points[1].cheaper is False
    assert "is not shown" in front_sentence(found)


@pytest.mark.parametrize(
    ("scores", "margin", "says"),
    [
        (LOST, 0.01, "No other method is shown to keep score within 0.01 of dense (500 items)."),
        (SAME, None, "`compare: quality_margin` states no loss that does not matter."),
    ],
)
def test_without_a_level_that_keeps_the_quality_none_is_named(scores, margin, says):
    found = front_of({"dense": costing("dense", SAME, EIGHT), "other": costing("other", scores, times(0.5))}, margin)
    assert says in front_sentence(found)


def test_a_level_within_the_margin_that_costs_more_is_no_answer():
    found = front_of({"dense": costing("dense", SAME, EIGHT), "slow": costing("slow", SAME, times(1.5))})
    assert front_sentence(found).endswith("slow. None of them has a lower ttft_ms.p50 than dense.")


@pytest.mark.covers("B13")
def test_times_that_are_not_those_of_the_method_stay_off_the_front():
    masked = costing("masked", SAME, times(0.1), speed_of_method=False)
    found = front_of({"dense": costing("dense", SAME, EIGHT), "masked": masked})
    assert (found.points[1].on_front, found.points[1].reason) == (False, NOT_ITS_SPEED)
    assert found.points[0].on_front, "nothing with a speed dominates it"
    assert "masked" in front_sentence(found)


def test_a_front_is_over_the_items_that_all_levels_have():
    few = costing("few", SAME[:100], times(0.5))
    found = front_of({"dense": costing("dense", LOST, EIGHT), "few": few})
    assert (found.items, found.points[0].quality) == (100, 0.6)


def test_a_probability_is_never_rounded_to_certainty():
    assert [share(value) for value in (1.0, 0.9999, 0.5, 0.0001, 0.0, None)] == [
        "100 %", "over 99 %", "50 %", "under 1 %", "0 %", "-",
    ]  # fmt: skip


@pytest.mark.slow
def test_however_many_tasks_there_are_each_has_its_front_of_the_first_cost_and_what_is_left_out_is_counted():
    """The method loses on the last 19 of 34 tasks, which 60 fronts in the order of the tasks do not reach."""
    trials, seen = [], {}
    for method, task in product(("dense", "fast"), range(34)):
        name = f"d--{method}-{task}"
        settings = {"method": method, "task": f"t{task:02}"}
        trials.append(a_trial(settings, id=f"{name}--r1", deployment="d", group="w"))
        keeps = method == "dense" or task < 15
        seen[name] = with_memory(costing(name, SAME if keeps else LOST, EIGHT if method == "dense" else times(0.5)))
    comparing = Comparing(
        quality_margin=0.05, costs=("ttft_ms.p50", "resource.server_rss_mb"), metrics=("score",), family=("method",)
    )
    found = compared_factors(plan_of(trials), seen, comparing, QUALITIES)
    kept = found.fronts
    assert Counter(each.cost for each in kept) == {"ttft_ms.p50": 34, "resource.server_rss_mb": 26}
    assert (kept[0].cost, kept[1].cost) == ("ttft_ms.p50", "resource.server_rss_mb"), "each front stays in its place"
    assert any("8 fronts of further costs are left out" in line for line in comparison_lines(found))
    said = str(choice_sentence(kept))
    assert said.endswith("(task t19); and 14 more."), "19 tasks on which it loses"
    assert not said.startswith("Take")


@pytest.mark.parametrize(("by", "kept"), [(-1e-6, False), (1e-6, True)])
def test_a_front_calls_not_worse_what_the_comparison_of_the_pair_shows_by_its_interval(by, kept):
    """Four tasks, a method each: one family of four, wider than the two levels of a front alone would need."""
    trials, seen = [], {}
    for method, task in product(("dense", "fast"), range(4)):
        name = f"d--{method}-{task}"
        trials.append(a_trial({"method": method, "task": f"t{task}"}, id=f"{name}--r1", deployment="d", group="w"))
        seen[name] = costing(name, SAME if method == "dense" else LOST, (10.0,))
    edge = -score_limits(500, 40, 0, 1 - 0.1 / 4)[0]
    comparing = Comparing(quality_margin=edge + by, metrics=("score",), family=("method",), costs=("ttft_ms.p50",))
    found = compared_factors(plan_of(trials), seen, comparing, QUALITIES)
    assert found.family == 4
    assert {each.answers.not_worse for each in found.judged} == {kept}
    assert {each.points[1].not_worse for each in found.fronts} == {kept}


def with_memory(trials):
    """Return trials that have a second cost."""
    return [replace(each, figures={**each.figures, "resource.server_rss_mb": Range.exact(1.0)}) for each in trials]


def plan_of(trials):
    """Return a plan of some trials of one deployment."""
    served = Deployment(id="d", service="s", settings={}, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)
    return Plan(
        scenario="s",
        source="s.yaml",
        seed=0,
        repetitions=1,
        max_retries=0,
        factors={},
        deployments=(served,),
        trials=tuple(trials),
    )
