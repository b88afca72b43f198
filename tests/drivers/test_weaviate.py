"""Weaviate's driver against a server of ours that speaks its published REST and GraphQL."""

import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from shipped import SERVICES

from seamark.datasets.neighbours import distances
from seamark.drivers.vectors.weaviate import HOOKS, WeaviateSearch
from seamark.errors import SiteError, UserError
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.driver import Target
from seamark.load.workers.records import read_segments
from seamark.model.sample import Failure

DATA = {"vectors": 2300, "dimensions": 4, "queries": 6, "k": 3}
SEARCH = re.compile(
    r"\{Get \{Seamark\(limit: (\d+), nearVector: \{vector: (\[[^]]*\])\}"
    r'(?:, where: \{path: \["row"\], operator: LessThan, valueInt: (\d+)\})?\) \{row\}\}\}'
)
MOST_DELETED = 400
"""Objects that one call deletes at most; Weaviate's own limit is 10,000."""


class Weaviate(ThreadingHTTPServer):
    """One collection. Searches are exact; a vector with row `refuse` is refused as Weaviate does, with status 200."""

    def __init__(self, refuse=-1):
        super().__init__(("127.0.0.1", 0), Replies)
        self.schema, self.rows, self.refuse, self.deletes = None, {}, refuse, 0


class Replies(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, content, status=200):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def asked(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")

    def do_GET(self):
        self.reply({"version": "1.40.3"} if self.path == "/v1/meta" else {}, 200 if self.path == "/v1/meta" else 404)

    def do_DELETE(self):
        asked, server = self.asked(), self.server
        if self.path == "/v1/schema/Seamark":
            server.schema, server.rows = None, {}
            return self.reply(None)
        where = asked["match"]["where"]
        assert (asked["match"]["class"], where["path"], where["operator"]) == ("Seamark", ["row"], "GreaterThanEqual")
        gone = [row for row in server.rows if row >= where["valueInt"]][:MOST_DELETED]
        server.deletes += 1
        for row in gone:
            del server.rows[row]
        return self.reply({"results": {"matches": len(gone), "successful": len(gone), "failed": 0}})

    def do_POST(self):
        asked, server = self.asked(), self.server
        if self.path == "/v1/schema":
            server.schema = asked
            return self.reply(asked)
        if self.path == "/v1/batch/objects":
            return self.reply([self.stored(one) for one in asked["objects"]])
        if "Aggregate" in asked["query"]:
            return self.reply({"data": {"Aggregate": {"Seamark": [{"meta": {"count": len(server.rows)}}]}}})
        limit, vector, below = SEARCH.fullmatch(asked["query"]).groups()
        rows = [row for row in sorted(server.rows) if below is None or row < int(below)]
        vectors = np.float32([server.rows[row] for row in rows])
        metric = {"l2-squared": "l2", "dot": "ip", "cosine": "cosine"}[server.schema["vectorIndexConfig"]["distance"]]
        away = distances(vectors, np.float32([json.loads(vector)]), metric)[0]
        found = [{"row": rows[at]} for at in np.argsort(away)[: int(limit)]]
        return self.reply({"data": {"Get": {"Seamark": found}}})

    def stored(self, one):
        row = one["properties"]["row"]
        if row == self.server.refuse:
            return {"result": {"status": "FAILED", "errors": {"error": [{"message": "vector lengths don't match"}]}}}
        self.server.rows[row] = one["vector"]
        return {"id": one["id"], "result": {"status": "SUCCESS"}}

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Weaviate() as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving
        serving.shutdown()


def at(server, folder, **settings):
    defaults = {setting.name: setting.default for setting in SERVICES["weaviate"].settings}
    ports = {"main": server.server_port}
    return Target(settings=defaults | DATA | settings, data=folder, host="127.0.0.1", ports=ports)


@pytest.mark.covers("E-FR22", "E-FR23")
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_what_is_stored_is_found_by_each_metric_also_through_a_filter_and_after_deletes(server, tmp_path, metric):
    target = at(server, tmp_path, metric=metric, deleted_ratio=0.4, m=24, ef_search=99)
    facts = HOOKS.populate(target, 1)
    index = server.schema["vectorIndexConfig"]
    assert (index["maxConnections"], index["ef"], server.schema["vectorizer"]) == (24, 99, "none")
    assert (facts["server_version"], facts["vectors_left"], server.deletes) == ("1.40.3", 1380, 3)
    assert max(server.rows) == 1379
    assert HOOKS.quality(target, 1)["recall_at_3"] == 1.0
    filtered = at(server, tmp_path, metric=metric, deleted_ratio=0.4, filter_ratio=0.1)
    assert HOOKS.quality(filtered, 1)["recall_at_3"] == 1.0


@pytest.mark.covers("E-FR22")
def test_a_vector_that_is_refused_fails_the_start_though_the_status_is_200(server, tmp_path):
    server.refuse = 1234
    with pytest.raises(SiteError):
        HOOKS.populate(at(server, tmp_path), 1)


@pytest.mark.parametrize(
    ("reply", "units", "failure"),
    [
        ({"data": {"Get": {"Seamark": [{"row": 3}]}}}, 1, Failure.NONE),
        ({"data": {"Get": {"Seamark": []}}}, 0, Failure.EMPTY_REPLY),
        ({"data": {"Get": None}, "errors": [{"message": "no such class"}]}, 0, Failure.WRONG_REPLY),
    ],
)
def test_a_search_counts_where_it_has_an_answer_and_an_error_of_status_200_is_a_failure(
    server, tmp_path, reply, units, failure
):
    np.save(tmp_path / "queries.npy", np.zeros((2, 4), np.float32))
    decoder = WeaviateSearch(at(server, tmp_path)).decoder()
    decoder.reset()
    content = json.dumps(reply).encode()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content))
    assert (decoder.units, decoder.failure) == (units, failure)


def test_a_filter_that_lets_fewer_than_k_pass_is_refused(server, tmp_path):
    np.save(tmp_path / "queries.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(UserError):
        WeaviateSearch(at(server, tmp_path, filter_ratio=0.001)).bodies(1, 0)


@pytest.mark.covers("E-FR22")
@pytest.mark.slow
@pytest.mark.sweep
def test_a_load_by_the_recipe_of_weaviate_counts_a_query_a_reply(server, tmp_path):
    target = at(server, tmp_path)
    HOOKS.populate(target, 1)
    load = {"concurrency": 2, "warmup_s": 0.0, "duration_s": 60.0, "requests": 20, "timeout_s": 10.0}
    recipe = SERVICES["weaviate"]
    job = LoadJob(
        driver=recipe.driver,
        workers=recipe.workers,
        settings={**target.settings, **load},
        seed=0,
        data=tmp_path,
        host="127.0.0.1",
        ports=target.ports,
    )
    outcome = run_load(job, parts=tmp_path / "parts")
    samples = read_segments(outcome.segments)
    assert outcome.unit == "query"
    assert Counter(samples["failure"].tolist()) == {Failure.NONE: 20}
