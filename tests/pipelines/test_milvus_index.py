"""A retriever whose index lies in a Milvus server, at the contract of its REST API: a stand-in keeps the vectors."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.model.graph import LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.rag_retrieval import COLLECTION, DIMENSIONS, Ingest, Retriever, index_of

TEXTS = [f"number {number} is written in document {number}" for number in range(230)]


class StandIn(BaseHTTPRequestHandler):
    """Collections by name, with the vectors of each by id; a mistake has code and message, and the status 200."""

    collections: dict[str, dict[int, list[float]]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(self.answer(self.path.removeprefix("/v2/vectordb/"), asked)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        name = asked.pop("collectionName")
        if what == "collections/has":
            return {"code": 0, "data": {"has": name in self.collections}}
        if what == "collections/create":
            if name in self.collections:
                return {"code": 65535, "message": "create duplicate collection"}
            assert asked == {"dimension": DIMENSIONS, "metricType": "IP", "params": {"consistencyLevel": "Strong"}}
            self.collections[name] = {}
            return {"code": 0, "data": {}}
        if name not in self.collections:
            return {"code": 100, "message": "can't find collection"}
        if what == "collections/drop":
            del self.collections[name]
            return {"code": 0, "data": {}}
        rows = self.collections[name]
        if what == "entities/insert":
            assert not rows.keys() & {row["id"] for row in asked["data"]}
            rows |= {row["id"]: row["vector"] for row in asked["data"]}
            return {"code": 0, "data": {"insertCount": len(asked["data"])}}
        assert what == "entities/search"
        [vector] = asked["data"]
        assert (asked["annsField"], asked["outputFields"]) == ("vector", ["id"])
        near = sorted(rows, key=lambda id: -float(np.dot(rows[id], vector)))[: asked["limit"]]
        return {"code": 0, "data": [{"id": id, "distance": 0.0} for id in near]}

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    StandIn.collections = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class OfTexts(Retriever):
    """The retriever on texts of the test: those of a data set need its library."""

    def prepare(self) -> None:
        self._texts, self._most = TEXTS, 2
        self._index = index_of(self.extra_config, self.index)
        self._index.add(TEXTS)


def flow_of(kind: type[Retriever] | type[Ingest], base: str) -> Flow:
    config = {"index": "milvus", "server": {"api_base": base}}
    spec = StageModel(id=0, name="index", slug="index", component="", config=config)
    model = PipelineModel(
        name="p",
        slug="p",
        inputs=(0,),
        outputs=(0,),
        dataset_stage_id=0,
        loadgen=LoadGen(max_queries=9),
        stages=(spec,),
    )
    stage = kind(spec, model)
    stage.prepare()
    flow = Flow(model, {0: stage}, None, timeout_s=20)
    flow.start()
    return flow


def asked(flow: Flow, number: int, data: Any) -> Any:
    query = Query(split="val", batch=0, query_submitted_timestamp=0.0, query_id=number, data=data)
    return flow.call(query, number)


@pytest.mark.covers("A10")
def test_documents_are_found_in_a_server_and_what_it_refuses_fails_the_query(server: ThreadingHTTPServer) -> None:
    base = f"http://127.0.0.1:{server.server_port}/"
    flow = flow_of(OfTexts, base)
    try:
        assert len(StandIn.collections[COLLECTION]) == len(TEXTS)
        ticket = asked(flow, 0, "in which document is 217?")
        assert ticket.error is None
        assert ticket.query.data[0] == TEXTS[217]
        assert len(ticket.query.data) == 2
        StandIn.collections.clear()
        assert "can't find collection" in asked(flow, 1, "217").error
    finally:
        flow.stop()
    again = flow_of(Ingest, base)
    try:
        assert [asked(again, number, TEXTS[:150]).error for number in range(2)] == [None, None]
        assert sorted(StandIn.collections[COLLECTION]) == list(range(300))
        flow_of(Ingest, base).stop()
        assert StandIn.collections[COLLECTION] == {}, "an index begins empty"
    finally:
        again.stop()


@pytest.mark.covers("A10")
@pytest.mark.parametrize("config", [{"index": "milvus"}, {"index": "milvus", "server": {}}, {"index": "milvos"}])
def test_an_index_without_a_server_or_of_no_known_kind_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="milvus"):
        index_of(config, "bm25")
