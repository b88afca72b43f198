"""Figures of tasks as their benchmarks publish them, by hand."""

import pytest

from seamark_evaluate.tasks.scoring.published import published_figures


@pytest.mark.covers("B13")
def test_a_cloze_counts_by_its_masks() -> None:
    scores = {"score": [1.0, 0.5, None], "partial": [1.0, 0.75, None], "masks": [1.0, 4.0, None]}
    found = published_figures("loogle/shortdep_cloze", "cloze", scores, {})
    assert found == {"score_by_masks": pytest.approx((1 + 2) / 5), "partial_by_masks": pytest.approx((1 + 3) / 5)}


@pytest.mark.covers("B13")
def test_rouge_of_zero_scrolls_is_the_geometric_mean_of_three_means() -> None:
    scores = {"rouge1": [0.4, 0.6], "rouge2": [0.1, 0.3], "rougel": [0.2, 0.2], "score": [0.0, 1.0]}
    found = published_figures("zero_scrolls/qmsum", "rouge_geometric", scores, {})
    assert found == {"geometric_mean": pytest.approx((0.5 * 0.2 * 0.2) ** (1 / 3))}
    assert published_figures("zero_scrolls/qmsum", "rouge_geometric", {"rouge1": [1.0]}, {}) == {}


@pytest.mark.covers("B13")
def test_subsets_of_longbench_e_are_means_by_length() -> None:
    scores, facts = {"score": [1.0, 0.0, 0.5, 0.25, None]}, {"length": [3999, 4000, 7999, 8000, 9000]}
    found = published_figures("longbench/qasper_e", "qa_f1", scores, facts)
    assert found == {"0-4k": 1.0, "4-8k": 0.25, "8k+": 0.25}
    assert published_figures("longbench/qasper", "qa_f1", scores, facts) == {}
    assert published_figures("longbench/qasper_e", "qa_f1", {"score": [1.0]}, {"length": [5]}) == {"0-4k": 1.0}
