"""Ground truth and recall by each metric, among the vectors that a search may find."""

import json

import numpy as np
import pytest

from seamark.datasets.neighbours import distances, nearest_distances, unit
from seamark.drivers.vectors.dataset import START, Dataset, fill, in_text, recall, recall_at_k, started, visible
from seamark.errors import UserError
from seamark.load.driver import Target

SEEDED = Dataset.generate(vectors=400, dimensions=6, queries=8, seed=1)


def of(vectors, queries, metric):
    vectors, queries = np.float32(vectors), np.float32(queries)
    truth = nearest_distances(vectors, queries, len(vectors), metric)
    return Dataset(vectors=vectors, queries=queries, truth=truth, metric=metric)


@pytest.mark.covers("E-FR23")
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_the_ground_truth_of_a_metric_equals_a_plain_sort(metric):
    plain = {
        "l2": lambda query, vector: ((query - vector) ** 2).sum(),
        "ip": lambda query, vector: -query.dot(vector),
        "cosine": lambda query, vector: 1 - query.dot(vector) / np.linalg.norm(query) / np.linalg.norm(vector),
    }[metric]
    for query, truth in zip(SEEDED.queries, SEEDED.by(metric, 300).truth, strict=True):
        away = [plain(query.astype(float), vector.astype(float)) for vector in SEEDED.vectors[:300]]
        assert truth == pytest.approx(sorted(away)[:100], abs=1e-9)


@pytest.mark.covers("E-FR23")
@pytest.mark.parametrize(
    ("metric", "nearest"),
    [
        ("l2", [0]),  # at the query itself
        ("ip", [1]),  # the longest
        ("cosine", [0, 1]),  # both in the direction of the query: a tie
    ],
)
def test_metrics_disagree_on_the_nearest_and_recall_is_that_of_the_metric_asked_for(metric, nearest):
    data = of([[1, 0], [9, 0], [2, 3], [0, 0]], [[1, 0]], metric)
    assert [row for row in range(4) if recall_at_k(data, np.array([[row]]), 1)] == nearest


def test_two_that_float32_cannot_tell_apart_are_a_tie_where_distances_are_near_0():
    data = of([[1, 0], [1, 1e-4], [1, 0.1]], [[1, 0]], "cosine")
    assert [recall_at_k(data, np.array([[row]]), 1) for row in range(3)] == [1, 1, 0]


@pytest.mark.covers("E-FR23")
def test_a_zero_vector_is_infinitely_far_by_cosine_and_its_number_is_a_fact_of_the_start():
    vectors = np.float32([[1, 0], [0, 0], [-1, 0]])
    assert distances(vectors, np.float32([[2, 0]]), "cosine").tolist() == [[0, np.inf, 2]]
    assert unit(vectors).tolist() == vectors.tolist()
    data = Dataset(vectors=vectors, queries=vectors, truth=nearest_distances(vectors, vectors, 1))
    assert fill(Nothing(), data, {})["zero_vectors"] == 1
    assert "zero_vectors" not in fill(Nothing(), SEEDED, {})
    data.require_directions("ip")
    with pytest.raises(UserError):
        data.require_directions("cosine")


class Nothing:
    """A store that keeps what it is told."""

    deleted = None

    def build(self, vectors):
        pass

    def ingest(self, vectors):
        pass

    def delete(self, ids):
        self.deleted = ids


@pytest.mark.covers("E-FR23")
def test_deletes_are_of_the_last_vectors_and_a_filter_passes_a_share_of_what_is_left():
    store = Nothing()
    facts = fill(store, SEEDED, {"deleted_ratio": 0.25})
    assert store.deleted == range(300, 400)
    assert facts["vectors_left"] == 300
    assert facts["delete_vectors_per_s"] > 0
    assert visible({"deleted_ratio": 0.25, "filter_ratio": 0.1, "k": 10}, 400) == (300, 30)
    assert visible({"k": 10}, 400) == (400, 400)
    with pytest.raises(UserError):
        visible({"filter_ratio": 0.01, "k": 10}, 400)


@pytest.mark.covers("E-FR23")
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_a_search_that_ignores_a_filter_misses_and_a_trial_has_the_metrics_of_its_start(tmp_path, metric):
    settings = {"k": 5, "metric": metric, "filter_ratio": 0.5, "deleted_ratio": 0.5}
    target = Target(settings=settings, data=tmp_path)
    SEEDED.save(tmp_path)
    facts = {"ingest_vectors_per_s": 7, "ingest_s": 3.0, "index_resident_bytes": 9, "server": "a name"}
    assert started(target, facts) == facts

    def exact(rows):
        return lambda queries, k: np.argsort(distances(SEEDED.vectors[:rows], queries, metric), axis=1)[:, :k]

    start = {"ingest_vectors_per_s": 7.0, "build_s": 3.0, "memory_bytes": 9.0}
    assert recall(target, exact(100)) == {"recall_at_5": 1.0, **start}
    assert recall(target, exact(400))["recall_at_5"] < 0.7
    assert json.loads((tmp_path / START).read_text()) == start


def test_a_vector_in_text_is_the_same_in_float32():
    for vector in SEEDED.vectors[:50]:
        assert np.float32(json.loads(in_text(vector))).tolist() == vector.tolist()
