"""The level to take, by the fronts of a scenario: named once for all of them, and only where its saving is shown."""

from dataclasses import replace

from seamark.model.results.comparison import Front, FrontPoint
from seamark.report.fronts import choice_sentence, front_sentence

BASE = FrontPoint(level="dense", treatment="d", trials=6, quality=1.0, cost=10.0, ratio=1.0, on_front=True)
FAST = FrontPoint(
    level="fast",
    treatment="f",
    trials=6,
    quality=1.0,
    cost=5.0,
    ratio=0.5,
    on_front=True,
    not_worse=True,
    cheaper=True,
)
FRONT = Front(
    workload="w",
    factor="method",
    fixed={"task": "t"},
    base="dense",
    quality="score",
    cost="ttft_ms.p50",
    cost_unit="ms",
    cost_better="lower",
    items=100,
    clusters=0,
    blocks=6,
    margin=0.05,
    points=(BASE, FAST),
)


def test_the_level_that_is_best_on_most_fronts_is_the_one_to_take() -> None:
    other = replace(FRONT, fixed={"task": "u"}, points=(BASE, FAST, replace(FAST, level="odd", cost=4.0)))
    last = replace(FRONT, fixed={"task": "v"})
    said = choice_sentence((FRONT, other, last, replace(FRONT, cost="energy")))
    assert said is not None
    assert said.startswith(
        "Take method = fast (the least ttft_ms.p50 in 2 of 3 comparisons; score against ttft_ms.p50 (task t)): "
        "The method"
    )


def test_a_level_that_loses_quality_anywhere_is_not_advised_but_named_with_where_it_loses() -> None:
    lossy = replace(FRONT, fixed={"task": "u"}, points=(BASE, replace(FAST, quality=0.4, not_worse=False)))
    last = replace(FRONT, fixed={"task": "v"})
    said = str(choice_sentence((FRONT, lossy, last)))
    assert said.startswith(
        "method = fast (the least ttft_ms.p50 in 2 of 3 comparisons; score against ttft_ms.p50 (task t)): The method"
    )
    assert said.endswith("But fast is not shown to be so good in: score against ttft_ms.p50 (task u).")
    slow = replace(FAST, level="safe", cost=8.0, ratio=0.8)
    both = [replace(each, points=(*each.points, slow)) for each in (FRONT, lossy, last)]
    assert str(choice_sentence(both)).startswith("Take method = safe (the least ttft_ms.p50 in 1 of 3 comparisons")


def test_a_saving_that_is_not_shown_is_no_advice_and_without_one_nothing_is_said() -> None:
    unsure = replace(FRONT, points=(BASE, replace(FAST, cheaper=False)))
    said = choice_sentence((unsure,))
    assert said is not None
    assert said.startswith("method = fast: fast is not worse than dense")
    lossy = choice_sentence((replace(FRONT, points=(BASE, replace(FAST, not_worse=False))),))
    assert lossy is not None
    assert lossy.startswith(
        "Keep method = dense. score against ttft_ms.p50 (task t): No other method is shown to keep score within"
    )
    assert choice_sentence(()) is None
    unnamed = str(choice_sentence((replace(FRONT, margin=None, points=(BASE, replace(FAST, not_worse=None))),)))
    assert unnamed.startswith("score against"), "without a margin nothing is advised, the baseline neither"


def test_a_method_of_a_model_that_knows_nothing_is_never_advised() -> None:
    """Its few right answers are chance, and none can lose more than the margin."""
    ignorant = replace(FRONT, points=(replace(BASE, quality=0.02), replace(FAST, quality=0.02)))
    assert choice_sentence((ignorant,)) is None
    assert front_sentence(ignorant).startswith("dense itself has score 0.02, so no method can lose more than 0.05 (")
    assert str(choice_sentence((ignorant, FRONT))).startswith(
        "Take method = fast: The method with the least ttft_ms.p50"
    )


def test_a_level_that_is_slower_elsewhere_is_not_advised_and_where_is_said() -> None:
    slow = replace(FAST, cost=30.0, ratio=3.0, cheaper=False, on_front=False)
    dear = [replace(FRONT, fixed={"task": task}, points=(BASE, slow)) for task in ("v", "x")]
    said = str(choice_sentence((FRONT, *dear)))
    assert said.startswith("method = fast (the least ttft_ms.p50 in 1 of 3 comparisons")
    assert said.endswith(
        "But fast has no lower ttft_ms.p50 than dense in: score against ttft_ms.p50 (task v): 3.00 x;"
        " score against ttft_ms.p50 (task x): 3.00 x."
    )
    steady = replace(FAST, level="steady", cost=9.0, ratio=0.9)
    three = [replace(each, points=(*each.points, steady)) for each in (FRONT, *dear)]
    assert str(choice_sentence(three)).startswith("Take method = steady (the least ttft_ms.p50 in 2 of 3 comparisons")


def test_a_saving_that_one_task_alone_does_not_show_is_no_advice_and_the_task_is_named() -> None:
    unsure = replace(FRONT, fixed={"task": "u"}, points=(BASE, replace(FAST, cost=9.9, ratio=0.99, cheaper=False)))
    said = str(choice_sentence((FRONT, unsure)))
    assert said.startswith("method = fast (the least ttft_ms.p50 in 2 of 2 comparisons")
    assert said.endswith("That its ttft_ms.p50 is lower is not shown in: score against ttft_ms.p50 (task u).")


def test_a_level_without_a_cost_somewhere_is_not_advised() -> None:
    unplaced = replace(FAST, cost=None, ratio=None, cheaper=None, reason="withheld")
    said = str(choice_sentence((FRONT, replace(FRONT, fixed={"task": "u"}, points=(BASE, unplaced)))))
    assert said.startswith("method = fast (")
    assert said.endswith("(task u): no cost to compare.")


def test_fronts_of_other_factors_speak_neither_for_a_method_nor_against_it() -> None:
    """With two models and no `family` there is a front of the models for each method, here the first one."""
    small = replace(BASE, level="m1", treatment="x")
    large = replace(FAST, level="m2", treatment="y", cost=1.0, ratio=0.1)
    models = replace(FRONT, factor="model", fixed={"method": "dense"}, base="m1", points=(small, large))
    methods = [replace(FRONT, fixed={"model": model}) for model in ("m1", "m2")]
    said = str(choice_sentence((models, *methods)))
    assert said.startswith("Take method = fast (the least ttft_ms.p50 in 2 of 2 comparisons")
    assert "But" not in said
    assert str(choice_sentence((models,))).startswith("Take model = m2: ")


def test_a_task_without_the_first_cost_is_named_and_leaves_the_method_without_advice() -> None:
    """Its times are withheld, so that its first front is of bytes."""
    bytes_read = replace(FRONT, fixed={"task": "u"}, cost="kv_bytes_read")
    said = str(choice_sentence((bytes_read, FRONT, replace(FRONT, cost="kv_bytes_read"), replace(FRONT, fixed={}))))
    assert said.startswith("method = fast (the least ttft_ms.p50 in 2 of 2 comparisons")
    assert said.endswith("No ttft_ms.p50 is compared in: task u.")
