"""Where answers go wrong: changed items, scores by facts, and averages over subsets."""

import pytest
from test_paired_answers import answered

from seamark.analysis.changed_answers import changed_answers, scores_by_fact
from seamark.analysis.comparison.factors import subset_averages


def rows(scores, **columns):
    """Return rows of answers.parquet as they are read."""
    return [
        {"id": f"q{n}", "cluster": None, "answer": f"a{n}", "score": score, **{k: v[n] for k, v in columns.items()}}
        for n, score in enumerate(scores)
    ]


def test_changed_items_are_those_with_another_score_the_greatest_loss_first():
    base = rows([1.0, 1.0, 0.0, None, 0.5], fact_depth=[0.0, 0.1, 0.2, 0.3, 0.4])
    found = changed_answers(base, rows([1.0, 0.0, 1.0, 1.0, 0.4]), "score")
    assert [(each.id, each.base_score, each.new_score) for each in found] == [
        ("q1", 1.0, 0.0),
        ("q4", 0.5, 0.4),
        ("q2", 0.0, 1.0),
    ]
    assert found[0].facts == {"depth": 0.1}
    dense, sparse = (rows([score], fact_density=[density]) for score, density in ((1.0, 1.0), (0.0, 0.2)))
    assert changed_answers(dense, sparse, "score")[0].facts == {"density": 0.2}, "a fact of the new reply"


def test_scores_by_a_fact_have_a_row_for_each_value_and_a_mean_for_each_level():
    dense = rows([1.0, 0.0, 1.0, 1.0], fact_depth=[0.5, 0.5, 0.0, 0.0], fact_kind=["b", "a", "a", "b"])
    found = scores_by_fact({"dense": dense, "none": []}, "score")
    assert [(each.fact, each.value, each.items, each.means) for each in found] == [
        ("depth", "0", 2, {"dense": 1.0, "none": None}),
        ("depth", "0.5", 2, {"dense": 0.5, "none": None}),
        ("kind", "a", 2, {"dense": 0.5, "none": None}),
        ("kind", "b", 2, {"dense": 1.0, "none": None}),
    ]


def test_many_lengths_are_four_ranges_that_hold_every_item():
    found = scores_by_fact({"dense": rows([1.0] * 100, fact_length=list(range(100)))}, "score")
    assert [each.items for each in found] == [25, 25, 25, 25]
    assert found[0].value == "0 to 24.75"


LEVELS = {f"{m}-{t}": {"method": m, "task": t} for m in ("dense", "lossy") for t in ("a", "b")}


def subsets(**more):
    """Return the averages of two methods on two tasks with 3 and 1 items."""
    ids = {"a": ["a/1", "a/2", "a/3"], "b": ["b/1"]}
    seen = {}
    for name, own in LEVELS.items():
        items = ids[own["task"]]
        scores = [1.0] * (len(items) - 1) + [0.0]
        seen[name] = [answered(name, scores, ids=items, **more.get(name.replace("-", "_"), {}))]
    return subset_averages({"w": list(LEVELS)}, LEVELS, seen)


@pytest.mark.covers("B11")
def test_scores_are_averaged_over_tasks_by_task_and_by_item():
    found = subsets()
    assert [(each.factor, dict(each.fixed)) for each in found] == [
        ("task", {"method": "dense"}),
        ("task", {"method": "lossy"}),
    ], "methods have the same items and are not averaged over"
    assert (found[0].macro, found[0].micro) == (pytest.approx(1 / 3), 0.5)


def test_a_task_with_unanswered_items_leaves_no_average():
    _, lossy = subsets(lossy_b={"unanswered": 1})
    assert (lossy.macro, lossy.micro, lossy.missing) == (None, None, ("b",))
