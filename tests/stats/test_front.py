"""The front of quality against cost: dominance by hand, and probabilities against a literal bootstrap."""

import numpy as np
import pytest

from seamark.analysis.comparison.front import front, undominated


def test_a_point_is_off_the_front_if_another_is_as_good_at_less_cost():
    quality = np.array([0.9, 0.8, 0.8, 0.7, 0.9])
    cost = np.array([10.0, 5.0, 6.0, 5.0, 10.0])
    assert undominated(quality, cost).tolist() == [True, True, False, False, True]


def literal(scores, costs, clusters, resamples, seed):
    """Count the resamples in which each point is on the front, one by one."""
    rng, held = np.random.default_rng(seed), np.zeros(len(scores))
    labels = list(dict.fromkeys(clusters))
    members = [[place for place, label in enumerate(clusters) if label == each] for each in labels]
    draws = rng.integers(0, len(labels), size=(resamples, len(labels)))
    blocks = rng.integers(0, costs.shape[1], size=(resamples, costs.shape[1]))
    for drawn, block in zip(draws, blocks, strict=True):
        items = [place for each in drawn for place in members[each]]
        points = [(np.mean(s[items]), np.median(c[block])) for s, c in zip(scores, costs, strict=True)]
        for place, (quality, cost) in enumerate(points):
            held[place] += not any(
                q >= quality - 1e-12 and c <= cost and (q > quality + 1e-12 or c < cost) for q, c in points
            )
    return held / resamples


@pytest.mark.parametrize("blocks", [1, 3])
def test_probabilities_are_those_of_whole_clusters_and_blocks_drawn_for_all_points_alike(blocks):
    rng = np.random.default_rng(1)
    scores, costs = rng.random((4, 40)), rng.random((4, blocks))
    clusters = [place // 3 for place in range(40)]
    found = front(scores, costs, clusters=clusters, resamples=200, seed=9)
    assert found.probability.tolist() == literal(scores, costs, clusters, 200, 9).tolist()
    assert (found.clusters, found.blocks) == (14, blocks)


def test_a_copy_of_the_baseline_at_a_higher_cost_is_never_on_the_front():
    scores = np.random.default_rng(2).random(50)
    found = front([scores, scores], [[1.0], [1.1]])
    assert found.probability.tolist() == [1.0, 0.0], "pairs: the same items are drawn for both"


def test_a_difference_within_the_noise_is_on_the_front_about_half_of_the_time():
    base = np.array([1.0] * 280 + [0.0] * 120)
    new = np.array([1.0] * 260 + [0.0] * 120 + [1.0] * 20)
    found = front([base, new], [[2.0], [1.0]])
    assert found.probability[1] == 1.0, "the cheapest is always on the front"
    assert 0.35 < found.probability[0] < 0.65


@pytest.mark.parametrize(("scores", "costs"), [([], []), ([[1.0]], [[1.0], [2.0]]), ([[np.nan]], [[1.0]])])
def test_tables_that_do_not_match_are_refused(scores, costs):
    with pytest.raises(ValueError, match=r"shapes|finite"):
        front(scores, costs)
