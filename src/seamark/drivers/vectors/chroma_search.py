"""Searches of Chroma's server over HTTP: the driver, and the filter of a search. Needs no library of Chroma."""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from seamark.drivers.vectors.dataset import Vectors, in_batches, in_text, visible
from seamark.load.driver import Body, Target, Wire, whole
from seamark.load.engine.http import HttpDecoder, http_request, in_url
from seamark.model.service import Value

COLLECTION = "seamark"
ID_FILE = "collection"
ROW = "row"
"""The metadata by which filters compare: the number of a vector."""


def filter_of(settings: Mapping[str, Value]) -> dict[str, dict[str, int]] | None:
    """Return the filter of each search in Chroma's terms, None without one."""
    if settings.get("filter_ratio") is None:
        return None
    return {ROW: {"$lt": visible(settings, whole(settings, "vectors"))[1]}}


class ChromaSearch(Wire):
    """Searches the collection that `populate` filled. A reply is worth its batch when every query got an answer."""

    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        self._host, self._port = target.host, target.ports["main"]
        self._settings, self._batch = target.settings, whole(target.settings, "batch")
        self._queries: Vectors = np.load(target.data / "queries.npy")
        name = (target.data / ID_FILE).read_text(encoding="ascii")
        self._path = f"/api/v2/tenants/default_tenant/databases/default_database/collections/{name}/query"
        self.body_count = max(len(self._queries), 64)

    def address(self) -> tuple[str, int]:
        """Return host and port of the server."""
        return self._host, self._port

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of queries as JSON: all in seeded order, again and again, cut into batches."""
        passing = filter_of(self._settings)
        rest = {"n_results": whole(self._settings, "k"), "include": [], **({"where": passing} if passing else {})}
        texts = [in_text(query) for query in self._queries]
        batches = in_batches(len(texts), count, self._batch, seed)
        end = json.dumps(rest)[1:]
        queries = (",".join(texts[row] for row in batch) for batch in batches)
        return [Body(content=f'{{"query_embeddings":[{asked}],{end}'.encode()) for asked in queries]

    def encode(self, body: Body) -> bytes:
        """Return the request on the wire."""
        host, headers = f"{in_url(self._host)}:{self._port}", {"Content-Type": "application/json"}
        return http_request("POST", self._path, host=host, headers=headers, body=body.content)

    def decoder(self) -> HttpDecoder:
        """Return a decoder that counts the queries that were answered."""
        return HttpDecoder(self._answered)

    def _answered(self, status: int, body: bytes) -> int:
        ids = json.loads(body)["ids"]
        if len(ids) != self._batch:
            raise ValueError(f"{len(ids)} answers")
        return self._batch if all(ids) else 0
