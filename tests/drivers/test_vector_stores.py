"""Chroma and pgvector for real: recall by each metric, filters, deletes, and what a start says of itself."""

import pytest
from service_environment import ask
from storage import serving

pytestmark = pytest.mark.services
SMALL = {"vectors": 2000, "dimensions": 16, "queries": 60}
STARTED = {"ingest_vectors_per_s", "build_s", "index_bytes"}


def searched(name, folder, levels=({},), **changes):
    """Fill a store, search it at some settings; give the facts of its start and a load for each."""
    with serving(name, folder, **SMALL, **changes) as served:
        loads = []
        for level in levels:
            loads.append(served.load(concurrency=3, **level))
            assert loads[-1].failures == {"NONE": loads[-1].ok}
            assert loads[-1].ok > 0
            assert loads[-1].outcome.unit == "query"
        return served.endpoint["facts"], [load.outcome.quality for load in loads]


@pytest.mark.covers("E-FR22", "E-FR23")
def test_pgvector_finds_the_true_neighbours_also_through_a_filter_and_after_deletes(tmp_path):
    levels = ({"ef_search": 200}, {"ef_search": 10}, {"filter_ratio": 0.05, "iterative_scan": "strict_order"})
    changes = {"index": "hnsw", "metric": "cosine", "deleted_ratio": 0.25}
    facts, (high, low, filtered) = searched("pgvector", tmp_path, levels, **changes)
    assert facts["vectors_left"] == 1500
    assert facts["index_bytes"] > 0
    assert set(high) == STARTED | {"recall_at_10", "delete_vectors_per_s"}
    assert high["recall_at_10"] > 0.98 > low["recall_at_10"]
    assert filtered["recall_at_10"] > 0.9


@pytest.mark.sweep
@pytest.mark.covers("E-FR22", "E-FR23")
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize(("index", "knob"), [("flat", {}), ("ivf", {"lists": 16, "nprobe": 16})])
def test_an_exact_search_of_pgvector_finds_all_by_each_metric(tmp_path, metric, index, knob):
    facts, qualities = searched("pgvector", tmp_path, ({}, {"filter_ratio": 0.1}), index=index, metric=metric, **knob)
    assert [quality["recall_at_10"] for quality in qualities] == [1.0, 1.0]
    assert (facts["index_bytes"] == 0) == (index == "flat")


@pytest.mark.sweep
@pytest.mark.covers("E-FR22", "E-FR23")
@pytest.mark.parametrize("name", ["chroma", "chroma_embedded"])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_chroma_finds_the_true_neighbours_by_each_metric(tmp_path, name, metric):
    levels = ({}, {"batch": 4}, {"filter_ratio": 0.1})
    facts, qualities = searched(name, tmp_path, levels, metric=metric, ef_search=200, deleted_ratio=0.25)
    assert facts["server_version"] == ("1.0.0" if name == "chroma" else "1.5.9")  # that of its API, and the library's
    for quality in qualities:
        assert quality["recall_at_10"] > 0.98
        assert set(quality) == STARTED | {"recall_at_10", "delete_vectors_per_s"}


@pytest.mark.sweep
@pytest.mark.covers("E-FR22", "E-FR23")
def test_a_graph_of_fewer_candidates_is_built_and_searched_as_asked_by_chroma(tmp_path):
    found = [searched("chroma", tmp_path / str(ef), ef_search=ef)[1][0]["recall_at_10"] for ef in (10, 200)]
    assert found[0] < found[1] - 0.02


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04", "E-FR23")
@pytest.mark.parametrize("name", ["pgvector", "chroma", "chroma_embedded"])
def test_a_store_whose_filling_was_killed_is_whole_after_the_next(tmp_path, name):
    with serving(name, tmp_path, **SMALL) as served:
        where = served.where(vectors=12_000, ef_search=400)
        driver = f"seamark.drivers.vectors.{name}"
        for after_s in (0.05, 0.4):
            again = ask(
                served.environment, "inside_stores", "killed_and_again", driver=driver, where=where, after_s=after_s
            )
            assert again["killed"]
            assert again["vectors"] == 12_000
            assert again["recall_at_10"] > 0.98
