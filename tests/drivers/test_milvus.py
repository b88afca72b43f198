"""Milvus: the real server, its recall on known data, what it counts of what was inserted, and its death."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest
from service_environment import ask
from shipped import SERVICES
from storage import Served, serving

pytestmark = pytest.mark.services
GOLDEN = {"vectors": 20_000, "dimensions": 64, "queries": 500}


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    with serving("milvus", tmp_path_factory.mktemp("milvus"), index="flat", vectors=3000) as served:
        yield served


def asked(served: Served, question: str, settings: dict[str, object] | None = None, **told: object) -> object:
    where = served.where(**(settings or {}))
    return ask(served.environment, "inside_milvus", question, where=where, **told)


@pytest.mark.covers("E-FR22", "E-FR23", "E-FR24")
def test_a_deployment_is_ready_when_all_vectors_are_stored_and_loaded_and_says_what_that_took(flat):
    facts = flat.endpoint["facts"]
    assert facts["vectors"] == asked(flat, "rows", collection="seamark") == 3000
    assert facts["segments"] == 1
    assert facts["server_version"].startswith("v2.3.5")
    steps_s = [facts[name] for name in ("insert_s", "flush_s", "index_s", "load_s")]
    assert min(steps_s) > 0
    assert sum(steps_s) == pytest.approx(facts["ingest_s"], abs=0.5)
    assert flat.endpoint["metrics_url"].endswith(f":{flat.endpoint['ports']['metrics']}/metrics")


@pytest.mark.covers("E-FR24")
def test_the_components_of_the_clusters_recipe_are_those_that_milvus_has(flat):
    server = SERVICES["milvus_cluster"].server
    commands = [server.command, *(part.command for part in server.parts)]
    asked = {words[words.index("run") + 1] for words in commands if "run" in words}
    assert asked == {"proxy", "mixture", "querynode", "datanode", "indexnode"}
    place = flat.data / "server" / "bin"
    environment = {"LD_LIBRARY_PATH": str(place)}
    told = subprocess.run(
        [place / "milvus", "run", "none"], env=environment, capture_output=True, text=True, check=False
    )
    assert asked <= set((told.stdout + told.stderr).split())


@pytest.mark.covers("E-FR22", "E-FR23")
def test_flat_finds_every_true_neighbour_and_searches_of_users_are_whole(flat):
    loaded = flat.load(concurrency=4, batch=3)
    assert loaded.failures == {"NONE": loaded.ok}
    assert loaded.ok > 20
    assert (loaded.samples["units"] == 3).all()
    assert (loaded.samples["bytes_sent"] > 3 * 64 * 4).all()
    assert loaded.outcome.unit == "query"
    assert loaded.outcome.quality["recall_at_10"] == 1.0
    assert {"ingest_vectors_per_s", "build_s"} <= set(loaded.outcome.quality)


@pytest.mark.sweep
@pytest.mark.covers("E-FR22", "E-FR23")
def test_the_server_counts_as_many_vectors_of_each_load_as_it_said_it_took(flat):
    counted = asked(flat, "rows", collection="seamark_inserts")
    for seed, batch in ((3, 1), (4, 50)):
        loaded = flat.load(seed=seed, operation="insert", batch=batch, concurrency=3)
        assert loaded.failures == {"NONE": loaded.ok}
        taken = int(loaded.samples["units"].sum())
        assert loaded.outcome.unit == "vector"
        assert taken == loaded.ok * batch > 0
        assert loaded.outcome.quality == {"stored_vectors": taken}
        counted += taken
    assert asked(flat, "rows", collection="seamark_inserts") == counted


def test_a_query_that_milvus_refuses_is_a_failure_with_its_reason(flat):
    category, reason = asked(flat, "refused")
    assert category in ("CLIENT_ERROR", "SERVER_ERROR")
    assert "Milvus says" in reason


@pytest.mark.covers("E-VAL")
def test_a_search_that_cannot_be_is_refused_before_anything_is_sent(flat):
    wrong = [{"index": "hnsw", "ef_search": 9}, {"index": "ivf", "lists": 16, "nprobe": 17}, {"ef_search": 9}]
    assert asked(flat, "mistakes", changes=wrong) == [
        "ef_search: 9 is less than k, 10: Milvus refuses that. Set ef_search to 10 or more.",
        "nprobe: 17 is more than lists, 16. Set it to 16 or less.",
        None,  # a flat index has no candidates
    ]


def test_a_request_made_by_us_costs_the_client_less_than_the_sdks_own(flat):
    ours_s, theirs_s = asked(flat, "client_costs", requests=200)
    assert ours_s < theirs_s


@pytest.mark.sweep
@pytest.mark.covers("E-FR22", "E-FR23")
def test_hnsw_on_the_golden_data_has_the_recall_of_the_same_graph_in_faiss(flat):
    facts = asked(flat, "populated", {**GOLDEN, "index": "hnsw"}, seed=0)
    assert facts["indexed_vectors"] == facts["vectors"] == 20_000
    found = asked(flat, "recalls", {**GOLDEN, "index": "hnsw"}, knob="ef_search", levels=[10, 80, 320])
    recalls = [each["recall_at_10"] for each in found]
    assert recalls == pytest.approx([0.399, 0.866, 0.987], abs=0.04)


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_a_killed_server_ends_its_load_with_recorded_failures_only(flat, tmp_path):
    """The last one: nothing answers after it."""
    served, pids = replace(flat, parts=tmp_path), [flat.endpoint["server_pid"]]

    def kill_in_the_middle():
        if pids and served.samples_written():
            os.kill(pids.pop(), signal.SIGKILL)

    loaded = served.load(kill_in_the_middle, operation="insert", concurrency=4, duration_s=4)
    assert loaded.ok > 0
    assert {"RESET", "CONNECT"} & set(loaded.failures)
    assert set(loaded.failures) <= {"NONE", "RESET", "CONNECT"}
    assert loaded.outcome.died == 0
