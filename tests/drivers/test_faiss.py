"""FAISS: recall is what is known of this data, tie-aware and checked by ids; searches run side by side."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from service_environment import ROOT, ask, environment
from service_loads import deployed, loaded

from seamark.drivers.vectors.dataset import Dataset, fill, nearest_distances, recall_at_k

SETTINGS = yaml.safe_load((ROOT / "config/services/faiss.yaml").read_text(encoding="utf-8"))["settings"]
DEFAULTS = {name: setting["default"] for name, setting in SETTINGS.items()}


def small(**changes):
    return DEFAULTS | {"vectors": 2000, "dimensions": 16, "queries": 50} | changes


@pytest.fixture(scope="module")
def faiss():
    return environment("faiss")


@pytest.fixture(scope="module")
def square():
    """Four corners of a square, and a query at its middle: all are equally near."""
    vectors = np.array([[0, 0], [0, 2], [2, 0], [2, 2], [9, 9]], dtype=np.float32)
    queries = np.array([[1, 1]], dtype=np.float32)
    return Dataset(vectors=vectors, queries=queries, truth=nearest_distances(vectors, queries, 5))


def test_seed_0_gives_the_golden_vectors_and_another_seed_gives_others():
    rng = np.random.default_rng(42)
    vectors = rng.standard_normal((300, 8), dtype=np.float32)
    queries = rng.standard_normal((20, 8), dtype=np.float32)
    golden = Dataset.generate(vectors=300, dimensions=8, queries=20, seed=0)
    assert (golden.vectors == vectors).all()
    assert (golden.queries == queries).all()
    assert not (Dataset.generate(vectors=300, dimensions=8, queries=20, seed=1).vectors == vectors).any()


@pytest.mark.parametrize("count", [100, 20_000])
def test_the_ground_truth_equals_a_plain_sort_of_all_distances(count):
    data = Dataset.generate(vectors=count, dimensions=5, queries=4, seed=3)
    for query, truth in zip(data.queries.astype(float), data.truth, strict=True):
        plain = np.sort(((data.vectors.astype(float) - query) ** 2).sum(axis=1))
        assert truth == pytest.approx(plain[:100], abs=1e-9)


@pytest.mark.covers("E-FR23")
@pytest.mark.parametrize(
    ("found", "k", "recall"),
    [
        ([0, 1], 2, 1.0),
        ([3, 2], 2, 1.0),  # as near as the first two: a tie is no mistake
        ([0, 4], 2, 0.5),
        ([0, 0], 2, 0.5),  # one answer said twice is one answer
        ([0, -1], 2, 0.5),  # 'none found' is not the last vector
        ([0, 5], 2, 0.5),  # there is no such vector
        ([4, 0, 1, 2, 3], 1, 0.0),  # only the first k count
        ([4, 3, 2, 1, 0], 5, 1.0),
    ],
)
def test_recall_counts_ties_as_found_and_nothing_twice(square, found, k, recall):
    assert recall_at_k(square, np.array([found]), k) == recall


def test_ingest_rate_counts_the_seconds_of_build_and_ingest_together(square):
    class Clocked:
        def __init__(self):
            self.now_s, self.calls = 0.0, []

        def build(self, vectors):
            self.calls.append(("build", len(vectors)))
            self.now_s += 3

        def ingest(self, vectors):
            self.calls.append(("ingest", len(vectors)))
            self.now_s += 2

    store = Clocked()
    facts = fill(store, square, {}, clock=lambda: store.now_s)
    assert store.calls == [("build", 5), ("ingest", 5)]
    assert facts == {
        "build_s": 3,
        "ingest_s": 2,
        "ingest_vectors_per_s": 1,
        "vectors": 5,
        "vectors_bytes": 40,
        "zero_vectors": 1,
    }


@pytest.mark.services
@pytest.mark.covers("E-FR22", "E-FR23")
@pytest.mark.parametrize(
    ("index", "knob", "recall_of"),
    [
        ("flat", "k", {10: 1.0, 100: 1.0}),
        ("ivf", "nprobe", {1: 0.076, 8: 0.339, 32: 0.704, 128: 1.0}),
        ("hnsw", "ef_search", {10: 0.399, 80: 0.866, 320: 0.987}),
    ],
)
def test_recall_on_the_golden_data_is_what_is_known(faiss, tmp_path, index, knob, recall_of):
    settings = DEFAULTS | {"index": index}
    facts = ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)
    assert facts["vectors_bytes"] == 20_000 * 64 * 4 <= facts["index_bytes"]
    # the allocator and large pages of memory add up to 2.5 MB, more in one process than in the next
    assert -0.25 * facts["index_bytes"] <= facts["index_resident_bytes"] - facts["index_bytes"] <= 4e6
    assert facts["build_s"] + facts["ingest_s"] == pytest.approx(20_000 / facts["ingest_vectors_per_s"])
    qualities = ask(
        faiss,
        "inside_faiss",
        "recalls",
        settings=settings,
        data=str(tmp_path),
        knob=knob,
        levels=list(recall_of),
    )
    got = [next(iter(quality.values())) for quality in qualities]
    within = 0 if index == "flat" else 0.02
    assert got == pytest.approx(list(recall_of.values()), abs=within)
    assert next(iter(qualities[0])) == f"recall_at_{next(iter(recall_of)) if knob == 'k' else 10}"


@pytest.mark.services
@pytest.mark.parametrize("index", ["flat", "ivf", "hnsw"])
def test_the_same_seed_builds_the_same_index_byte_for_byte(faiss, tmp_path, index):
    for folder in ("once", "again"):
        ask(faiss, "inside_faiss", "staged", settings=small(index=index), data=str(tmp_path / folder), seed=5)
    once, again = (Path(tmp_path / folder / "index.faiss").read_bytes() for folder in ("once", "again"))
    assert once == again


@pytest.mark.services
@pytest.mark.parametrize(
    ("index", "stages"), [("flat", ["search"]), ("ivf", ["choose lists", "scan lists"]), ("hnsw", ["search"])]
)
def test_a_traced_search_finds_the_same_and_records_its_stages_in_a_row(faiss, tmp_path, index, stages):
    settings = small(index=index, batch=3, nprobe=5, ef_search=40)
    ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)
    found = ask(faiss, "inside_faiss", "traced", settings=settings, data=str(tmp_path), requests=40)
    assert found["stages"] == stages
    assert found["same"] is True
    events = found["events"]
    assert [event[:3] for event in events] == [
        [query, stage, 1] for query in range(40) for stage in range(len(stages))
    ]
    times_ns = [at_ns for event in events for at_ns in event[3:5]]
    assert times_ns == sorted(times_ns)


@pytest.mark.services
@pytest.mark.covers("E-FR22")
@pytest.mark.parametrize(("index", "batch"), [("flat", 1), ("ivf", 4), ("hnsw", 8)])
def test_threads_that_search_at_once_each_get_the_answers_to_their_own_queries(faiss, tmp_path, index, batch):
    settings = small(index=index, batch=batch, k=7, ef_search=40)
    ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)
    users = ask(faiss, "inside_faiss", "searched", settings=settings, data=str(tmp_path), threads=4, requests=200)
    assert len(users) == 4
    for user in users:
        assert user["units"] == 50 * batch
        assert user["failures"] == []
        assert user["ids"] == user["wanted"]
        assert len(user["ids"]) == batch
        assert len(user["ids"][0]) == 7


@pytest.mark.services
def test_every_query_is_asked_once_before_any_is_asked_again_in_an_order_of_the_seed(faiss, tmp_path):
    settings = small(index="flat", batch=5)
    ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)

    def order(seed):
        bodies = ask(faiss, "inside_faiss", "asked", settings=settings, data=str(tmp_path), count=20, seed=seed)
        assert all(len(body) == 5 for body in bodies)
        return [query for body in bodies for query in body]

    first = order(1)
    assert sorted(first[:50]) == sorted(first[50:]) == list(range(50))
    assert first == order(1)
    assert first != order(2)


@pytest.mark.services
def test_every_thread_searches_with_as_many_openmp_threads_as_asked(faiss, tmp_path):
    settings = small(index="flat", threads_per_search=3)
    ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)
    before, *users = ask(faiss, "inside_faiss", "threads_of_two_users", settings=settings, data=str(tmp_path))
    assert before != 3, "a machine of three cores cannot show it"
    assert users == [3, 3]


@pytest.mark.services
def test_a_search_that_finds_nothing_is_an_empty_reply_and_not_a_fast_one(faiss, tmp_path):
    settings = small(index="flat")
    ask(faiss, "inside_faiss", "staged", settings=settings, data=str(tmp_path), seed=0)
    reply = ask(faiss, "inside_faiss", "searched_an_empty_list", settings=settings, data=str(tmp_path))
    assert reply == {"units": 0, "failure": "EMPTY_REPLY"}


@pytest.mark.services
@pytest.mark.covers("E-FR22", "E-FR23")
def test_a_load_on_the_recipe_searches_and_gives_the_recall_of_its_own_settings(tmp_path):
    with deployed("faiss", tmp_path, index="ivf") as endpoint:
        assert endpoint["facts"]["vectors"] == 20_000
        assert endpoint["facts"]["ingest_vectors_per_s"] > 0
        recalls = []
        for nprobe in (8, 128):
            outcome, samples = loaded(
                endpoint, tmp_path / f"parts-{nprobe}", nprobe=nprobe, batch=3, concurrency=3, requests=300
            )
            assert outcome.unit == "query"
            assert outcome.completed == len(samples) == 300
            assert not samples["failure"].any()
            assert (samples["units"] == 3).all()
            recalls.append(outcome.quality["recall_at_10"])
    assert recalls == pytest.approx([0.339, 1.0], abs=0.02)
