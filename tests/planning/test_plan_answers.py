"""What `bench plan` says of the items of a scored load."""

import pytest

from seamark.planning.plan_answers import answer_lines, detectable_scores


def test_the_smallest_difference_grows_with_the_share_that_differs_and_with_the_family():
    alone, many = detectable_scores(500, 1), detectable_scores(500, 8)
    assert list(alone) == ["0.05", "0.1", "0.2"]
    assert alone["0.05"] == pytest.approx(0.029, abs=0.001)
    assert alone["0.05"] < alone["0.1"] < alone["0.2"] < many["0.2"]


def test_a_task_that_is_too_small_says_what_it_cannot_show():
    [few] = answer_lines([20], [detectable_scores(20, 1)])
    assert "no difference where 20% of the items or fewer differ" in few
    [some] = answer_lines([100], [detectable_scores(100, 1)])
    assert some.startswith("  scores of 100 items      0.088 where 10% differ, 0.128 where 20% differ, at 80% power")
