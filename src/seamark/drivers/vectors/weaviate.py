"""Weaviate: its collection is filled before the load over REST, and searched by GraphQL over HTTP; recall."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from uuid import UUID

import numpy as np

from seamark.drivers.vectors.dataset import Dataset, Ids, Vectors, fill, in_batches, in_text, recall, started, visible
from seamark.errors import SiteError
from seamark.load.driver import Body, Hooks, Target, Wire, whole
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.model.service import Value

COLLECTION = "Seamark"
ROW = "row"
"""The property by which filters compare and answers are known: the number of a vector."""
METRICS = {"l2": "l2-squared", "ip": "dot", "cosine": "cosine"}
MOST_ROWS = 1000
TIMEOUT_S = 600.0
HEADERS = {"Content-Type": "application/json"}


def query_of(vector: Vectors, k: int, settings: Mapping[str, Value]) -> bytes:
    """Return the GraphQL of one search as JSON."""
    where = ""
    if settings.get("filter_ratio") is not None:
        passing = visible(settings, whole(settings, "vectors"))[1]
        where = f', where: {{path: ["{ROW}"], operator: LessThan, valueInt: {passing}}}'
    near = f"nearVector: {{vector: {in_text(vector)}}}"
    return json.dumps({"query": f"{{Get {{{COLLECTION}(limit: {k}, {near}{where}) {{{ROW}}}}}}}"}).encode()


def rows_in(reply: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the vectors that a search found. Raises ValueError with the server's own words for a
    search that failed, which has status 200."""
    if reply.get("errors"):
        raise ValueError(str(reply["errors"][0]["message"]))
    return [int(found[ROW]) for found in reply["data"]["Get"][COLLECTION]]


class WeaviateSearch(Wire):
    """Searches the collection that `populate` filled, one query a request."""

    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        self._host, self._port, self._settings = target.host, target.ports["main"], target.settings
        self._queries: Vectors = np.load(target.data / "queries.npy")
        self.body_count = max(len(self._queries), 64)

    def address(self) -> tuple[str, int]:
        """Return host and port of the server."""
        return self._host, self._port

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return queries in seeded order, again and again."""
        k, asked = whole(self._settings, "k"), in_batches(len(self._queries), count, 1, seed)
        return [Body(content=query_of(self._queries[row], k, self._settings)) for (row,) in asked]

    def encode(self, body: Body) -> bytes:
        """Return the request on the wire."""
        host = f"{in_url(self._host)}:{self._port}"
        return http_request("POST", "/v1/graphql", host=host, headers=HEADERS, body=body.content)

    def decoder(self) -> HttpDecoder:
        """Return a decoder that counts a query with an answer."""
        return HttpDecoder(lambda status, body: 1 if rows_in(json.loads(body)) else 0)


class WeaviateCollection:
    """The collection that is searched, over one connection."""

    def __init__(self, target: Target) -> None:
        self._connection = HTTPConnection(target.host, target.ports["main"], timeout=TIMEOUT_S)
        self._settings = target.settings
        self.facts: dict[str, Value] = {"server_version": self._ask("GET", "/v1/meta")["version"]}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(self, method: str, path: str, content: Mapping[str, Any] | bytes | None = None) -> Any:
        body = content if content is None or isinstance(content, bytes) else json.dumps(content)
        self._connection.request(method, path, body=body, headers=HEADERS)
        reply = self._connection.getresponse()
        text = reply.read()
        if reply.status >= 300:
            raise SiteError(f"weaviate: {method} {path}: {reply.status} {text[:300].decode(errors='replace')}")
        return json.loads(text) if text else None

    def build(self, vectors: Vectors) -> None:
        """Make the collection, empty; whatever had its name is dropped."""
        self._ask("DELETE", f"/v1/schema/{COLLECTION}")
        index: dict[str, Value] = {"distance": METRICS[str(self._settings["metric"])]}
        if self._settings["index"] == "hnsw":
            index["maxConnections"] = whole(self._settings, "m")
            index["efConstruction"] = whole(self._settings, "ef_construction")
            index["ef"] = whole(self._settings, "ef_search")
        collection = {
            "class": COLLECTION,
            "vectorizer": "none",
            "vectorIndexType": self._settings["index"],
            "vectorIndexConfig": index,
            "properties": [{"name": ROW, "dataType": ["int"]}],
        }
        self._ask("POST", "/v1/schema", collection)

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors; a batch is indexed when it is answered. Raises SiteError with the server's own words for
        a vector that was refused, which has status 200."""
        for start in range(0, len(vectors), MOST_ROWS):
            objects = ",".join(
                f'{{"class":"{COLLECTION}","id":"{UUID(int=row + 1)}","properties":{{"{ROW}":{row}}},'
                f'"vector":{in_text(vectors[row])}}}'
                for row in range(start, min(start + MOST_ROWS, len(vectors)))
            )
            for stored in self._ask("POST", "/v1/batch/objects", f'{{"objects":[{objects}]}}'.encode()):
                if stored["result"].get("errors") or stored["result"].get("status") == "FAILED":
                    raise SiteError(f"weaviate: a vector was not stored: {json.dumps(stored['result'])[:300]}")
        count = f"{{Aggregate {{{COLLECTION} {{meta {{count}}}}}}}}"
        reply = self._ask("POST", "/v1/graphql", {"query": count})
        if (stored := reply["data"]["Aggregate"][COLLECTION][0]["meta"]["count"]) != len(vectors):
            raise SiteError(f"weaviate: {stored} of {len(vectors)} vectors are stored.")

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one."""
        found = np.full((len(queries), k), -1, dtype=np.int64)
        for row, query in enumerate(queries):
            names = rows_in(self._ask("POST", "/v1/graphql", query_of(query, k, self._settings)))
            found[row, : len(names)] = names
        return found

    def delete(self, ids: range) -> None:
        """Delete these vectors, the last ones, in as many calls as the server's limit of one takes."""
        where = {"path": [ROW], "operator": "GreaterThanEqual", "valueInt": ids.start}
        left = len(ids)
        while left:
            reply = self._ask("DELETE", "/v1/batch/objects", {"match": {"class": COLLECTION, "where": where}})
            if not (deleted := reply["results"]["successful"]):
                raise SiteError(f"weaviate: {left} vectors were not deleted: {json.dumps(reply['results'])[:300]}")
            left -= deleted


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make the data set, store and index it."""
    data = Dataset.stage(target, seed)
    with closing(WeaviateCollection(target)) as collection:
        facts = fill(collection, data, target.settings)
        return started(target, {**facts, **collection.facts})


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries, and the metrics of the start."""
    with closing(WeaviateCollection(target)) as collection:
        return recall(target, collection.search)


HOOKS = Hooks(populate=populate, quality=quality)
